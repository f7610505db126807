"""The packages that this user's kernels usually use, by the kernels' own record, for one Python on this node.

    <root>/spare/modules-<hash of the Python>.json   {"kernels": [[name, …], …], "rejected": {name: why}, "where": …}

When a kernel ends, it records the packages that its user's variables come from. A spare interpreter imports those that
at least half of the last kernels used, and rejects what is not fit for that. Of two kernels that end at once, one
record may be lost. To find the packages, no code of the user or of a package runs.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import site
import sys
import sysconfig
import types
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping

from ...wire.fields import FieldError, load_object
from ...wire.files import replace_file

MODULES_VARIABLE = "JUPYTER_GPU_KERNEL_MODULES"
"""The variable with the path of the file, in the environment of kernels and spare interpreters."""
_FOLDER = "spare"
_KERNELS = 8
_NAMES = 30
_REJECTED = 2 * _NAMES
"""At least half of a number of kernels can have this many names in common: none that is usual is forgotten."""
_LENGTH = 64
_MAX_FILE = 1 << 16
_SHELL = "IPython"  # some of every kernel's variables come from it
_MOST = 10_000
"""Variables that are looked at."""
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType)


def modules_file(root: Path, python: str) -> Path:
    """The file of this Python. `root`: the agent's folder."""
    return root / _FOLDER / f"modules-{hashlib.sha256(python.encode()).hexdigest()[:12]}.json"


class UsualPackages:
    """The content of the file. Nothing here raises an error for a file that is missing or damaged."""

    def __init__(self, path: Path, environment: str = "") -> None:
        """`environment`: what was rejected in another one is forgotten, see `spare.files.environment_mark`; "": any."""
        self._path = path
        self._environment = environment

    def usual(self) -> List[str]:
        """The packages that at least half of the last kernels used, and that were not rejected."""
        content = self._read()
        kernels = content["kernels"]
        names = dict.fromkeys(name for kernel in reversed(kernels) for name in kernel)
        counts = {name: sum(name in kernel for kernel in kernels) for name in names}
        usual = [name for name in names if 2 * counts[name] >= len(kernels)]
        return sorted([name for name in usual if name not in content["rejected"]][:_NAMES])

    def record(self, names: List[str]) -> None:
        """A kernel that used these packages ends."""
        content = self._read()
        kernels = [*content["kernels"], [name for name in names if _is_name(name)][:_NAMES]][-_KERNELS:]
        self._write({**content, "kernels": kernels})

    def reject(self, name: str, why: str) -> bool:
        """Do not import this package again. Return whether that was stored."""
        content = self._read()
        rejected = {**content["rejected"], name: why[:_LENGTH]}
        kept = dict(list(rejected.items())[-_REJECTED:])
        return self._write({**content, "rejected": kept, "where": self._environment})

    def _read(self) -> Mapping[str, Any]:
        try:
            with open(str(self._path), "rb") as file:
                found = load_object(file.read(_MAX_FILE))
        except (OSError, FieldError):
            found = {}
        kernels, rejected = found.get("kernels"), found.get("rejected")
        if self._environment not in ("", found.get("where")):
            rejected = {}
        lists = [one for one in kernels if isinstance(one, list)] if isinstance(kernels, list) else []
        return {
            "kernels": [[name for name in one if _is_name(name)][:_NAMES] for one in lists][-_KERNELS:],
            "rejected": rejected if isinstance(rejected, dict) else {},
            "where": found.get("where"),
        }

    def _write(self, content: Dict[str, Any]) -> bool:
        try:
            replace_file(self._path, json.dumps(content).encode())
        except OSError:  # a full disk
            return False
        return True


def _is_name(name: Any) -> bool:
    return isinstance(name, str) and name.isidentifier() and len(name) <= _LENGTH


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
