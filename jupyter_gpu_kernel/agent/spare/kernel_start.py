"""How a kernel is to be started: what a keeper asks the spare interpreter for."""

from __future__ import annotations

import os
from typing import Any, Dict, List, NamedTuple

from ...wire.fields import FieldError, items, text
from ..exit.descendants import ROOT, TAG
from ..gpus.devices.visible_devices import AMD, NVIDIA

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
        cwd = text(request, "cwd", most=_MAX_TEXT)
        if not all(map(_is_word, [*texts, cwd])):
            raise FieldError("a word that is no text")
        return cls(command, skip, cwd, env, fds[0], dict(zip(names, fds[1:])))

    @property
    def shown_variables(self) -> Dict[str, str]:
        """The variables by which others find the processes of the kernel, and see which GPUs it has."""
        return {name: self.env[name] for name in (TAG, ROOT, NVIDIA, AMD) if name in self.env}


def _is_word(one: Any) -> bool:
    """Whether a program can be given this as an argument."""
    try:
        return isinstance(one, str) and b"\0" not in os.fsencode(one)
    except UnicodeEncodeError:
        return False
