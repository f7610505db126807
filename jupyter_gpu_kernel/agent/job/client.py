"""Requests to the process of a job: what the process knows of the job, and that it starts a keeper."""

from __future__ import annotations

import contextlib
import signal
import socket
from pathlib import Path
from typing import Any, Dict, Optional

from ...wire.fields import FieldError, number, text
from ...wire.texts import one_line
from ..paths import FolderError, Root
from ..system import procfs
from ..system.agent_runtime import TimeoutExpired, has_listener
from ..system.request_client import PeerGone, RequestClient

TIMEOUT = 5.0
"""Seconds that the job's process has to answer."""
SOCKET = "job"


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


def connect_job(root: Root, job_id: str) -> RequestClient:
    """Return a connection to the process of this job. Raises PeerGone if there is none."""
    try:
        return RequestClient(str(root.job(job_id) / SOCKET), "the job's process", TIMEOUT)
    except (OSError, FolderError):
        raise PeerGone(why_no_process(job_id)) from None


def job_status(root: Root, job_id: str) -> Dict[str, Any]:
    """Return what the job's process knows of the job. Raises OSError if the process has ended, or does not answer."""
    with contextlib.closing(connect_job(root, job_id)) as connection:
        return connection.ask({"do": "status"})


class JobChild:
    """A process that the job's process has started for us: a `ChildProcess`. Raises OSError if it cannot be started."""

    def __init__(self, root: Root, job_id: str, kernel_id: str, python: str, cwd: str) -> None:
        self._status: Optional[int] = None
        self._connection = connect_job(root, job_id)
        request = {"do": "start", "kernel": kernel_id, "python": python, "cwd": cwd}
        try:
            reply = self._connection.ask(request)
            if "error" in reply:
                raise OSError(text(dict(reply["error"]), "text", "the job's process refused it"))
            self.pid = number(reply, "pid", least=1)
        except (OSError, FieldError) as error:
            self._connection.close()
            raise OSError(str(error)) from None

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
        with contextlib.suppress(OSError):  # that process has ended, or does not read
            self._connection.send({"do": "kill"})

    def _receive(self, timeout: Optional[float]) -> Optional[int]:
        if self._status is None:
            try:
                reply = self._connection.receive(timeout)
                if reply is not None:
                    status = reply.get("status")
                    self._status = status if isinstance(status, int) else -signal.SIGKILL
            except PeerGone:  # with the job, its processes are killed
                self._status = -signal.SIGKILL
        return self._status
