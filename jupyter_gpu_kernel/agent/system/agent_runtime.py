"""What a process of the agent takes from its machine: the clocks and random numbers of Runtime, unix sockets, and other
processes, which it starts and signals.

A simulation passes another object with these methods.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import subprocess
from subprocess import TimeoutExpired as TimeoutExpired
from typing import IO, Dict, Iterable, List, NamedTuple, Optional, Protocol, Sequence, Tuple, Union

from ...wire.runtime import Runtime

File = Union[int, IO[bytes]]
"""A descriptor, or a file that has one."""
_core_limit: List[Tuple[int, int]] = []  # from before `forbid_core_files`


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
