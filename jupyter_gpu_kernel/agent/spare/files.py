"""Notices that a Python environment has changed on disk since modules were imported."""

from __future__ import annotations

import os
import site
import sys
import sysconfig
from typing import Dict, Optional, Sequence, Set, Tuple

from ..paths import agent_folder

_Mark = Optional[Tuple[int, int, int]]


class EnvironmentFiles:
    """The interpreter, its settings, the folders of packages (installing one changes the time of its folder), and the
    files of imported modules (which an editor may change in place)."""

    def __init__(self) -> None:
        self._marks: Dict[str, _Mark] = {}
        self.add_imported()

    def add_imported(self) -> None:
        """Watch the modules that have been imported meanwhile, too."""
        modules = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
        files = {file for file in modules if isinstance(file, str)}
        folders = self._paths() | {os.path.dirname(file) for file in files}
        for path in folders | files | _path_files():
            if not _is_of_agent(path):  # keepers change the times of those
                self._marks.setdefault(path, _mark(path))

    def changed(self) -> bool:
        """Whether a file is not as it was when it was added, or the agent itself is gone."""
        agent = agent_folder()
        is_gone = agent is not None and not agent.exists()
        return is_gone or any(_mark(path) != mark for path, mark in self._marks.items())

    def _paths(self) -> Set[str]:
        paths = {os.path.realpath(sys.executable), os.path.join(sys.prefix, "pyvenv.cfg"), sys.prefix}
        paths.update(entry for entry in sys.path if entry)
        paths.update(sysconfig.get_paths().values())
        if site.ENABLE_USER_SITE:
            paths.add(site.getusersitepackages())
        return paths


def _is_of_agent(path: str) -> bool:
    """Return whether this path is the agent's folder, or in it."""
    return f"{path}/".startswith(f"{agent_folder()}/")


def _path_files() -> Set[str]:
    """The files that change sys.path when Python starts."""
    return {
        os.path.join(folder, name)
        for folder in sys.path
        for name in _entries(folder)
        if name.endswith(".pth")
    }


def _entries(folder: str) -> Sequence[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:  # it is no folder
        return []


def _mark(path: str) -> _Mark:
    try:
        info = os.stat(path)
    except OSError:
        return None
    return info.st_mtime_ns, info.st_ino, info.st_size
