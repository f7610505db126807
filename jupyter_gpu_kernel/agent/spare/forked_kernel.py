"""What a process does, after it was forked from a spare interpreter, to be as one that was started for its kernel."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any, Dict, Optional

from ..in_kernel import main as kernel_main
from .kernel_start import KernelStart
from .proc_title import ProcTitle


def become_kernel(start: KernelStart, title: ProcTitle, changes: Dict[str, Optional[str]]) -> None:
    """Turn this process into the kernel, and run it until it ends. The process has a session of its own by now.

    `changes`: the variables that imported modules have set, or deleted (None).
    """
    title.change(start.command, start.shown_variables)
    null = os.open(os.devnull, os.O_RDWR)
    for target, fd in ((0, null), (1, start.output), (2, start.output)):
        os.dup2(fd, target)
    os.close(null)
    os.close(start.output)
    os.chdir(start.cwd)
    os.environ.clear()
    os.environ.update(start.env)
    for variable, value in changes.items():
        if value is None:
            os.environ.pop(variable, None)
        else:
            os.environ[variable] = value
    for variable, fd in start.fds.items():
        os.environ[variable] = str(fd)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if hasattr(sys, "orig_argv"):
        sys.orig_argv = list(start.command)
    reseed()
    kernel_main.run(start.command[start.skip :])


def reseed() -> None:
    """Give random generators that were seeded before the fork other seeds, and multiprocessing another key. Those of
    `random` have other seeds already."""
    processes: Any = sys.modules.get("multiprocessing.process")
    if processes is not None:
        processes.current_process().authkey = os.urandom(32)
    numpy_random: Any = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        torch.default_generator.seed()
