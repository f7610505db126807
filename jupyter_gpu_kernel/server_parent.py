"""Whether a Jupyter server is the parent of this launcher, and the kernel's id and notebook there."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from jupyter_core.paths import jupyter_runtime_dir

_FILE_NAME = re.compile(r"kernel-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\.json")


def kernel_id(connection_file: Path) -> str:
    """The kernel's id in the Jupyter server that is our parent process; "" if the parent is another program.

    A server names the connection file after the kernel, and describes itself in jpserver-PID.json. Other programs, such
    as `jupyter kernel`, use the same names for connection files.
    """
    match = _FILE_NAME.fullmatch(connection_file.name)
    return match[1] if match and _parent_is_server() else ""


def notebook(environment: Mapping[str, str] = os.environ) -> str:
    """The notebook's path, which a server puts into a kernel's environment; "" if the session has no name."""
    path = str(environment.get("JPY_SESSION_NAME", ""))
    return "" if path.endswith(("/", os.sep)) else path


def _parent_is_server() -> bool:
    if sys.platform == "win32":  # the parent is the executable that pip generates for our entry point
        return "JPY_SESSION_NAME" in os.environ
    return Path(jupyter_runtime_dir(), f"jpserver-{os.getppid()}.json").exists()
