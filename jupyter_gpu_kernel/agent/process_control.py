"""Starts and signals processes. No other module of the agent does, except for those in the kernel's own process."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from subprocess import TimeoutExpired
from typing import IO, Dict, Iterable, Optional, Protocol, Sequence, Union

__all__ = ["ChildProcess", "File", "ProcessControl", "TimeoutExpired"]

File = Union[int, IO[bytes]]
"""A descriptor, or a file that has one."""


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
        cwd: Optional[str] = None,
        env: Optional[Dict[str, str]] = None,
        pass_fds: Iterable[int] = (),
    ) -> ChildProcess:
        """Start a program in a session of its own; `output` gets its stdout and stderr. OSError: it cannot start."""
        return subprocess.Popen(
            command, stdin=stdin, stdout=output, stderr=output, cwd=cwd, env=env, pass_fds=tuple(pass_fds),
            start_new_session=True,
        )  # fmt: skip

    def read_output(self, command: Sequence[str], timeout: float) -> bytes:
        """Run a program, and return what it has written to stdout when it ends, or after `timeout` seconds. It is
        killed then, and not waited for. OSError: it cannot be started."""
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
