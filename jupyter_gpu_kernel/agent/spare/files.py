"""Notices that the Python environment has changed on disk since modules were imported."""

from __future__ import annotations

import os
import site
import sys
from typing import Optional, Set, Tuple

from ..paths import agent_folder

_Mark = Optional[Tuple[int, int, int]]


class EnvironmentFiles:
    """The interpreter, the folders of packages (installing one changes the time of its folder), and the files of
    imported modules (which an editor may change in place), as they are when this object is created."""

    def __init__(self) -> None:
        self._marks = {path: _mark(path) for path in _paths() if not _is_of_agent(path)}

    def changed(self) -> bool:
        """Whether a file is not as it was, or the agent itself is gone."""
        agent = agent_folder()
        is_gone = agent is not None and not agent.exists()
        return is_gone or any(_mark(path) != mark for path, mark in self._marks.items())


def _paths() -> Set[str]:
    modules = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    files = {file for file in modules if isinstance(file, str)}
    paths = {os.path.realpath(sys.executable), os.path.join(sys.prefix, "pyvenv.cfg"), sys.prefix}
    if site.ENABLE_USER_SITE:
        paths.add(site.getusersitepackages())
    return paths | files | {os.path.dirname(file) for file in files} | {entry for entry in sys.path if entry}


def _is_of_agent(path: str) -> bool:
    """Return whether this path is the agent's folder, or in it: keepers change the times of those files."""
    return f"{path}/".startswith(f"{agent_folder()}/")


def _mark(path: str) -> _Mark:
    try:
        info = os.stat(path)
    except OSError:
        return None
    return info.st_mtime_ns, info.st_ino, info.st_size
