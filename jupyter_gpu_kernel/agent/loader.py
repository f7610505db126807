"""The agent's `__main__` on a node: imports its modules from the one file that was sent, and keeps them compiled.

    <root>/agent-<hash>.pyz                     a zip with this module, and all others' sources as one stream
    <root>/agent-<hash>.pyz.cpython-311/        those that a Python of this version has imported, compiled

A compiled module is used only if it is the user's own file, whole, and from this agent and this Python. Otherwise it is
compiled again. Where it cannot be stored, the next process compiles it again.
"""

from __future__ import annotations

import contextlib
import marshal
import os
import stat
import sys
import zlib
from importlib.machinery import ModuleSpec
from importlib.util import MAGIC_NUMBER
from typing import TYPE_CHECKING, Any, Callable, Dict, Optional, Tuple

if TYPE_CHECKING:
    from types import CodeType, ModuleType

SOURCES = "sources"
"""The zip's member with all modules: path, NUL, source, NUL, path …"""


class AgentImporter:
    """Finds and loads the modules of one package (`package`): no others."""

    def __init__(self, archive: str, package: str, build: bytes, read: Callable[[str], bytes]) -> None:
        """`build`: what tells this agent's compiled modules from another's; `read` returns a member of the zip."""
        self.package = package
        self._archive = archive
        self._read = read
        self._cache = "%s.%s" % (archive, sys.implementation.cache_tag)
        self._mark = build + MAGIC_NUMBER
        self._sources: Optional[Dict[str, str]] = None

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Optional[ModuleSpec]:
        """Return the spec of a module of ours, None for others. Python calls this."""
        if name.partition(".")[0] != self.package:
            return None
        code = self._stored(name) or self._compiled(name)
        if code is None:
            return None
        file = code.co_filename
        is_package = file.endswith("/__init__.py")
        loader: Any = self
        spec = ModuleSpec(name, loader, origin=file, loader_state=code, is_package=is_package)
        if spec.submodule_search_locations is not None:
            spec.submodule_search_locations.append(os.path.dirname(file))
        spec.has_location = True
        return spec

    def create_module(self, spec: ModuleSpec) -> None:
        """Leave that to Python."""

    def exec_module(self, module: ModuleType) -> None:
        """Run the module's code. Python calls this after `find_spec`."""
        spec: Any = module.__spec__
        code, spec.loader_state = spec.loader_state, None  # it is not needed again, and large
        exec(code, module.__dict__)

    def get_source(self, name: str) -> Optional[str]:
        """Return the module's source, for the lines of tracebacks."""
        return self._find_source(name)[1]

    def _find_source(self, name: str) -> Tuple[str, Optional[str]]:
        if self._sources is None:
            words = self._read(SOURCES).decode().split("\0")
            self._sources = dict(zip(words[::2], words[1::2]))
        path = name.replace(".", "/")
        for file in (path + ".py", path + "/__init__.py"):
            if file in self._sources:
                return file, self._sources[file]
        return "", None

    def _compiled(self, name: str) -> Optional[CodeType]:
        file, source = self._find_source(name)
        if source is None:
            return None
        code: CodeType = compile(
            source, "%s/%s" % (self._archive, file), "exec", dont_inherit=True, optimize=0
        )
        with contextlib.suppress(OSError):  # a full disk
            self._store(name, marshal.dumps(code))
        return code

    def _store(self, name: str, data: bytes) -> None:
        with contextlib.suppress(FileExistsError):
            os.mkdir(self._cache, 0o700)
        if not _is_private(self._cache):
            return
        path = "%s/%s" % (self._cache, name)
        new = "%s.%d" % (path, os.getpid())
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with open(fd, "wb") as file:
                file.write(self._sum(data) + data)
            os.replace(new, path)
        except OSError:
            os.unlink(new)
            raise

    def _stored(self, name: str) -> Optional[CodeType]:
        content = b""
        with contextlib.suppress(OSError):  # also when read: on NFS another node may just have replaced it
            if _is_private(self._cache):
                content = _read_own("%s/%s" % (self._cache, name))
        sum, data = content[:4], content[4:]
        if sum != self._sum(data):
            return None
        code: CodeType = marshal.loads(data)
        return code

    def _sum(self, data: bytes) -> bytes:
        return zlib.crc32(data, zlib.crc32(self._mark)).to_bytes(4, "big")


def _is_private(folder: str) -> bool:
    """Whether this is a folder, not a link to one, in which only this user can write. Raises OSError."""
    info = os.lstat(folder)
    return stat.S_ISDIR(info.st_mode) and info.st_uid == os.geteuid() and not info.st_mode & 0o022


def _read_own(path: str) -> bytes:
    """Return what is in this file; nothing, if it is not a regular file of this user. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode) or info.st_uid != os.geteuid():
            return b""
        with open(fd, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(fd)


def install(package: str, build: bytes) -> None:
    """Import the modules of the package from the zip that this process runs from, from now on."""
    zip_loader: Any = sys.modules["__main__"].__spec__.loader  # type: ignore[union-attr]
    archive = os.path.abspath(zip_loader.archive)
    sys.meta_path.insert(0, AgentImporter(archive, package, build, zip_loader.get_data))
