"""Packs the agent as one file, which a node's Python can run.

The modules are read as data, never imported. The file is a zip of two: `agent/loader.py` as `__main__.py`, and the
sources of all modules as one stream, which compresses better than each by itself. Its name is its hash: another
version is another file, and running kernels keep theirs.
"""

from __future__ import annotations

import bz2
import contextlib
import functools
import hashlib
import io
import os
import zipfile
import zlib
from pathlib import Path
from typing import NamedTuple

from .compact import compact

_PACKAGE = "jupyter_gpu_kernel"
_FOLDER = Path(__file__).resolve().parents[2]
_LOADER = f"{_PACKAGE}/agent/loader.py"
_DOCUMENTED = "/in_kernel/gpu_kernel.py"
"""The module that users call in cells: its docstrings stay."""
_NOT_SENT = "/agent/virtual_env/"
"""A program that is sent by itself, before there is an agent."""
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


@functools.cache
def pack() -> Package:
    """Return the agent and the wire as a zip: the same bytes for the same sources. They are read once, as the files may
    be removed or replaced while the hub runs."""
    stream = _compacted(_read_sources())
    build = hashlib.sha256(stream).digest()[:8]
    words = stream.decode().split("\0")
    at = words.index(_LOADER)
    loader = words[at + 1]
    del words[at : at + 2]
    main = f"{loader}\ninstall({_PACKAGE!r}, {build!r})\n{_MAIN_PY}"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in (("__main__.py", main.encode()), ("sources", "\0".join(words).encode())):
            archive.writestr(zipfile.ZipInfo(name), content)  # it is compressed as a whole when it is sent
    data = buffer.getvalue()
    install = (_FOLDER / "agent" / "install.sh").read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    return Package(f"agent-{digest[:16]}.pyz", data, install, digest)


def _read_sources() -> dict[str, str]:
    """Return the text of each module, by its path."""
    sources = {f"{_PACKAGE}/__init__.py": ""}
    for folder in ("agent", "wire"):
        for path in (_FOLDER / folder).rglob("*.py"):
            if _NOT_SENT not in path.as_posix():
                sources[f"{_PACKAGE}/{path.relative_to(_FOLDER).as_posix()}"] = path.read_text("utf-8")
    return sources


def _compacted(sources: dict[str, str]) -> bytes:
    """Return the modules, compacted, as one stream. They are kept beside the package, as Python keeps compiled ones."""
    plain = "\0".join(part for path in sorted(sources) for part in (path, sources[path]))
    kept = _FOLDER / "__pycache__" / f"agent-{hashlib.sha256(plain.encode()).hexdigest()[:32]}"
    with contextlib.suppress(OSError):
        content = kept.read_bytes()
        if hashlib.sha256(content[32:]).digest() == content[:32]:
            return content[32:]
    small = {path: compact(text, path.endswith(_DOCUMENTED)) for path, text in sources.items()}
    stream = "\0".join(part for path in sorted(small) for part in (path, small[path])).encode()
    new = kept.with_name(f"{kept.name}.{os.getpid()}")
    with contextlib.suppress(OSError):  # an installation that is another user's
        kept.parent.mkdir(exist_ok=True)
        new.write_bytes(hashlib.sha256(stream).digest() + stream)
        new.replace(kept)
        for old in set(kept.parent.glob("agent-*")) - {kept}:
            old.unlink(missing_ok=True)
    return stream
