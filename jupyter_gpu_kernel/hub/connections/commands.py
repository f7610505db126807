"""Commands as hops: `ssh gpu2`, `docker exec -i box`, `srun --overlap --jobid=17`.

Each is run on the hop before it, followed by `/bin/sh`, and its stdin and stdout lead to that shell. The shell prints a
mark as soon as it runs; so what the command itself prints before is recognised, and a command that fails is named.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ...errors import ConnectError
from ...wire.stream.frames import MAX_NOISE
from ..transport.connection import Connection, Steps, timed_step
from ..transport.short_command import SHELL
from ..transport.stream import CommandStream
from . import command_errors
from .shell_check import PATIENCE, check_shell

_OPEN_TIMEOUT = 60.0  # seconds for all commands: an image may have to be unpacked first
_MARK = ("jupyter-gpu-kernel: ", "shell")  # in two parts, since a terminal would echo the line that prints it
_MARK_LINE = re.compile(
    b"\n%s([\r\n])" % "".join(_MARK).encode()
)  # a terminal ends it with a carriage return


class CommandHop(NamedTuple):
    """`label` names it in messages; `command` is what the user wrote."""

    label: str
    command: str

    @property
    def line(self) -> str:
        """The command line that gives a shell behind this hop."""
        return shlex.join([*shlex.split(self.command), SHELL])


class CommandConnection(Connection):
    """A connection that leads on through one or more commands. It is as alive as the connection before them."""

    def __init__(
        self,
        before: Connection,
        hops: Sequence[CommandHop],
        progress: Callable[[str, str], None],
        patience: float = PATIENCE,
    ) -> None:
        """Try the commands once. Raises ConnectError that names the one which fails, or behind which no kernel can be
        used. `patience`: as in `check_shell`."""
        super().__init__(hops[-1].label, before.transport)
        self._before = before
        self._hops = tuple(hops)
        self.steps = list(before.steps)
        self.host_keys = before.host_keys
        stream = self._start(SHELL, progress, self.steps)
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
        """Run a command behind the last hop."""
        return self._start(command, lambda hop, step: None, [])

    def alive(self) -> bool:
        """Whether the connection before the commands is."""
        return self._before.alive()

    def responds(self, within: float) -> bool:
        """Whether the machine on which the first command runs answers."""
        return self._before.responds(within)

    def close(self) -> None:
        """Close the connection before the commands, which ends them."""
        super().close()
        self._before.close()

    def _start(self, command: str, progress: Callable[[str, str], None], steps: Steps) -> CommandStream:
        """Start one command behind the other, and `command` behind the last; append the time of each to `steps`."""
        following = [hop.line for hop in self._hops[1:]] + ["" if command == SHELL else command]
        stream: CommandStream | None = None
        try:
            for hop, line in zip(self._hops, following, strict=True):
                with timed_step(steps, hop.label, "run", progress):
                    stream = stream or self._before.open(hop.line)
                    _enter(stream, hop, line)
        except ConnectError:
            if stream is not None:
                stream.close()
            raise
        assert stream is not None
        return stream


def _enter(stream: CommandStream, hop: CommandHop, following: str) -> None:
    """Wait until the shell behind `hop` runs; it then becomes the command line `following`, if there is one.

    Both are sent as one line, which the shell reads as a whole: a shell may read more than it runs, and what comes
    after the mark is meant for the next one."""
    line = shlex.join(["printf", r"\n%s%s\n", *_MARK]) + (f"; exec {following}" if following else "")
    received, found, expired = stream.ask(f"{line}\n".encode(), _MARK_LINE, _OPEN_TIMEOUT)
    if found is None:
        raise _failed(stream, hop, received, expired)
    if found[1] == b"\r":
        raise command_errors.terminal(hop.label)


def _failed(stream: CommandStream, hop: CommandHop, received: bytes, expired: bool) -> ConnectError:
    """Return the error for a command behind which no shell has printed its mark."""
    if len(received) >= MAX_NOISE:
        return command_errors.endless(hop.label)
    status = None if expired else stream.wait(5.0)  # it arrives shortly after the end of stdout
    output = f"{stream.stderr_tail()}\n{received.decode('utf-8', 'replace')}"
    if expired:
        return command_errors.no_shell(hop.label, _OPEN_TIMEOUT, output)
    return command_errors.ended(hop.label, shlex.split(hop.command)[0], status, output)
