"""What the rest of the hub knows of a connection to a node, however it is made; and short commands and scripts that run
over it.

Short commands run one after the other in a shell. The shell is sent one line, which prints a mark before and after the
command, on stdout and on stderr. So the output of the shell's start-up files is no part of the command's, and a command
has ended although a process that it has left behind holds the output open. The input has a known length, and is sent
after the first mark: a shell may read more than the line that it runs. Input that the command does not read is
discarded, as the shell would take it for commands.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import shlex
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from importlib import resources
from typing import NamedTuple

from ...errors import ConnectError, GpuKernelError
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
MAX_LINES = 20_000
"""Lines of the output of one script that are read."""
Steps = list[tuple[str, str, float]]
"""(hop, step, seconds) of each step of connecting, in order."""


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


def source(name: str) -> str:
    """Return the text of a script of this package, by its path in the package."""
    return resources.files("jupyter_gpu_kernel").joinpath(name).read_text("utf-8")


class Output(NamedTuple):
    """What a script printed. `status`: its exit status; -1 if that is not known."""

    status: int
    lines: tuple[str, ...]
    errors: str

    @classmethod
    def of(cls, completed: Completed) -> Output:
        """Read the output of a script that has ended."""
        text, errors = (
            output.decode(errors="replace").replace("\r\n", "\n")
            for output in (completed.stdout, completed.stderr)
        )
        # Not `splitlines`: names may contain other ends of line.
        lines = text.removesuffix("\n").split("\n")[:MAX_LINES]
        return cls(completed.returncode, tuple(lines), sanitize.lines(errors, 20))


@contextlib.contextmanager
def timed_step(steps: Steps, hop: str, step: str, progress: Callable[[str, str], None]) -> Iterator[None]:
    """Report the beginning of a step, and append it to `steps` when the block ends. An error gets all steps so far."""
    progress(hop, step)
    since = time.monotonic()
    try:
        yield
    except GpuKernelError as error:
        error.steps = [*steps, (hop, step, time.monotonic() - since)]
        raise
    steps.append((hop, step, time.monotonic() - since))


class Connection(ABC):
    """A connection to a node. All methods block, and may be called from any thread.

    What is not overridden is as on this machine: nobody has to sign in, and the connection cannot break."""

    def __init__(self, label: str, transport: str = "") -> None:
        self.label = label
        """What messages call the node."""
        self.transport = transport
        """What speaks SSH for the connection, and why, in words; "" for this machine."""
        self.closed = False
        """Whether `close` was called."""
        self.steps: Steps = []
        self.host_keys: list[tuple[str, str]] = []
        """(hop, fingerprint) of the verified host key of each hop over SSH; "" if only ssh knows the fingerprint."""
        self._streams: set[CommandStream] = set()
        self._streams_lock = threading.Lock()

    @property
    def interactive(self) -> bool:
        """Whether the user typed a secret for the connection, so that it cannot be opened again without the user."""
        return False

    @abstractmethod
    def open(self, command: str) -> CommandStream:
        """Run a command, its words quoted as for a shell; return its stdin and stdout as a stream.

        Raises ConnectError if the connection is broken, or the host refuses or does not answer in time."""

    def run(self, command: str, *, stdin: bytes = b"", timeout: float = 30.0) -> Completed:
        """Run a short command. Raises ConnectError if the command does not end within `timeout` (s), or the connection
        breaks."""
        with contextlib.closing(self.open(SHELL)) as shell:
            return run_to_end(shell, stdin, timeout, self.label, command)

    def alive(self) -> bool:
        """Whether the connection is open, as far as this end can tell. `responds` asks the other end."""
        return not self.closed

    def responds(self, within: float) -> bool:
        """Whether the node answers within so many seconds."""
        return self.alive()

    def close(self) -> None:
        """Close the connection, and end what runs over it."""
        self.closed = True
        self._close_streams()

    def _kept(self, stream: CommandStream) -> CommandStream:
        """Return the stream, which ends with the connection from now on."""
        with self._streams_lock:
            self._streams = {one for one in self._streams if not one.closed} | {stream}
        if self.closed:  # meanwhile
            stream.close()
        return stream

    def _close_streams(self) -> None:
        with self._streams_lock:
            streams, self._streams = self._streams, set()
        for stream in streams:
            stream.close()
