"""Has imports come from the kernel's pinned code instead of the folder that it was pinned from.

An entry of sys.path in that folder (PYTHONPATH, a `.pth` file) is replaced. A package that is installed with
`pip install -e` from there has its folder in the checkout put first. Child processes get the same by PYTHONPATH.
"""

from __future__ import annotations

import os
import sys
from typing import Any, List, Mapping, Sequence

_VARIABLE = "PYTHONPATH"
_FINDER = "__editable__"
"""The prefix of the modules in which setuptools keeps where the packages of an editable installation are: MAPPING."""


def redirect(places: Sequence[str], tree: str) -> List[str]:
    """Redirect imports from each of the folders `places` to the same place in `tree`.

    Return the modules that were imported from there before.
    """
    paths = [_moved(path, places, tree) for path in sys.path]
    editable = [path for path in _editable_folders(places, tree) if path not in paths]
    first = 1 if paths[:1] == [""] else 0
    sys.path[:] = [*paths[:first], *editable, *paths[first:]]
    inherited = [
        _moved(path, places, tree) for path in os.environ.get(_VARIABLE, "").split(os.pathsep) if path
    ]
    moved = [path for path in sys.path if path and _is_in(path, tree) and path not in inherited]
    if moved or inherited:
        os.environ[_VARIABLE] = os.pathsep.join([*moved, *inherited])
    return sorted(name for name, module in list(sys.modules.items()) if _is_from(module, places, tree))


def _moved(path: str, places: Sequence[str], tree: str) -> str:
    """Return the corresponding place in `tree`; `path` itself if it is in none of the places, or not in the tree."""
    if not os.path.isabs(path) or _is_in(path, tree):
        return path
    for place in places:
        if _is_in(path, place):
            there = os.path.normpath(
                os.path.join(tree, os.path.relpath(os.path.realpath(path), os.path.realpath(place)))
            )
            return there if os.path.exists(there) else path
    return path


def _is_in(path: str, folder: str) -> bool:
    path, folder = os.path.realpath(path), os.path.realpath(folder)
    return path == folder or path.startswith(folder + os.sep)


def _editable_folders(places: Sequence[str], tree: str) -> List[str]:
    """The folders in `tree` of the packages that are installed from one of the places."""
    found: List[str] = []
    for name, module in list(sys.modules.items()):
        mapping: Any = getattr(module, "MAPPING", None) if name.startswith(_FINDER) else None
        if isinstance(mapping, Mapping):
            for path in map(str, mapping.values()):
                folder = os.path.dirname(_moved(path, places, tree))
                if _is_in(folder, tree) and folder not in found:
                    found.append(folder)
    return found


def _is_from(module: Any, places: Sequence[str], tree: str) -> bool:
    path = getattr(module, "__file__", None)
    return isinstance(path, str) and _moved(path, places, tree) != path
