"""Whether the shell behind a command can be used: bytes pass at once, and processes behind the command outlive it."""

from __future__ import annotations

import re

from ..transport.stream import CommandStream
from . import command_errors

PATIENCE = 15.0
"""Seconds within which the first bytes must pass."""
_TIMEOUT = 30.0  # seconds for the rest
_READY = re.compile(b"jupyter-gpu-kernel: ready")
_END = re.compile(b"jupyter-gpu-kernel: end")
_ASK = b"""printf %s 'jupyter-gpu-kernel: ready'; read -r next; \
echo; echo "$$ $PPID"; cat /proc/1/stat "/proc/$$/stat"; printf 'jupyter-gpu-kernel: %s' end
"""
_STARTED = re.compile(
    r"\) \S(?: -?\d+){18} (\d{1,18}) [^)]*$"
)  # in /proc/PID/stat: clock ticks after the boot
_NEW = 1000  # clock ticks, ten seconds


def check_shell(stream: CommandStream, hop: str, patience: float) -> None:
    """Raise ConnectError if the shell cannot be used. `hop`: what messages call the command."""
    _, ready, _ = stream.ask(_ASK, _READY, patience)
    if ready is None:
        raise command_errors.held_back(hop, patience)
    answer, _, _ = stream.ask(b"\n", _END, _TIMEOUT)
    if _began_with_its_processes(answer.decode(errors="replace").strip()):
        raise command_errors.short_lived(hop)


def _began_with_its_processes(origin: str) -> bool:
    """Whether the command has begun a PID namespace, all of whose processes end with it: its process 1 is the shell, or
    the shell's parent and as new. `origin`: the shell's and its parent's id, and both /proc/PID/stat."""
    ids, *stats = origin.splitlines() or [""]
    started = [int(found[1]) for stat in stats if (found := _STARTED.search(stat))]
    is_new = len(started) == 2 and started[1] - started[0] < _NEW
    return ids.startswith("1 ") or (ids.endswith(" 1") and is_new)
