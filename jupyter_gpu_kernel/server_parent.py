"""Whether a Jupyter server runs this launcher, and what that server knows of the kernel. Imports nothing of ours."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from jupyter_core.paths import jupyter_runtime_dir

_FILE_NAME = re.compile(r"kernel-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\.json")


def kernel_id(connection_file: Path) -> str:
    """The kernel's id at the Jupyter server that is our parent; "" if the parent is something else.

    A server names the connection file after the kernel, and describes itself in jpserver-PID.json. Others, such as
    `jupyter kernel`, use the same kind of name for the former.
    """
    named = _FILE_NAME.fullmatch(connection_file.name)
    return named[1] if named and _parent_is_server() else ""


def notebook() -> str:
    """The notebook's path, which a server tells its kernels; "" where the session has no name."""
    path = os.environ.get("JPY_SESSION_NAME", "")
    return "" if path.endswith(("/", os.sep)) else path


def _parent_is_server() -> bool:
    if sys.platform == "win32":  # the parent is the program that pip made of our entry point
        return "JPY_SESSION_NAME" in os.environ
    return Path(jupyter_runtime_dir(), f"jpserver-{os.getppid()}.json").exists()
