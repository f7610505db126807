"""Notices that a Python environment has changed on disk since modules of it were imported."""

from __future__ import annotations

import os
import site
import sys
import sysconfig
from typing import Dict, Optional, Set, Tuple

from ..paths import archive

_Mark = Optional[Tuple[int, int, int]]


class EnvironmentFiles:
    """The interpreter, its settings, and the folders of packages: installing one changes the time of its folder."""

    def __init__(self) -> None:
        self._marks: Dict[str, _Mark] = {}
        self.add_imported()

    def add_imported(self) -> None:
        """Watch the folders of the modules that have been imported meanwhile, too."""
        for path in sorted(self._paths()):
            self._marks.setdefault(path, _mark(path))

    def changed(self) -> bool:
        """Whether anything is not as it was when it was added, or the agent's own file is gone."""
        if not all(path.exists() for path in archive()):
            return True
        return any(_mark(path) != mark for path, mark in self._marks.items())

    def _paths(self) -> Set[str]:
        paths = {os.path.realpath(sys.executable), os.path.join(sys.prefix, "pyvenv.cfg"), sys.prefix}
        paths.update(entry for entry in sys.path if entry)
        paths.update(sysconfig.get_paths().values())
        if site.ENABLE_USER_SITE:
            paths.add(site.getusersitepackages())
        files = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
        paths.update(os.path.dirname(file) for file in files if isinstance(file, str))
        return paths - set(map(str, archive()))  # whose time changes with each start of a keeper


def _mark(path: str) -> _Mark:
    try:
        info = os.stat(path)
    except OSError:
        return None
    return info.st_mtime_ns, info.st_ino, info.st_size
