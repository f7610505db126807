"""The path of our own program, and the command that a user types to run it."""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path

from .errors import SettingsError
from .wire.texts import COMMAND, as_typed


def installed_program() -> Path:
    """The program `jupyter-gpu-kernel`: beside this Python, or where pip installs programs. SettingsError."""
    name = "jupyter-gpu-kernel.exe" if sys.platform == "win32" else "jupyter-gpu-kernel"
    user_scheme = sysconfig.get_preferred_scheme("user")
    folders = [
        Path(sys.executable).parent,
        Path(sysconfig.get_path("scripts")),
        Path(sysconfig.get_path("scripts", user_scheme)),
    ]
    for folder in folders:
        if (folder / name).is_file():
            return (folder / name).absolute()
    raise SettingsError(
        f"the program {name} is not in {folders[0]}, where front ends would start it",
        remedy=f"Reinstall it: {sys.executable} -m pip install --force-reinstall jupyter-gpu-kernel",
    )


def command() -> str:
    """The command that runs the installed program, with its full path, since it may not be on PATH."""
    try:
        return as_typed([str(installed_program())])
    except SettingsError:  # it is not installed as a program
        return COMMAND


def running_command() -> str:
    """The command that runs the program of this process, with its full path."""
    path = os.path.abspath(sys.argv[0])
    return as_typed([sys.executable, "-m", "jupyter_gpu_kernel.cli"] if path.endswith(".py") else [path])
