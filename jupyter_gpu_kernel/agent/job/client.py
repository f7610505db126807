"""Requests to the process of a job: what the process knows of the job, and that it starts a keeper."""

from __future__ import annotations

import contextlib
import select
import signal
import socket
from pathlib import Path
from typing import Any, Dict, List, Optional

from ...wire.fields import FieldError, number, text
from ...wire.stream.frames import FrameError, FrameReader, Kind, json_frame
from ...wire.texts import one_line
from ..paths import FolderError, Root
from ..system import procfs
from ..system.process_control import TimeoutExpired
from ..system.unix_sockets import has_listener

TIMEOUT = 5.0
"""Seconds that the job's process has to answer."""
SOCKET = "job"


class JobGone(Exception):
    """The job's process does not run on this node, or cannot be seen from here."""


def job_is_over(folder: Path) -> bool:
    """Return whether the process of the job with this folder has ended."""
    return not has_listener(folder / SOCKET)


def why_no_process(job_id: str) -> str:
    """Return why this job has no process of ours that can be reached on this node."""
    job, node = f"job {one_line(job_id, 20)}", socket.gethostname()
    if any(_is_hidden(pid, job_id) for pid in procfs.pids()):
        return f"{job} has a /tmp of its own on {node}, which this connection does not see"
    return f"{job} has no process of ours on {node}: it has not come so far yet, or it is over"


def _is_hidden(pid: int, job_id: str) -> bool:
    """Whether this process is the job's, and sees other files than our process does."""
    if procfs.arguments(pid)[-1:] != ["job"] or procfs.environment(pid).get("SLURM_JOB_ID") != job_id:
        return False
    return procfs.sees_other_files(pid)


class JobConnection:
    """A connection to the process of a job. The constructor and all methods raise JobGone if that process has ended."""

    def __init__(self, root: Root, job_id: str) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(TIMEOUT)
        self._reader = FrameReader(greeting=False)
        self._replies: List[Dict[str, Any]] = []
        try:
            self.sock.connect(str(root.job(job_id) / SOCKET))
        except (OSError, FolderError):
            self.sock.close()
            raise JobGone(why_no_process(job_id)) from None

    def send(self, request: Dict[str, Any]) -> None:
        """Send a request."""
        try:
            self.sock.sendall(json_frame(Kind.REQUEST, request, number=1).encode())
        except OSError as error:
            raise JobGone(f"the job's process has ended: {error}") from None

    def receive(self, timeout: Optional[float] = TIMEOUT) -> Optional[Dict[str, Any]]:
        """Return the next reply; None if no reply comes within `timeout` seconds (None: wait for ever)."""
        while not self._replies:
            if not select.select([self.sock], [], [], timeout)[0]:
                return None
            try:
                data = self.sock.recv(65536)
                frames = self._reader.feed(data)
                self._replies += [frame.json() for frame in frames if frame.kind is Kind.REPLY]
            except (OSError, FrameError) as error:
                raise JobGone(f"the job's process has ended: {error}") from None
            if not data:
                raise JobGone("the job's process has ended")
        return self._replies.pop(0)

    def ask(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """Return the first reply to a request."""
        self.send(request)
        reply = self.receive()
        if reply is None:
            raise JobGone(f"the job's process did not answer within {TIMEOUT:g} s")
        return reply

    def close(self) -> None:
        """Close the connection."""
        self.sock.close()


def job_status(root: Root, job_id: str) -> Dict[str, Any]:
    """Return what the job's process knows of the job. Raises JobGone."""
    with contextlib.closing(JobConnection(root, job_id)) as connection:
        return connection.ask({"do": "status"})


class JobChild:
    """A process that the job's process has started for us: a `ChildProcess`. Raises OSError if it cannot be started."""

    def __init__(self, root: Root, job_id: str, kernel_id: str, python: str, cwd: str) -> None:
        self._status: Optional[int] = None
        try:
            self._connection = JobConnection(root, job_id)
            self.pid = self._start({"do": "start", "kernel": kernel_id, "python": python, "cwd": cwd})
        except (JobGone, FieldError) as error:
            raise OSError(str(error)) from None

    def _start(self, request: Dict[str, Any]) -> int:
        try:
            reply = self._connection.ask(request)
            if "error" in reply:
                raise OSError(text(dict(reply["error"]), "text", "the job's process refused it"))
            return number(reply, "pid", least=1)
        except BaseException:
            self._connection.close()
            raise

    def poll(self) -> Optional[int]:
        """Return None while the process runs, then its return code."""
        return self._receive(0.0)

    def wait(self, timeout: Optional[float] = None) -> int:
        """Return the process's return code once it has ended. Raises TimeoutExpired after `timeout` seconds."""
        status = self._receive(timeout)
        if status is None:
            raise TimeoutExpired(str(self.pid), timeout or 0.0)
        self._connection.close()
        return status

    def kill(self) -> None:
        """Ask the job's process to kill this process."""
        with contextlib.suppress(JobGone):
            self._connection.send({"do": "kill"})

    def _receive(self, timeout: Optional[float]) -> Optional[int]:
        if self._status is None:
            try:
                reply = self._connection.receive(timeout)
                if reply is not None:
                    status = reply.get("status")
                    self._status = status if isinstance(status, int) else -signal.SIGKILL
            except JobGone:  # with the job, its processes are killed
                self._status = -signal.SIGKILL
        return self._status
