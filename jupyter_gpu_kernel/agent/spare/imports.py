"""What a spare interpreter imports before it forks kernels, and whether it can fork kernels afterwards."""

from __future__ import annotations

import builtins
import contextlib
import gc
import importlib
import os
import signal
import sys
import weakref
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List

from ..in_kernel import main as kernel_main
from ..system import procfs
from .usual_packages import is_installed

_LATE = (
    *("IPython.core.completerlib", "IPython.core.debugger", "IPython.core.logger", "IPython.core.oinspect"),
    *("IPython.extensions.storemagic", "sqlite3", "tornado.platform.asyncio"),
)
"""Modules that ipykernel and IPython import only when a kernel starts, as far as a version has them."""
_SLOW = 120.0
"""Seconds that the import of one package may take."""
_HARMLESS = {"/dev/null", "/dev/random", "/dev/urandom"}
_MOST_MIB = 1024
"""The memory that the process may use after its imports."""


def import_kernel() -> None:
    """Import what every kernel imports, with the same settings as a kernel does."""
    kernel_main.restore_path()
    kernel_main.disable_debugger()
    importlib.import_module("ipykernel.kernelapp")
    for name in _LATE:
        with contextlib.suppress(Exception):  # another version; a kernel would fail by itself
            importlib.import_module(name)


def import_package(name: str, now: Callable[[], float]) -> str:
    """Import a package as a cell of a kernel would. Return "" if kernels can be forked from this process after that, or
    what is wrong; then this process cannot be used any more."""
    before, inherited, began = list(sys.modules.values()), _inherited(), now()
    with _as_in_a_kernel() as asked:
        try:
            importlib.import_module(name)
        except BaseException as error:  # a package may even call sys.exit()
            return f"{type(error).__name__}: {error}"
    _end_thread_pools()
    if asked:
        return "it asks for the shell of IPython"
    if now() - began > _SLOW:
        return "its import takes too long"
    if not is_installed(sys.modules.get(name)):
        return "it is not installed in this environment"
    known = set(map(id, before))  # multiprocessing gives `__main__` a second name
    others = [one for one, module in sys.modules.items() if id(module) not in known and _is_outside(module)]
    if others:
        return f"it imports {others[0]}, which is not a part of this environment"
    if _resident_mib() > _MOST_MIB:
        return "it uses too much memory"
    return is_clean() or next((what for what, had in _inherited().items() if had != inherited[what]), "")


def is_clean() -> str:
    """Return "" if this process may fork kernels, or what it has that no fork may inherit."""
    if len(os.listdir("/proc/self/task")) > 1:
        return "it has several threads"
    if procfs.has_opened_gpus(os.getpid()):
        return "it has opened a GPU"
    if signal.getsignal(signal.SIGINT) != signal.default_int_handler:
        return "an imported module handles interrupts"
    return ""


def _inherited() -> Dict[str, Any]:
    """What all kernels would share, or would not have as if they had imported the package themselves."""
    children = Path(f"/proc/self/task/{os.getpid()}/children")  # not all systems have it
    return {
        "it has started a process": children.read_text() if children.exists() else "",
        "it handles signals": [signal.getsignal(number) for number in sorted(signal.valid_signals())],
        "it keeps a file or a connection open": sorted(set(procfs.open_files(os.getpid())) - _HARMLESS),
    }


@contextlib.contextmanager
def _as_in_a_kernel() -> Iterator[List[str]]:
    """Let modules find what they find in a kernel. They may ask whether there is a shell with a kernel, as pandas does.
    If one uses or keeps the shell, which does not exist yet, the list gets a line."""
    asked: List[str] = []
    shell: Any = importlib.import_module("IPython.core.interactiveshell").InteractiveShell
    names: Any = builtins

    class ZMQInteractiveShell:
        kernel = None

        def __getattr__(self, name: str) -> Any:
            asked.append(name)
            raise AttributeError(name)

    shells: List[ZMQInteractiveShell] = [ZMQInteractiveShell()]
    kept = weakref.ref(shells[0])

    def get_ipython() -> Any:
        return shells[0]

    def is_initialized(cls: Any) -> bool:
        asked.append("IPython.get_ipython")
        return False

    os.environ.setdefault("MPLBACKEND", "module://matplotlib_inline.backend_inline")  # as ipykernel does
    shell.initialized = classmethod(is_initialized)
    names.get_ipython = get_ipython
    sys.ps1 = "In : "
    sys.path.insert(0, "")
    try:
        yield asked
    finally:
        sys.path.remove("")
        del shell.initialized, names.get_ipython, sys.ps1
        shells.clear()
        gc.collect()
        if kept() is not None:
            asked.append("kept")


def _end_thread_pools() -> None:
    """Libraries that are made for forks, such as OpenBLAS, end their threads before one, and start them when they are
    needed. The threads of others remain."""
    if len(os.listdir("/proc/self/task")) > 1:
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)


def _is_outside(module: Any) -> bool:
    """Whether the module's file is neither in the environment nor in the Python that it was made from. A module that
    another one has made, such as torch.classes, may have any name in place of a path."""
    file = getattr(module, "__file__", None)
    folders = tuple(os.path.realpath(prefix) + os.sep for prefix in (sys.prefix, sys.base_prefix))
    return isinstance(file, str) and os.path.isabs(file) and not os.path.realpath(file).startswith(folders)


def _resident_mib() -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE") / (1 << 20)
