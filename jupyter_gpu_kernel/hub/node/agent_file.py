"""Packs the agent as one file, which a node's Python can run.

The modules are read as data, never imported. The file is a zip of two: `agent/loader.py` as `__main__.py`, and the
sources of all modules as one stream, which compresses better than each by itself. Its name is its hash: another
version is another file, and running kernels keep theirs.
"""

from __future__ import annotations

import functools
import hashlib
import io
import zipfile
from pathlib import Path
from typing import NamedTuple

_PACKAGE = "jupyter_gpu_kernel"
_FOLDER = Path(__file__).resolve().parents[2]
_MAIN_PY = f"from {_PACKAGE}.agent.__main__ import main\nsys.exit(main(sys.argv[1:]))\n"


class Package(NamedTuple):
    """The agent as one file, and the shell script that installs it. `sum`: the SHA-256 of its data."""

    name: str
    data: bytes
    install: bytes
    sum: str


@functools.cache
def pack() -> Package:
    """Return the agent and the wire as a zip: the same bytes for the same sources. They are read once, as the files may
    be removed or replaced while the hub runs."""
    sources = _read_sources()
    stream = "\0".join(part for path in sorted(sources) for part in (path, sources[path])).encode()
    build = hashlib.sha256(stream).digest()[:8]
    loader = sources[f"{_PACKAGE}/agent/loader.py"]
    main = f"{loader}\ninstall({_PACKAGE!r}, {build!r})\n{_MAIN_PY}"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in (("__main__.py", main.encode()), ("sources", stream)):
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED, 9)
    data = buffer.getvalue()
    install = (_FOLDER / "agent" / "install.sh").read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    return Package(f"agent-{digest[:16]}.pyz", data, install, digest)


def _read_sources() -> dict[str, str]:
    """Return the text of each module, by its path."""
    sources = {f"{_PACKAGE}/__init__.py": ""}
    for folder in ("agent", "wire"):
        for path in (_FOLDER / folder).rglob("*.py"):
            sources[f"{_PACKAGE}/{path.relative_to(_FOLDER).as_posix()}"] = path.read_text("utf-8")
    return sources
