"""Packs the agent as one piece of data, which install.sh unpacks on a node into a folder that a Python can run.

The modules are read as data, never imported, and are sent as they are, so tracebacks show their lines; as one stream
they compress better than each by itself. The folder's name has their hash: another version is another folder, and
running kernels keep theirs.
"""

from __future__ import annotations

import bz2
import functools
import hashlib
import threading
import zlib
from pathlib import Path
from typing import NamedTuple

_PACKAGE = "jupyter_gpu_kernel"
_FOLDER = Path(__file__).resolve().parents[3]
_NOT_SENT = "/agent/framework_check.py"
"""A program that is sent separately."""
_packing = threading.Lock()
"""Threads that connect to several nodes pack at once: the sources are read by the first of them only."""
OLD_PYTHON = 91
"""The exit status of an agent whose Python is too old."""
_MAIN_PY = f"""import sys

if sys.version_info < (3, 8):
    sys.stderr.write("Python %d.%d is too old: 3.8 or newer is needed\\n" % sys.version_info[:2])
    sys.exit({OLD_PYTHON})

from {_PACKAGE}.agent.__main__ import main

sys.exit(main(sys.argv[1:]))
"""
"""The program: its first lines are for Pythons that cannot read any other module of the agent."""


class Package(NamedTuple):
    """The agent, and the shell script that installs it.

    name: Of the agent's folder on the node.
    data: Its files: path, NUL, content, NUL, path …
    sum: The SHA-256 of the contents, in the order of the paths.
    """

    name: str
    data: bytes
    install: bytes
    sum: str

    def packed(self, module: str) -> bytes:
        """Return the data for the way: compressed by a module that the node's Python has, "bz2" or "zlib"."""
        return bz2.compress(self.data) if module == "bz2" else zlib.compress(self.data, 9)


def pack() -> Package:
    """Return the packed modules of `agent` and `wire`: equal sources give equal bytes."""
    with _packing:
        return packed_once()


@functools.cache
def packed_once() -> Package:
    """Read the sources once, as they may be removed or replaced while the hub runs."""
    files = {**_read_sources(), "__main__.py": _MAIN_PY}
    install = (_FOLDER / "agent" / "install.sh").read_bytes()
    digest = hashlib.sha256("".join(files[path] for path in sorted(files)).encode()).hexdigest()
    data = "\0".join(part for path in sorted(files) for part in (path, files[path])).encode()
    return Package(f"agent-{digest[:16]}", data, install, digest)


def _read_sources() -> dict[str, str]:
    """Return the text of each module, by its path."""
    sources = {f"{_PACKAGE}/__init__.py": ""}
    for folder in ("agent", "wire"):
        for path in (_FOLDER / folder).rglob("*.py"):
            if not path.as_posix().endswith(_NOT_SENT):
                sources[f"{_PACKAGE}/{path.relative_to(_FOLDER).as_posix()}"] = path.read_text("utf-8")
    return sources
