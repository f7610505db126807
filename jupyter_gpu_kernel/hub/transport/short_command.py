"""Runs short commands, one after the other, in a shell at the other end of any stream.

The shell is sent one line, which prints a mark before and after the command, on stdout and on stderr. So the output of
the shell's start-up files is no part of the command's, and a command has ended although a process that it has left
behind holds the output open. The input has a known length, and is sent after the first mark: a shell may read more than
the line that it runs.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import shlex
import threading
import time
from typing import NamedTuple

from ...errors import ConnectError
from .. import sanitize
from .stream import CommandStream

SHELL = "/bin/sh"
_MAX_OUTPUT = 4 * 1024 * 1024
"""Bytes of a short command's output."""
_LAST_LINE = 200  # bytes at the end of the output, in which the last line is looked for
_STATUS_WAIT = 5.0  # seconds that the exit status of a shell may arrive after the end of the output
_STDERR_WAIT, _STDERR_INTERVAL = (
    0.5,
    0.01,
)  # seconds for the second mark on stderr, which may come after that on stdout


class Completed(NamedTuple):
    """A command that has ended. The return code is -1 if it is not known; `stderr`: the last 64 KiB."""

    returncode: int
    stdout: bytes
    stderr: bytes


def run_to_end(shell: CommandStream, stdin: bytes, timeout: float, hop: str, command: str) -> Completed:
    """Run `command` with this input in the shell, which can run another command afterwards. If the shell ends, the
    return code is its own.

    Raises ConnectError if the command does not end within `timeout` (s), or prints more than 4 MiB. The shell is closed
    then.
    """
    run = _Run(shell, command, stdin)
    try:
        with shell.closing_after(timeout) as expired:
            threading.Thread(target=run.feed, name="command stdin", daemon=True).start()
            status = run.read(hop)
            if status is None and not expired.is_set():
                status = shell.wait(_STATUS_WAIT)
        if expired.is_set():
            raise _not_ended(hop, command, timeout, bytes(run.output))
    except BaseException:
        shell.close()
        raise
    return Completed(-1 if status is None else status, bytes(run.output), run.stderr())


class _Run:
    """One command. `output` is what it has printed so far."""

    def __init__(self, shell: CommandStream, command: str, stdin: bytes) -> None:
        self._shell, self._stdin = shell, stdin
        mark = secrets.token_hex(8)
        self._begin, self._end = f"{mark}-begin", f"{mark}-end"
        begin, end = (f"printf '\\n%s%s\\n' {one}" for one in (self._begin, self._end))
        source = f"head -c {len(stdin)}" if stdin else ":"
        run = f"{source} | {SHELL} -c {shlex.quote(command)}"
        self._line = f'{begin}; {begin} >&2; {run}; {end} " $?"; {end} >&2\n'
        self._begun = threading.Event()
        self._ended = False
        self.output = bytearray()

    def feed(self) -> None:
        """Send the line, and the input once the command runs."""
        with contextlib.suppress(OSError):  # the shell has ended, or the command does not read all its input
            self._shell.write(self._line.encode())
            self._begun.wait()
            self._shell.write(self._stdin)

    def read(self, hop: str) -> int | None:
        """Read the output; return the exit status, or None if the shell has ended."""
        try:
            before, found = self._shell.read_until(re.compile(f"\n{self._begin}\n".encode()))
        finally:
            self._begun.set()
        if found is None:
            self.output += before
            return None
        end, searched = re.compile(rf"\n{self._end} (\d+)\n".encode()), 0
        while (found := end.search(self.output, searched)) is None:
            searched = max(0, len(self.output) - 2 * len(self._end))
            data = self._shell.read()
            if not data:
                return None
            self.output += data
            if len(self.output) > _MAX_OUTPUT:
                raise _too_much_output(hop)
        self._ended, status = True, int(found[1])  # the match refers to the output
        self._shell.unread(bytes(self.output[found.end() :]))
        del self.output[found.start() :]
        return status

    def stderr(self) -> bytes:
        """Return what the command has written to stderr."""
        begin, end = f"\n{self._begin}\n", f"\n{self._end}\n"
        until = time.monotonic() + _STDERR_WAIT
        while self._ended and end not in self._shell.stderr_tail() and time.monotonic() < until:
            time.sleep(_STDERR_INTERVAL)
        text = self._shell.stderr_tail()
        return (text.partition(begin)[2] or text).partition(end)[0].encode()


def _not_ended(hop: str, command: str, timeout: float, output: bytes) -> ConnectError:
    """Return the error for a command that took longer than `timeout` (s), with the last line that it has printed."""
    cause = f"a command did not end within {timeout:.0f} s: {command[:80]}"
    if last := output[-_LAST_LINE:].decode(errors="replace").strip().splitlines()[-1:]:
        cause += f"; the last line of its output: {sanitize.line(last[0])}"
    return ConnectError(
        cause, hop=hop, remedy="The machine may be overloaded, or its file system slow: try again."
    )


def _too_much_output(hop: str) -> ConnectError:
    """Return the error for a command that has printed more than _MAX_OUTPUT."""
    cause = f"a command printed more than {_MAX_OUTPUT >> 20} MiB"
    return ConnectError(cause, hop=hop, remedy="Check what the shell's start-up files print there.")
