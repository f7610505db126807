"""Commands as hops: `ssh gpu2`, `docker exec -i box`, `srun --overlap --jobid=17`.

Each is run on the hop before it, followed by `/bin/sh`, and its stdin and stdout lead to that shell. The shell prints a
mark as soon as it runs; so what the command itself prints before is recognised, and a command that fails is named.
"""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Callable

from ...errors import ConnectError
from ...wire.stream.frames import MAX_NOISE
from ..transport.connection import Connection, timed_step
from ..transport.short_command import SHELL
from ..transport.stream import CommandStream
from . import command_errors
from .shell_check import PATIENCE, check_shell

_OPEN_TIMEOUT = 60.0  # seconds for all commands: an image may have to be unpacked first
_MARK = ("jupyter-gpu-kernel: ", "shell")  # in two parts, since a terminal would echo the line that prints it
_MARK_LINE = re.compile(
    b"\n%s([\r\n])" % "".join(_MARK).encode()
)  # a terminal ends it with a carriage return


class CommandConnection(Connection):
    """A connection that leads on from another one through a command. The connection is as
    alive as the connection before the command."""

    def __init__(
        self,
        before: Connection,
        label: str,
        command: str,
        progress: Callable[[str, str], None],
        patience: float | None = PATIENCE,
    ) -> None:
        """Try the command once. Raises ConnectError if it fails, or if no kernel can be used behind it. `label`: what
        messages call the command. `patience`: as in `check_shell`; None if other commands lead on."""
        super().__init__(label, before.transport)
        self._before, self._words = before, shlex.split(command)
        self.steps, self.host_keys = list(before.steps), before.host_keys
        with timed_step(self.steps, label, "run", progress), contextlib.closing(self.open(SHELL)) as stream:
            if patience is not None:
                check_shell(stream, label, patience)

    @property
    def interactive(self) -> bool:
        """Whether the user typed a secret for the connection before the command."""
        return self._before.interactive

    def open(self, command: str) -> CommandStream:
        """Run another command in the shell to which the command of this connection leads."""
        stream = self._before.open(shlex.join([*self._words, SHELL]))
        try:
            self._enter(stream, "" if command == SHELL else command)
        except ConnectError:
            stream.close()
            raise
        return stream

    def alive(self) -> bool:
        """Whether the connection before the command is."""
        return self._before.alive()

    def responds(self, within: float) -> bool:
        """Whether the machine on which the command runs answers."""
        return self._before.responds(within)

    def close(self) -> None:
        """Close the connection before the command, which ends the command."""
        super().close()
        self._before.close()

    def _enter(self, stream: CommandStream, following: str) -> None:
        """Wait until the shell behind the command runs; it then becomes the command line `following`, if there is one.

        Both are sent as one line, which the shell reads as a whole: a shell may read more than it runs, and what comes
        after the mark is meant for the next one."""
        line = shlex.join(["printf", r"\n%s%s\n", *_MARK]) + (f"; exec {following}" if following else "")
        received, found, expired = stream.ask(f"{line}\n".encode(), _MARK_LINE, _OPEN_TIMEOUT)
        if found is None:
            raise self._failed(stream, received, expired)
        if found[1] == b"\r":
            raise command_errors.terminal(self.label)

    def _failed(self, stream: CommandStream, received: bytes, expired: bool) -> ConnectError:
        """Return the error for a command behind which no shell has printed its mark."""
        if len(received) >= MAX_NOISE:
            return command_errors.endless(self.label)
        status = None if expired else stream.wait(5.0)  # it arrives shortly after the end of stdout
        output = f"{stream.stderr_tail()}\n{received.decode('utf-8', 'replace')}"
        if expired:
            return command_errors.no_shell(self.label, _OPEN_TIMEOUT, output)
        return command_errors.ended(self.label, self._words[0], status, output)
