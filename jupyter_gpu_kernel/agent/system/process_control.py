"""Starts and signals processes, and makes this one a daemon. No other module of the agent does, except for those in the
kernel's own process.

A keeper is a daemon: it has a session of its own and no terminal, it returns memory to the system, and it writes no
core file, as its memory holds the kernel's key and environment. Its kernel may write one.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import subprocess
import sys
import traceback
from pathlib import Path
from subprocess import TimeoutExpired
from typing import (
    IO,
    Any,
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Protocol,
    Sequence,
    Tuple,
    Union,
)

from ...wire.runtime import Runtime

__all__ = [
    "ChildProcess", "Ended", "File", "Limit", "Process", "ProcessControl", "Streams", "TimeoutExpired",
    "become_subreaper", "detach", "next_ended_child", "open_pidfd", "open_signalfd", "run_programs",
]  # fmt: skip

File = Union[int, IO[bytes]]
"""A descriptor, or a file that has one."""
_POLL_INTERVAL = 0.01
_KILL_TIMEOUT = 0.5
"""Seconds for a killed program to end: one that waits for a driver or a file system that hangs does not."""
_MOST_READS = 16
"""Pieces of 64 KiB that are read of a pipe at a time: as much as a pipe holds, or a little more."""
_STARTED = b"begun"
_PR_SET_CHILD_SUBREAPER = 36
_M_MMAP_THRESHOLD, _LARGE_BLOCK = -3, 128 * 1024
_core_limit: List[Tuple[int, int]] = []  # from before it was set to 0


class Process(Protocol):
    """A process that need not be our child: a spare interpreter, or a keeper that was killed, may have started it."""

    @property
    def pid(self) -> int:
        """The id of the process, of its session and of its process group."""

    def poll(self) -> Optional[int]:
        """Return None while the process runs, then its return code (negative: a signal)."""


class ChildProcess(Process, Protocol):
    """The part of subprocess.Popen that is used."""

    def wait(self, timeout: Optional[float] = None) -> int:
        """Wait for the end of the process, and return its return code. TimeoutExpired after `timeout` seconds."""

    def kill(self) -> None:
        """Send SIGKILL to the process."""


class Streams(NamedTuple):
    """The standard streams of a program. `errors`: its stderr; None: it goes where `output` goes."""

    output: File = subprocess.DEVNULL
    errors: Optional[File] = None
    stdin: File = subprocess.DEVNULL


class ProcessControl:
    """The operating system's processes. A simulation passes another object with these methods."""

    def start(
        self,
        command: Sequence[str],
        streams: Streams,
        *,
        cwd: Optional[str] = None,
        env: Optional[Dict[str, str]] = None,
        pass_fds: Iterable[int] = (),
        core_files: bool = False,
    ) -> ChildProcess:
        """Start a program in a session of its own. Raises OSError if it cannot be started.

        core_files: Whether the program may write core files, which this daemon may not.
        """
        with _original_core_limit() if core_files else contextlib.nullcontext():
            errors = streams.output if streams.errors is None else streams.errors
            return subprocess.Popen(
                command, stdin=streams.stdin, stdout=streams.output, stderr=errors, cwd=cwd, env=env,
                pass_fds=tuple(pass_fds), start_new_session=True,
            )  # fmt: skip

    def signal(self, pid: int, number: int, pidfd: int = -1) -> None:
        """Send a signal; nothing happens if the process has ended, or is another user's.

        pidfd: A descriptor of the process, where the system has them: then it cannot reach another one.
        """
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if pidfd >= 0:
                signal.pidfd_send_signal(pidfd, number)  # type: ignore[attr-defined,unused-ignore]
            else:
                os.kill(pid, number)

    def signal_group(self, group: int, number: int) -> None:
        """Send a signal to a process group; nothing happens if it has ended, or only other users' processes are
        left in it."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, number)


class Limit(NamedTuple):
    """When programs are killed: after `deadline`, a moment of the monotonic clock, or when `cancelled()` returns true.
    `most`: the bytes that are read of what each of them prints."""

    deadline: float
    cancelled: Callable[[], bool] = lambda: False
    most: int = 1 << 20


class Ended(NamedTuple):
    """How a program has ended. `status`: its return code (negative: a signal), None if it was killed. `output` and
    `errors`: what it has written to stdout and stderr."""

    process: ChildProcess
    status: Optional[int]
    output: bytes
    errors: bytes

    @property
    def text(self) -> str:
        """What the program has written to stdout."""
        return self.output.decode("utf-8", "replace")


def run_programs(
    runtime: Runtime,
    processes: ProcessControl,
    commands: Sequence[Sequence[str]],
    limit: Limit,
    *,
    cwd: Optional[str] = None,
    env: Optional[Dict[str, str]] = None,
) -> List[Ended]:
    """Run these programs at once, and return how each has ended. Blocks until all have, or the limit is reached; those
    that still run are killed with their process groups. Raises OSError if one cannot be started.

    Nothing is written to a disk, which may be full, and nothing waits for a process that not even SIGKILL ends (state
    D).
    """
    started: List[ChildProcess] = []
    with contextlib.ExitStack() as stack:
        pipes = [stack.enter_context(contextlib.closing(_Pipe(limit.most))) for _ in range(2 * len(commands))]
        outputs, errors = pipes[::2], pipes[1::2]
        try:
            for command, output, error in zip(commands, outputs, errors):
                streams = Streams(output=output.write_end, errors=error.write_end)
                started.append(processes.start(command, streams, cwd=cwd, env=env))
            while _running(started) and runtime.monotonic() <= limit.deadline and not limit.cancelled():
                runtime.sleep(_POLL_INTERVAL)
                for pipe in pipes:
                    pipe.read()
            statuses = [process.poll() for process in started]
        finally:
            _kill(processes, _running(started))
        for pipe in pipes:
            pipe.read()
        printed = [bytes(pipe.data) for pipe in pipes]
        return [Ended(*one) for one in zip(started, statuses, printed[::2], printed[1::2])]


class _Pipe:
    """The first bytes that a program writes. Both ends stay open here, so `read` meets no end, and never blocks."""

    def __init__(self, most: int) -> None:
        self.data = bytearray()
        self._most = most
        self._read_end, self.write_end = os.pipe()
        os.set_blocking(self._read_end, False)

    def read(self) -> None:
        """Read what was written, but only a part of it if the program goes on to write."""
        with contextlib.suppress(BlockingIOError):
            for _ in range(_MOST_READS):
                self.data += os.read(self._read_end, 1 << 16)[: self._most - len(self.data)]

    def close(self) -> None:
        """Close both ends."""
        os.close(self._read_end)
        os.close(self.write_end)


def _running(started: Sequence[ChildProcess]) -> List[ChildProcess]:
    """Return those of these processes that have not ended."""
    return [process for process in started if process.poll() is None]


def _kill(processes: ProcessControl, running: Sequence[ChildProcess]) -> None:
    """Kill these processes with their groups, as each of them may be a script that has started another program."""
    for process in running:
        processes.signal_group(process.pid, signal.SIGKILL)
    for process in running:
        with contextlib.suppress(TimeoutExpired):
            process.wait(timeout=_KILL_TIMEOUT)


def open_pidfd(pid: int) -> int:
    """Return a descriptor of the process; -1 where the system has none. Raises ProcessLookupError if it has ended."""
    opener: Any = getattr(os, "pidfd_open", None)
    if opener is None or not hasattr(signal, "pidfd_send_signal"):
        return -1
    try:
        return int(opener(pid))
    except ProcessLookupError:
        raise
    except OSError:  # an old Linux with a new Python
        return -1


def open_signalfd(numbers: Iterable[int]) -> int:
    """Return a descriptor that is readable while one of these signals is pending; they must be blocked. Raises OSError
    where the system has none."""
    mask = (ctypes.c_ulong * (128 // ctypes.sizeof(ctypes.c_ulong)))(
        sum(1 << (number - 1) for number in numbers)
    )
    fd = int(ctypes.CDLL(None).signalfd(-1, mask, os.O_CLOEXEC))
    if fd < 0:
        raise OSError("this system has no signalfd")
    return fd


def become_subreaper() -> None:
    """Become the parent of every process below this one that loses its own, daemons included."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def next_ended_child() -> int:
    """Return the id of a child that has ended, which is still to be waited for; 0 if there is none."""
    try:
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return 0
    return 0 if ended is None else ended.si_pid


def detach(work: Callable[[Callable[[], None]], None], log: Path) -> int:
    """Run `work(started)` in a daemon. In the caller, return 0 once it has called `started()`, or 1 with its error on
    stderr.

    Must be called before any thread or zmq context exists. The daemon's stdout and stderr go to `log`.
    """
    read_fd, write_fd = os.pipe()
    if os.fork():
        os.close(write_fd)
        with os.fdopen(read_fd, "rb") as pipe:
            result = pipe.read()
        if result == _STARTED:
            return 0
        sys.stderr.write(result.decode("utf-8", "replace") or "the keeper exited during its start\n")
        return 1
    os.setsid()
    if os.fork():
        os._exit(0)
    _be_daemon(work, write_fd, log)
    return 0


def _be_daemon(work: Callable[[Callable[[], None]], None], write_fd: int, log: Path) -> None:
    os.set_inheritable(write_fd, False)

    def started() -> None:
        os.write(write_fd, _STARTED)
        os.close(write_fd)

    status = 0
    try:
        _redirect(log)
        _forbid_core_files()
        _return_large_blocks()
        work(started)
    except BaseException as error:
        status = 1
        try:
            os.write(write_fd, f"{type(error).__name__}: {error}\n".encode())
        except OSError:  # it had started: the log gets the error
            traceback.print_exc()
            sys.stderr.flush()
    os._exit(status)


def _redirect(log: Path) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    null = os.open(os.devnull, os.O_RDWR)
    out = os.open(str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for target, fd in ((0, null), (1, out), (2, out)):
        os.dup2(fd, target)


def _forbid_core_files() -> None:
    if not _core_limit:
        _core_limit.append(resource.getrlimit(resource.RLIMIT_CORE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, _core_limit[0][1]))


def _return_large_blocks() -> None:
    """Have glibc return large freed blocks to the system at once, instead of keeping them for later allocations."""
    with contextlib.suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _LARGE_BLOCK)


@contextlib.contextmanager
def _original_core_limit() -> Iterator[None]:
    """Start a process with the limit on core files that this process had before it became a daemon."""
    if not _core_limit:
        yield
        return
    resource.setrlimit(resource.RLIMIT_CORE, _core_limit[0])
    try:
        yield
    finally:
        _forbid_core_files()
