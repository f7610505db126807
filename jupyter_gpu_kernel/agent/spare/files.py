"""Notices that a Python environment, or a package's settings, have changed on disk since modules were imported."""

from __future__ import annotations

import os
import site
import sys
import sysconfig
from typing import Dict, Optional, Sequence, Set, Tuple

from ..paths import agent_command, agent_folder

_Mark = Optional[Tuple[int, int, int]]
_ENDS = ("", "rc", "_config")
_MOST = 100
"""Files that are looked at in the folder with a package's settings."""


class EnvironmentFiles:
    """The interpreter, its settings, the folders of packages (installing one changes the time of its folder), the files
    of imported modules (which an editor may change in place), and the settings that packages read when imported."""

    def __init__(self) -> None:
        self._marks: Dict[str, _Mark] = {}
        self._settings: Dict[str, _Mark] = {}
        self._packages: Set[str] = set()
        self.add_imported()

    def add_imported(self, packages: Sequence[str] = ()) -> None:
        """Watch the modules that have been imported meanwhile, too, and the settings of these packages."""
        modules = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
        files = {file for file in modules if isinstance(file, str)}
        folders = self._paths() | {os.path.dirname(file) for file in files}
        for path in folders | files | _path_files():
            if not _is_of_agent(path):  # keepers change the times of those
                self._marks.setdefault(path, _mark(path))
        self._packages.update(packages)
        self._settings = _settings(self._packages)

    def changed(self) -> bool:
        """Whether a file is not as it was when it was added, or the agent itself is gone."""
        agent = agent_folder()
        if (agent and not agent.exists()) or _settings(self._packages) != self._settings:
            return True
        return any(_mark(path) != mark for path, mark in self._marks.items())

    def _paths(self) -> Set[str]:
        paths = {os.path.realpath(sys.executable), os.path.join(sys.prefix, "pyvenv.cfg"), sys.prefix}
        paths.update(entry for entry in sys.path if entry)
        paths.update(sysconfig.get_paths().values())
        if site.ENABLE_USER_SITE:
            paths.add(site.getusersitepackages())
        return paths


def environment_mark() -> str:
    """A text that changes with the agent, the interpreter, and the packages that are installed in its environment."""
    paths = [sysconfig.get_path(name) for name in ("purelib", "platlib")]
    marks = [_mark(path) for path in (*paths, site.getusersitepackages(), os.path.realpath(sys.executable))]
    return repr([agent_command(""), sys.version, marks])


def _is_of_agent(path: str) -> bool:
    """Return whether this path is the agent's folder, or in it."""
    return f"{path}/".startswith(f"{agent_folder()}/")


def shadows(folder: str, names: Set[str]) -> bool:
    """Whether something in the folder, where kernels look first, has the name of one of these modules, or of its
    settings."""
    return any(_is_of_package(entry, names) for entry in os.listdir(folder))


def _is_of_package(entry: str, packages: Set[str]) -> bool:
    """Whether a file or folder has the name of one of these packages, or of its settings: "matplotlibrc"."""
    stem = entry.lstrip(".").partition(".")[0]
    return any(stem.endswith(end) and stem[: len(stem) - len(end)] in packages for end in _ENDS)


def _path_files() -> Set[str]:
    """The files that change sys.path when Python starts."""
    return {
        os.path.join(folder, name)
        for folder in sys.path
        for name in _entries(folder)
        if name.endswith(".pth")
    }


def _settings(packages: Set[str]) -> Dict[str, _Mark]:
    """The settings of these packages below the user's home, where packages look for them when they are imported."""
    home = os.path.expanduser("~")
    config = os.environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
    found: Set[str] = set()
    for folder in (home, config) if packages else ():
        names = [name for name in _entries(folder) if folder == config or name.startswith(".")]
        found.update(os.path.join(folder, name) for name in names if _is_of_package(name, packages))
    found.update([os.path.join(path, name) for path in found for name in _entries(path)[:_MOST]])
    return {path: _mark(path) for path in found}


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
