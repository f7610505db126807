"""Which packages the user's variables come from. No code of the user or of a package runs here."""

from __future__ import annotations

import itertools
import os
import site
import sys
import sysconfig
import types
from typing import Any, Iterator, List, Mapping

_SHELL = "IPython"  # some of every kernel's variables come from it
_MOST = 10_000
"""Variables that are looked at."""
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType)


def used_packages(variables: Mapping[str, Any]) -> List[str]:
    """Return the top-level packages, installed into this Python environment, that these variables come from."""
    names = dict.fromkeys(name for value in _first(variables) for name in _origins(value))
    return [name for name in names if name != _SHELL and is_installed(sys.modules.get(name))]


def is_installed(module: Any) -> bool:
    """Whether the module lies in a folder into which packages of this environment are installed."""
    file = getattr(getattr(module, "__spec__", None), "origin", None)
    paths = sysconfig.get_paths()
    found = {paths["purelib"], paths["platlib"], *site.getsitepackages()}
    folders = {os.path.realpath(folder) + os.sep for folder in found}
    return isinstance(file, str) and os.path.realpath(file).startswith(tuple(folders))


def _first(variables: Mapping[str, Any]) -> List[Any]:
    return list(itertools.islice(variables.values(), _MOST))


def _origins(value: Any) -> Iterator[str]:
    """The packages of a module, class or function, or of the class of another object."""
    kind = type(value)  # isinstance() would ask the object itself
    name: Any
    if issubclass(kind, types.ModuleType):
        name = types.ModuleType.__getattribute__(value, "__dict__").get("__name__")
    elif issubclass(kind, _FUNCTIONS):
        name = value.__module__
    else:
        name = type.__getattribute__(value if issubclass(kind, type) else kind, "__module__")
    if isinstance(name, str):
        yield name.partition(".")[0]
