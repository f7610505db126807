"""Packs the agent as one file, which a node's Python can run.

The modules are read as data, never imported. The file is a zip of two: `agent/loader.py` as `__main__.py`, and the
sources of its modules as one stream, which compresses better than each by itself. Its name is its hash: another
version is another file, and running kernels keep theirs.

There are two such files. The complete one has the modules for `agent job` and for `check --gpu`, too; batch scripts
bring it, and it is sent for a check. Each has all that its processes import, so neither needs the other.
"""

from __future__ import annotations

import bz2
import contextlib
import functools
import hashlib
import io
import os
import re
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ..paths import data_folder
from .compact import compact
from .short_names import given_names, shorten

_PACKAGE = "jupyter_gpu_kernel"
_FOLDER = Path(__file__).resolve().parents[2]
_LOADER = f"{_PACKAGE}/agent/loader.py"
_DOCUMENTED = "/in_kernel/gpu_kernel.py"
"""The module that users call in cells: its docstrings stay."""
_CALLED_BY_OTHERS = "/in_kernel/"
"""IPython and ipykernel call functions there: they may give parameters by name."""
_NOT_SENT = "/agent/virtual_env/"
"""A program that is sent by itself, before there is an agent."""
_COMPLETE_ONLY = re.compile("/agent/(stack/|job/(allocation|controller|facts|output|process|sockets).py)")
_PACKERS = ("agent_file", "compact", "short_names")
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


def pack(complete: bool = False) -> Package:
    """Return the agent and the wire as a zip: the same bytes for the same sources. `complete`: as above."""
    return packages()[complete]


@functools.cache
def packages() -> tuple[Package, Package]:
    """Return the file for kernels, and the complete one. The sources are read once, as they may be removed or replaced
    while the hub runs."""
    stream = _compacted(_read_sources())
    build = hashlib.sha256(stream).digest()[:8]
    words = stream.decode().split("\0")
    modules = dict(zip(words[::2], words[1::2], strict=True))
    main = f"{modules.pop(_LOADER)}\ninstall({_PACKAGE!r}, {build!r})\n{_MAIN_PY}"
    install = (_FOLDER / "agent" / "install.sh").read_bytes()
    small = {path: text for path, text in modules.items() if not _COMPLETE_ONLY.search(path)}
    return _package(main, small, install), _package(main, modules, install)


def _package(main: str, modules: dict[str, str], install: bytes) -> Package:
    sources = "\0".join(part for path, text in modules.items() for part in (path, indent_changes(text)))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in (("__main__.py", main.encode()), ("sources", sources.encode())):
            archive.writestr(zipfile.ZipInfo(name), content)  # it is compressed as a whole when it is sent
    data = buffer.getvalue()
    digest = hashlib.sha256(data).hexdigest()
    return Package(f"agent-{digest[:16]}.pyz", data, install, digest)


def indent_changes(source: str) -> str:
    """Return the source as the agent's loader expects it, which compresses better. No line is of spaces only."""
    lines = []
    level = 0
    for line in source.split("\n"):
        text = line.lstrip(" ")
        change = len(line) - len(text) - level if text else 0
        level += change
        lines.append(("\1" if change > 0 else "\2") * abs(change) + text)
    return "\n".join(lines)


def _read_sources() -> dict[str, str]:
    """Return the text of each module, by its path."""
    sources = {f"{_PACKAGE}/__init__.py": ""}
    for folder in ("agent", "wire"):
        for path in (_FOLDER / folder).rglob("*.py"):
            if _NOT_SENT not in path.as_posix():
                sources[f"{_PACKAGE}/{path.relative_to(_FOLDER).as_posix()}"] = path.read_text("utf-8")
    return sources


def _compacted(sources: dict[str, str]) -> bytes:
    """Return the modules, compacted, as one stream. They are kept beside the package, as Python keeps compiled ones, or
    in the user's folder if the package is another user's."""
    ours = (Path(__file__).with_name(f"{name}.py").read_text("utf-8") for name in _PACKERS)
    plain = "\0".join([*(part for path in sorted(sources) for part in (path, sources[path])), *ours])
    name = f"agent-{hashlib.sha256(plain.encode()).hexdigest()[:32]}"
    for kept in _places(name):
        with contextlib.suppress(OSError):
            content = kept.read_bytes()
            if hashlib.sha256(content[32:]).digest() == content[:32]:
                return content[32:]
    given = set().union(*map(given_names, sources.values()))
    small = {path: _shortened(path, text, given) for path, text in sources.items()}
    stream = "\0".join(part for path in sorted(small) for part in (path, small[path])).encode()
    for kept in _places(name):
        with contextlib.suppress(OSError):
            _keep(kept, hashlib.sha256(stream).digest() + stream)
            break
    return stream


def _places(name: str) -> Iterator[Path]:
    yield _FOLDER / "__pycache__" / name
    yield data_folder() / "__pycache__" / name


def _keep(kept: Path, content: bytes) -> None:
    """Write the file, and remove those of other versions."""
    new = kept.with_name(f"{kept.name}.{os.getpid()}")
    kept.parent.mkdir(exist_ok=True)
    new.write_bytes(content)
    new.replace(kept)
    for old in set(kept.parent.glob("agent-*")) - {kept}:
        old.unlink(missing_ok=True)


def _shortened(path: str, text: str, given: set[str]) -> str:
    if path.endswith(_DOCUMENTED):
        return compact(text, docstrings=True)
    return shorten(compact(text), given, parameters=_CALLED_BY_OTHERS not in path)
