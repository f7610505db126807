"""What a process of the agent takes from its machine: the clocks and random numbers of Runtime, unix sockets, and other
processes, which it starts and signals. A simulation passes another object with these methods.

`run_programs` runs programs to their end, within a limit of time and output. The functions for unix sockets of this
user's processes say how they listen, whether one listens, who is at the other end, and how descriptors are passed.
"""

from __future__ import annotations

import array
import contextlib
import errno
import os
import resource
import signal
import socket
import struct
import subprocess
from pathlib import Path
from subprocess import TimeoutExpired as TimeoutExpired
from typing import (
    IO,
    Callable,
    Dict,
    Iterable,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Protocol,
    Sequence,
    Tuple,
    Union,
)

from ...wire.runtime import Runtime

File = Union[int, IO[bytes]]
"""A descriptor, or a file that has one."""
_core_limit: List[Tuple[int, int]] = []  # from before `forbid_core_files`
_POLL_INTERVAL = 0.01
"""Seconds between two looks at programs that run."""
_KILL_TIMEOUT = 0.5
"""Seconds for a killed program to end: one that waits for a driver or a file system that hangs does not."""
_MOST_READS = 16
"""Pieces of 64 KiB that are read of a pipe at a time: as much as a pipe holds, or a little more."""
NO_LISTENER = (errno.ENOENT, errno.ECONNREFUSED, errno.ENOTDIR)
"""The errors of connecting to a path at which no process listens."""
_CLOSE_ON_EXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
_CREDENTIALS = struct.Struct("iII")  # struct ucred: pid, uid, gid


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


class AgentRuntime(Runtime):
    """The machine, as the agent's processes use it."""

    @property
    def environ(self) -> Mapping[str, str]:
        """The environment of this process."""
        return os.environ

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
        errors = streams.output if streams.errors is None else streams.errors
        process = subprocess.Popen(
            command, stdin=streams.stdin, stdout=streams.output, stderr=errors, cwd=cwd, env=env,
            pass_fds=tuple(pass_fds), start_new_session=True,
        )  # fmt: skip
        if core_files and _core_limit:
            with contextlib.suppress(OSError):  # it has ended already
                resource.prlimit(process.pid, resource.RLIMIT_CORE, _core_limit[0])
        return process

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

    def pid(self) -> int:
        """Return the id by which the system names this process to those who connect to its sockets."""
        return os.getpid()

    def unix_socket(self, kind: int = socket.SOCK_STREAM) -> socket.socket:
        """Return a new unix socket, which does not block."""
        return socket.socket(socket.AF_UNIX, kind | socket.SOCK_NONBLOCK)

    def received_socket(self, descriptor: int) -> socket.socket:
        """Return the socket of a descriptor that another process has passed."""
        return socket.socket(fileno=descriptor)

    def socket_table(self) -> IO[bytes]:
        """Return the list of the unix sockets of all processes, a line for each. Raises OSError where the site hides
        that list."""
        return open("/proc/net/unix", "rb")


def forbid_core_files() -> None:
    """Let this process write no core files, nor what it starts without `core_files`."""
    _core_limit.append(resource.getrlimit(resource.RLIMIT_CORE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, _core_limit[0][1]))


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
    runtime: AgentRuntime,
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
                started.append(runtime.start(command, streams, cwd=cwd, env=env))
            while _running(started) and runtime.monotonic() <= limit.deadline and not limit.cancelled():
                runtime.sleep(_POLL_INTERVAL)
                for pipe in pipes:
                    pipe.read()
            statuses = [process.poll() for process in started]
        finally:
            _kill(runtime, _running(started))
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


def _kill(runtime: AgentRuntime, running: Sequence[ChildProcess]) -> None:
    """Kill these processes with their groups, as each of them may be a script that has started another program."""
    for process in running:
        runtime.signal_group(process.pid, signal.SIGKILL)
    for process in running:
        with contextlib.suppress(TimeoutExpired):
            process.wait(timeout=_KILL_TIMEOUT)


class Owner(NamedTuple):
    """The process that has a socket. pid 0, uid -1: unknown."""

    pid: int
    uid: int


def listen(path: Path, backlog: int, kind: int = socket.SOCK_STREAM) -> socket.socket:
    """Return a socket that listens and does not block. Its file appears when it listens, so that whoever finds the file
    can connect. That file takes the place of the file of a killed process."""
    new = path.with_suffix(".new")
    new.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, kind | socket.SOCK_NONBLOCK)
    try:
        listener.bind(str(new))
        os.chmod(str(new), 0o600)
        listener.listen(backlog)
        os.replace(str(new), str(path))
    except OSError:
        listener.close()
        raise
    return listener


def bind_datagrams(runtime: AgentRuntime, path: Path) -> socket.socket:
    """Return a socket that receives datagrams at this path, and does not block. It takes the place of that of a killed
    process."""
    path.unlink(missing_ok=True)
    sock = runtime.unix_socket(socket.SOCK_DGRAM)
    sock.bind(str(path))
    return sock


def has_listener(path: Path) -> bool:
    """Return whether a process listens there, however busy it is."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as sock:
        return sock.connect_ex(str(path)) not in NO_LISTENER


def peer(sock: socket.socket) -> Owner:
    """Return the process at the other end, from the system."""
    data = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return Owner(*_CREDENTIALS.unpack(data)[:2])


def send_descriptors(sock: socket.socket, data: bytes, descriptors: Sequence[int], flags: int = 0) -> None:
    """Send the data in one message, and with it these descriptors. Raises OSError if the peer has gone."""
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
    sock.sendmsg([data], rights, flags)


def receive_descriptors(
    sock: socket.socket, size: int, most: int, flags: int = 0
) -> Tuple[bytes, List[int], bool]:
    """Receive one message; return its data, its descriptors, at most `most`, which are the caller's from now on, and
    whether the message was longer, or had more."""
    found = array.array("i")
    space = socket.CMSG_SPACE(most * found.itemsize)
    data, ancillary, received, _ = sock.recvmsg(size, space, _CLOSE_ON_EXEC | flags)
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            found.frombytes(content[: len(content) - len(content) % found.itemsize])
    return data, list(found), bool(received & (socket.MSG_TRUNC | socket.MSG_CTRUNC))
