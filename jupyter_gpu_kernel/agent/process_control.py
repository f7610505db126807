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
    Optional,
    Protocol,
    Sequence,
    Tuple,
    Union,
)

__all__ = [
    "ChildProcess", "File", "ProcessControl", "TimeoutExpired", "become_subreaper", "detach", "next_ended_child",
    "open_pidfd", "open_signalfd",
]  # fmt: skip

File = Union[int, IO[bytes]]
"""A descriptor, or a file that has one."""
_STARTED = b"begun"
_PR_SET_CHILD_SUBREAPER = 36
_M_MMAP_THRESHOLD, _LARGE_BLOCK = -3, 128 * 1024
_core_limit: List[Tuple[int, int]] = []  # from before it was set to 0


class ChildProcess(Protocol):
    """The part of subprocess.Popen that is used."""

    @property
    def pid(self) -> int:
        """Its id, which is also that of its session and of its process group."""

    def poll(self) -> Optional[int]:
        """Return None while it runs, then its return code (negative: a signal)."""

    def wait(self, timeout: Optional[float] = None) -> int:
        """Return its return code once it has ended. TimeoutExpired after `timeout` seconds."""

    def kill(self) -> None:
        """Send it SIGKILL."""


class ProcessControl:
    """The operating system's processes. A simulation passes another object with these methods."""

    def start(
        self,
        command: Sequence[str],
        *,
        stdin: File = subprocess.DEVNULL,
        output: File = subprocess.DEVNULL,
        errors: Optional[File] = None,
        cwd: Optional[str] = None,
        env: Optional[Dict[str, str]] = None,
        pass_fds: Iterable[int] = (),
        core_files: bool = False,
    ) -> ChildProcess:
        """Start a program in a session of its own. Raises OSError if it cannot be started.

        output: Gets its stdout and stderr.
        errors: Gets its stderr instead.
        core_files: Whether it may write core files where this daemon may not.
        """
        with _original_core_limit() if core_files else contextlib.nullcontext():
            return subprocess.Popen(
                command, stdin=stdin, stdout=output, stderr=output if errors is None else errors, cwd=cwd, env=env,
                pass_fds=tuple(pass_fds), start_new_session=True,
            )  # fmt: skip

    def read_output(self, command: Sequence[str], timeout: float) -> bytes:
        """Run a program, and return what it has written to stdout when it ends, or after `timeout` seconds. It is
        killed then, and not waited for. Raises OSError if it cannot be started."""
        null = subprocess.DEVNULL
        process = subprocess.Popen(command, stdin=null, stdout=subprocess.PIPE, stderr=null)
        try:
            return process.communicate(timeout=timeout)[0]
        except TimeoutExpired as error:
            process.kill()
            return error.stdout or b""

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
    _run(work, write_fd, log)
    return 0


def _run(work: Callable[[Callable[[], None]], None], write_fd: int, log: Path) -> None:
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
