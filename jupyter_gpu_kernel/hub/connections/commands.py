"""Commands as hops: `ssh gpu2`, `docker exec -i box`, `srun --overlap --jobid=17`.

Each is run on the hop before it, followed by `/bin/sh`, and its stdin and stdout lead to that shell. The shell prints a
mark as soon as it runs; so what the command itself prints before is recognised, and a command that fails is named.
The last shell must be of use: bytes pass at once, and processes behind the commands outlive the commands.
"""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ...errors import ConnectError
from ...wire.stream.frames import MAX_NOISE
from ..transport.connection import SHELL, Connection, Steps, timed_step
from ..transport.stream import CommandStream
from . import command_errors

_OPEN_TIMEOUT = 60.0  # seconds for all commands: an image may have to be unpacked first
_MARK = ("jupyter-gpu-kernel: ", "shell")  # in two parts, since a terminal would echo the line that prints it
_MARK_LINE = re.compile(
    b"\n%s([\r\n])" % "".join(_MARK).encode()
)  # a terminal ends it with a carriage return
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


class CommandConnection(Connection):
    """A connection that leads on from another one through one or more commands. The connection is as
    alive as the connection before the commands."""

    def __init__(
        self,
        before: Connection,
        labels: Sequence[str],
        commands: Sequence[str],
        progress: Callable[[str, str], None],
        patience: float = PATIENCE,
    ) -> None:
        """Run each command once, to try it. Raises ConnectError that names the command which fails, or behind which no
        kernel can be used. `labels`: what messages call the commands. `patience`: as in `check_shell`."""
        super().__init__(labels[-1], before.transport)
        self._before = before
        self._hops = [
            _CommandHop(label, shlex.join([*shlex.split(command), SHELL]))
            for label, command in zip(labels, commands, strict=True)
        ]
        self.steps, self.host_keys = list(before.steps), before.host_keys
        with contextlib.closing(self._run(SHELL, self.steps, progress)) as stream:
            try:
                check_shell(stream, self.label, patience)
            except ConnectError as error:
                error.steps = self.steps
                raise

    @property
    def interactive(self) -> bool:
        """Whether the user typed a secret for the connection before the commands."""
        return self._before.interactive

    def open(self, command: str) -> CommandStream:
        """Run another command in the shell to which the last command of this connection leads."""
        return self._run(command, [], lambda hop, step: None)

    def alive(self) -> bool:
        """Whether the connection before the commands is."""
        return self._before.alive()

    def responds(self, within: float) -> bool:
        """Whether the machine on which the first command runs answers."""
        return self._before.responds(within)

    def close(self) -> None:
        """Close the connection before the commands, which ends the commands."""
        super().close()
        self._before.close()

    def _run(self, command: str, steps: Steps, progress: Callable[[str, str], None]) -> CommandStream:
        """Run the commands, each in the shell behind the one before, and `command` behind the last one. Append the time
        of each to `steps`."""
        lines = [*(hop.line for hop in self._hops[1:]), "" if command == SHELL else command]
        stream: CommandStream | None = None
        for hop, following in zip(self._hops, lines, strict=True):
            with timed_step(steps, hop.label, "run", progress):
                stream = stream or self._before.open(hop.line)
                _enter(stream, hop, following)
        assert stream is not None
        return stream


class _CommandHop(NamedTuple):
    """One command: its name in messages, and the command line that gives a shell behind the command."""

    label: str
    line: str


def _enter(stream: CommandStream, hop: _CommandHop, following: str) -> None:
    """Wait until the shell behind the command runs; it then becomes the command line `following`, if there is one.
    Close the stream if that fails.

    Both are sent as one line, which the shell reads as a whole: a shell may read more than it runs, and what comes
    after the mark is meant for the next one."""
    line = shlex.join(["printf", r"\n%s%s\n", *_MARK]) + (f"; exec {following}" if following else "")
    try:
        received, found, expired = stream.ask(f"{line}\n".encode(), _MARK_LINE, _OPEN_TIMEOUT)
        if found is None:
            raise _failed(stream, hop, received, expired)
        if found[1] == b"\r":
            raise command_errors.terminal(hop.label)
    except ConnectError:
        stream.close()
        raise


def _failed(stream: CommandStream, hop: _CommandHop, received: bytes, expired: bool) -> ConnectError:
    """Return the error for a command behind which no shell has printed its mark."""
    if len(received) >= MAX_NOISE:
        return command_errors.endless(hop.label)
    status = None if expired else stream.wait(5.0)  # it arrives shortly after the end of stdout
    output = f"{stream.stderr_tail()}\n{received.decode('utf-8', 'replace')}"
    if expired:
        return command_errors.no_shell(hop.label, _OPEN_TIMEOUT, output)
    return command_errors.ended(hop.label, shlex.split(hop.line)[0], status, output)
