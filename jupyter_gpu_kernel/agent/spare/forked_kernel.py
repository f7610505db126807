"""What a process does, after it was forked from a spare interpreter, to be as one that was started for its kernel."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any, Dict, List, NamedTuple, Optional

from ...wire.fields import FieldError, items, text
from ..exit.descendants import ROOT, TAG
from ..in_kernel import main as kernel_main
from .proc_title import ProcTitle

_MAX_TEXT = 1 << 20


class KernelStart(NamedTuple):
    """How a kernel is to be started. `command`: as it is shown, with the arguments of ipykernel behind `skip` words;
    `output`, `fds`: descriptors, of which each variable in `fds` names one."""

    command: List[str]
    skip: int
    cwd: str
    env: Dict[str, str]
    output: int
    fds: Dict[str, int]

    def request(self) -> Dict[str, Any]:
        """The request for it, without the descriptors: `[output, *fds.values()]`."""
        return {**self._asdict(), "output": 0, "fds": list(self.fds)}

    @classmethod
    def read(cls, request: Dict[str, Any], fds: List[int]) -> KernelStart:
        """Read a request that came with these descriptors. Raises FieldError if it is malformed."""
        command, names = items(request, "command", 100, least=4), items(request, "fds", 3)
        env = request.get("env")
        skip = request.get("skip")
        if not isinstance(env, dict) or len(fds) != len(names) + 1 or not isinstance(skip, int):
            raise FieldError("no environment, or other descriptors")
        texts = [*command, *names, *env, *env.values()]
        if not all(isinstance(one, str) and "\0" not in one for one in texts):
            raise FieldError("a word that is no text")
        cwd = text(request, "cwd", most=_MAX_TEXT)
        return cls(command, skip, cwd, env, fds[0], dict(zip(names, fds[1:])))

    @property
    def shown_variables(self) -> Dict[str, str]:
        """The variables by which others find the processes of the kernel."""
        return {name: self.env[name] for name in (TAG, ROOT) if name in self.env}


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
    """Give random generators that were seeded before the fork other seeds; those of `random` have them already."""
    numpy_random: Any = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        torch.default_generator.seed()
