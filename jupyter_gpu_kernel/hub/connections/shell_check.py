"""Whether the shell behind a command can be used: bytes pass at once, and its processes outlive the command."""

from __future__ import annotations

import contextlib
import re
import threading

from ...wire.frames import MAX_NOISE
from ..transport.short_command import run_to_end
from ..transport.stream import READ_SIZE, CommandStream
from . import command_errors

PATIENCE = 15.0
"""Seconds within which the first bytes must pass."""
_TIMEOUT = 30.0  # seconds for the rest
_READY = b"jupyter-gpu-kernel: ready"
_ASK = (
    b"printf '%s' '" + _READY + b'\'; read -r next; echo; echo "$$ $PPID"; cat /proc/1/stat "/proc/$$/stat"\n'
)
_STARTED = re.compile(
    r"\) \S(?: -?\d+){18} (\d{1,18}) [^)]*$"
)  # in /proc/PID/stat: clock ticks after the boot
_NEW = 1000  # clock ticks, ten seconds


def check_shell(stream: CommandStream, hop: str, patience: float = PATIENCE) -> None:
    """Raise ConnectError if the shell cannot be used; close the stream. `hop`: what messages call the command."""
    expired = threading.Event()

    def expire() -> None:
        expired.set()
        stream.close()

    timer = threading.Timer(patience, expire)
    timer.daemon = True
    timer.start()
    received, searched = bytearray(), 0
    try:
        with contextlib.suppress(OSError):  # it has ended: there is nothing to read
            stream.write(_ASK)
        while received.find(_READY, searched) < 0:
            data = stream.read(READ_SIZE) if len(received) < MAX_NOISE else b""
            if not data or expired.is_set():  # at its end, a command may pass on what it has held back
                stream.close()
                raise command_errors.held_back(hop, patience)
            searched = max(0, len(received) - len(_READY))
            received += data
    finally:
        timer.cancel()
    answer = run_to_end(stream, b"\n", _TIMEOUT, hop, "/bin/sh")
    if _began_with_its_processes(answer.stdout.decode(errors="replace").strip()):
        raise command_errors.short_lived(hop)


def _began_with_its_processes(origin: str) -> bool:
    """Whether the command has begun a PID namespace, all of whose processes end with it: its process 1 is the shell, or
    the shell's parent and as new. `origin`: the shell's and its parent's id, and both /proc/PID/stat."""
    ids, *stats = origin.splitlines() or [""]
    started = [int(found[1]) for stat in stats if (found := _STARTED.search(stat))]
    is_new = len(started) == 2 and started[1] - started[0] < _NEW
    return ids.startswith("1 ") or (ids.endswith(" 1") and is_new)
