"""Runs short commands, one after the other, in a shell at the other end of any stream.

The shell is sent one line, which prints a mark before and after the command, on stdout and on stderr. So the output of
the shell's start-up files is no part of the command's, and a command has ended although a process that it has left
behind holds the output open. The input has a known length, and is sent after the first mark: a shell may read more than
the line that it runs. Input that the command does not read is discarded, as the shell would take it for commands.
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
from ...wire.stream.frames import MAX_NOISE
from .. import sanitize
from .stream import CommandStream

SHELL = "/bin/sh"
SPARE_LINE = b"\n"
"""What a shell is sent first, for start-up files that read one line from stdin, as after “Press Enter to continue”."""
STARTUP_FILES = (
    "the shell's start-up files there, such as ~/.bashrc, wait or read from stdin, which they may do in interactive "
    "shells only"
)
"""A cause of silence: what the start-up files read is a command that the shell does not get."""
_MAX_OUTPUT = 4 * 1024 * 1024
"""Bytes of a short command's output."""
_LAST_LINE = 200  # bytes at the end of the output, in which the last line is looked for
_STATUS_WAIT = 5.0  # seconds that the exit status of a shell may arrive after the end of the output
_STDERR_WAIT = 0.5  # seconds for the second mark on stderr, which may come after that on stdout
_STDERR_INTERVAL = 0.01  # seconds between two looks


class Completed(NamedTuple):
    """A command that has ended. The return code is -1 if it is not known; `stderr`: the last 64 KiB."""

    returncode: int
    stdout: bytes
    stderr: bytes


def run_to_end(shell: CommandStream, stdin: bytes, timeout: float, hop: str, command: str) -> Completed:
    """Run `command` with this input in the shell, which can run another command afterwards. If the shell ends, the
    return code is its own, but never 0.

    Raises ConnectError if the command does not end within `timeout` (s), or prints more than 4 MiB. The shell is closed
    then.
    """
    run = _Run(shell, command, stdin)
    with contextlib.ExitStack() as unusable:
        unusable.callback(shell.close)
        with shell.closing_after(timeout) as expired:
            threading.Thread(target=run.feed, name="command stdin", daemon=True).start()
            output, status = run.read(hop)
        if expired.is_set():
            raise _not_ended(hop, command if run.began else "", timeout, output)
        if status is None:  # the shell has ended
            status = shell.wait(_STATUS_WAIT) or -1  # a shell that ends by itself has not run all of the line
        else:
            unusable.pop_all()
        return Completed(status, output, run.stderr())


class _Run:
    """One command, between its marks."""

    def __init__(self, shell: CommandStream, command: str, stdin: bytes) -> None:
        self._shell, self._stdin = shell, stdin
        mark = secrets.token_hex(8)
        self._begin, self._end = f"{mark}-begin", f"{mark}-end"
        begin, end = (f"printf '\\n%s%s\\n' {one}" for one in (self._begin, self._end))
        source = f"head -c {len(stdin)}" if stdin else ":"
        run = f"{source} | ({SHELL} -c {shlex.quote(command)}; code=$?; cat >/dev/null; exit $code)"
        self._line = f'{begin}; {begin} >&2; {run}; {end} " $?"; {end} >&2\n'
        self._may_feed = threading.Event()
        self.began = False
        """Whether the shell has run the beginning of the line."""

    def feed(self) -> None:
        """Send the line, and the input once the command runs."""
        with contextlib.suppress(OSError):  # the shell has ended, or the command does not read all its input
            self._shell.write(SPARE_LINE + self._line.encode())
            self._may_feed.wait()
            self._shell.write(self._stdin)

    def read(self, hop: str) -> tuple[bytes, int | None]:
        """Return the output, and the exit status: None if the shell has ended, or was closed."""
        try:
            output, begun = self._read_until(
                rf"\n{self._begin}\n", MAX_NOISE, "the shell, before a command,", hop
            )
        finally:
            self._may_feed.set()
        self.began = begun is not None
        if not self.began:
            return output, None
        output, ended = self._read_until(rf"\n{self._end} (\d{{1,3}})\n", _MAX_OUTPUT, "a command", hop)
        return (output, None) if ended is None else (output[: ended.start()], int(ended[1]))

    def _read_until(
        self, mark: str, limit: int, speaker: str, hop: str
    ) -> tuple[bytes, re.Match[bytes] | None]:
        received, found = self._shell.read_until(re.compile(mark.encode()), limit)
        if found is None and len(received) >= limit:
            cause = f"{speaker} printed more than {limit / 2**20:g} MiB"
            raise ConnectError(cause, hop=hop, remedy="Check what the shell's start-up files print there.")
        return received, found

    def stderr(self) -> bytes:
        """Return what the command has written to stderr."""
        begin, end = f"\n{self._begin}\n", f"\n{self._end}\n"
        until = time.monotonic() + _STDERR_WAIT
        while end not in self._shell.stderr_tail() and time.monotonic() < until:
            time.sleep(_STDERR_INTERVAL)
        text = self._shell.stderr_tail()
        self._shell.forget_stderr()
        return (text.partition(begin)[2] or text).partition(end)[0].encode()


def _not_ended(hop: str, command: str, timeout: float, output: bytes) -> ConnectError:
    """Return the error for a command that took longer than `timeout` (s), with the last line that was printed.
    `command`: "" if the shell has not begun to run it."""
    cause = f"a command did not end within {timeout:.0f} s: {command[:80]}"
    remedy = "The machine may be overloaded, or its file system slow: try again."
    if not command:
        cause = f"the login shell began no command within {timeout:.0f} s"
        remedy = f"{remedy} Or {STARTUP_FILES}."
    if last := output[-_LAST_LINE:].decode(errors="replace").strip().splitlines()[-1:]:
        cause += f"; the last line of its output: {sanitize.line(last[0])}"
    return ConnectError(cause, hop=hop, remedy=remedy)
