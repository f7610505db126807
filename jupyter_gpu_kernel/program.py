"""Our own program: its path, the command that a user types to run it, and the Jupyter server that may run it."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from jupyter_core.paths import jupyter_runtime_dir

from .errors import SettingsError
from .hub.paths import installed_script
from .wire.texts import COMMAND, as_typed

ATTACH = "JUPYTER_GPU_KERNEL_ATTACH"
"""The variable with the id of a running kernel that a kernelspec is to attach to, instead of starting one."""
_CONNECTION_FILE = re.compile(r"kernel-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\.json")


def installed_program() -> Path:
    """The program `jupyter-gpu-kernel`: beside this Python, or where pip installs programs.

    Raises SettingsError if it is at neither place.
    """
    if (file := installed_script("jupyter-gpu-kernel")) is not None:
        return file.absolute()
    folder = os.path.dirname(sys.executable)
    raise SettingsError(
        f"the program jupyter-gpu-kernel is not in {folder}, where front ends would start it",
        remedy=f"“{sys.executable} -m pip install --force-reinstall jupyter-gpu-kernel” installs it again.",
    )


def command() -> str:
    """The command that runs the installed program; with its full path if it is not on PATH."""
    try:
        return _as_found(str(installed_program()))
    except SettingsError:  # it is not installed as a program
        return COMMAND


def running_command() -> str:
    """The command that runs the program of this process; with its full path if it is not on PATH."""
    path = os.path.abspath(sys.argv[0])
    return (
        as_typed([sys.executable, "-m", "jupyter_gpu_kernel.cli"])
        if path.endswith(".py")
        else _as_found(path)
    )


def _as_found(path: str) -> str:
    on_path = shutil.which("jupyter") and os.path.abspath(shutil.which("jupyter-gpu-kernel") or "") == path
    return COMMAND if on_path else as_typed([path])


def server_kernel_id(connection_file: Path) -> str:
    """The kernel's id in the Jupyter server that is our parent process; "" if the parent is another program.

    A server names the connection file after the kernel, and describes itself in jpserver-PID.json. Other programs, such
    as `jupyter kernel`, use the same names for connection files.
    """
    match = _CONNECTION_FILE.fullmatch(connection_file.name)
    return match[1] if match and _parent_is_server() else ""


def notebook_path(environment: Mapping[str, str] = os.environ) -> str:
    """The notebook's path, which a server puts into a kernel's environment; "" if the session has no name."""
    path = str(environment.get("JPY_SESSION_NAME", ""))
    return "" if path.endswith(("/", os.sep)) else path


def _parent_is_server() -> bool:
    if sys.platform == "win32":  # the parent is the executable that pip generates for our entry point
        return "JPY_SESSION_NAME" in os.environ
    return Path(jupyter_runtime_dir(), f"jpserver-{os.getppid()}.json").exists()
