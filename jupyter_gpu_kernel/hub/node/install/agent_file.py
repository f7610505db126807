"""Packs the agent as one file, which a node's Python can run.

The modules are read as data, never imported, and are sent as they are, so tracebacks show their lines. The file is a
zip of two: `agent/loader.py` as `__main__.py`, and the sources of its modules as one stream, which compresses better
than each by itself. Its name is its hash: another version is another file, and running kernels keep theirs.
"""

from __future__ import annotations

import bz2
import functools
import hashlib
import io
import threading
import zipfile
import zlib
from pathlib import Path
from typing import NamedTuple

_PACKAGE = "jupyter_gpu_kernel"
_FOLDER = Path(__file__).resolve().parents[3]
_LOADER = f"{_PACKAGE}/agent/loader.py"
_NOT_SENT = ("/agent/virtual_env.py", "/agent/framework_check.py")
"""Programs that are sent by themselves."""
_packing = threading.Lock()
"""Threads that connect to several nodes pack at once: the sources are read by the first of them only."""
_MAIN_PY = f"from {_PACKAGE}.agent.__main__ import main\nsys.exit(main(sys.argv[1:]))\n"


class Package(NamedTuple):
    """The agent as one file, and the shell script that installs it. `sum`: the SHA-256 of its data."""

    name: str
    data: bytes
    install: bytes
    sum: str

    def packed(self, module: str) -> bytes:
        """Return the data for the way: compressed by a module that the node's Python has, "bz2" or "zlib"."""
        return bz2.compress(self.data) if module == "bz2" else zlib.compress(self.data, 9)


def pack() -> Package:
    """Return the agent and the wire as a zip: the same bytes for the same sources."""
    with _packing:
        return packed_once()


@functools.cache
def packed_once() -> Package:
    """Read the sources once, as they may be removed or replaced while the hub runs."""
    modules = _read_sources()
    build = hashlib.sha256(_stream(modules)).digest()[:8]
    main = f"{modules.pop(_LOADER)}\ninstall({_PACKAGE!r}, {build!r})\n{_MAIN_PY}"
    install = (_FOLDER / "agent" / "install.sh").read_bytes()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in (("__main__.py", main.encode()), ("sources", _stream(modules))):
            archive.writestr(zipfile.ZipInfo(name), content)  # it is compressed as a whole when it is sent
    data = buffer.getvalue()
    digest = hashlib.sha256(data).hexdigest()
    return Package(f"agent-{digest[:16]}.pyz", data, install, digest)


def _stream(modules: dict[str, str]) -> bytes:
    """Return the modules as the agent's loader reads them, the same for the same modules."""
    return "\0".join(part for path in sorted(modules) for part in (path, modules[path])).encode()


def _read_sources() -> dict[str, str]:
    """Return the text of each module, by its path."""
    sources = {f"{_PACKAGE}/__init__.py": ""}
    for folder in ("agent", "wire"):
        for path in (_FOLDER / folder).rglob("*.py"):
            if not path.as_posix().endswith(_NOT_SENT):
                sources[f"{_PACKAGE}/{path.relative_to(_FOLDER).as_posix()}"] = path.read_text("utf-8")
    return sources
