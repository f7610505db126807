"""The process of a scheduler's job: `agent job`, which the batch script becomes.

It starts keepers as its children when `attach` asks for them on its socket, tells keepers of the job's signals, and
ends with the last keeper, and so the job. A keeper that is killed leaves a kernel, whose next keeper joins again. Every
process that loses its parent becomes a child of the job's process, so that a scheduler finds it below; and keepers end
when the job's process does.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import sys
import traceback
from typing import Any, Dict, Mapping, NamedTuple, Set, Tuple

from ...wire.fields import FieldError, text
from ...wire.files import private
from ...wire.stream.frames import Frame, FrameError, Kind, reply_frame
from ..exit.descendants import SETUP, TAG, find_descendants
from ..paths import Root, agent_command
from ..system.agent_runtime import AgentRuntime, ChildProcess, Streams, listen
from ..system.frame_connection import FrameConnection
from ..system.loop import Loop
from ..system.process_control import become_subreaper, next_ended_child
from .client import SOCKET, job_is_over
from .output import adopt_output, own_output
from .signals import Received, watch_signals
from .slurm_job import Controller, SlurmJob, read_job

FIRST_HUB = "JUPYTER_GPU_KERNEL_JOB_WAIT"
"""The variable with the seconds that a first kernel may take to be started. The job ends if none is."""
DEFAULT_WAIT = 1800.0
RETRY_WAIT = 60.0
"""Seconds for another start after a start that failed."""
_STARTS_WITHIN = 60.0
"""Seconds in which a job that has made its folder listens there."""
_LOOK_INTERVAL = 2.0
"""Seconds between two looks at a kernel whose keeper was killed."""
_MAX_CONNECTIONS = 256
_MAX_PENDING = 1 << 20
"""Bytes that a connection may leave unread."""


class JobClient(FrameConnection):
    """A connection of `attach` or of a keeper. Its requests are REQUEST frames; every reply is a REPLY frame with the
    number of the last request. A keeper also gets events as replies, as long as its connection is open."""

    number = 0

    def reply(self, answer: Dict[str, Any]) -> None:
        """Send one more reply to the last request, unless the connection is closed. A peer that does not read is
        disconnected."""
        self.pending += reply_frame(answer, self.number).encode()
        try:
            self.flush()
        except OSError:
            self._server.disconnected(self)
        if len(self.pending) > _MAX_PENDING:
            self._server.disconnected(self)


class _Start(NamedTuple):
    """A process that may become a keeper, and the connection that asked for it."""

    process: ChildProcess
    connection: JobClient


class JobProcess:
    """The process of one job: `run()` serves until the job is over."""

    def __init__(self, runtime: AgentRuntime, root: Root, slurm_job: SlurmJob, wait: float) -> None:
        """`wait`: the seconds that a first kernel may take to be started."""
        self._slurm_job = slurm_job
        self._root = root
        self._start_time = runtime.time()
        self._loop = loop = Loop(runtime)
        self._started: Dict[int, _Start] = {}  # by pid
        self._keepers: Dict[JobClient, str] = {}  # the kernels' ids
        self._lost: Set[str] = set()  # kernels whose keeper was killed
        self._deadline = loop.time() + wait  # for a first kernel
        self._had_keeper = False
        folder = root.make_job(slurm_job.id)
        self._clients: Set[JobClient] = set()
        self._listener = listen(folder / SOCKET, 64)
        loop.watch(self._listener.fileno(), lambda _: self._accept())
        watch_signals(loop, self._signalled)
        self._controller = Controller(loop, slurm_job, self._tell)

    def run(self) -> None:
        """Serve; return when the last keeper has ended, or no kernel was started in time."""
        self._loop.later(0, self._look)
        try:
            self._loop.run()
        finally:
            self._listener.close()
            shutil.rmtree(str(self._root.job(self._slurm_job.id)), ignore_errors=True)

    # -------------------------------------------------------------------------------------- connections

    def _accept(self) -> None:
        try:
            sock: socket.socket = self._listener.accept()[0]
        except OSError:  # the peer has gone, or there are no descriptors to be had
            return
        if len(self._clients) >= _MAX_CONNECTIONS:
            return sock.close()
        self._clients.add(JobClient(self._loop, sock, self))

    def received(self, connection: JobClient, frame: Frame) -> None:
        """A frame was received."""
        if frame.kind is Kind.REQUEST:
            connection.number = frame.number
            self._requested(connection, frame.json())

    def due(self, connection: JobClient) -> Tuple[bytes, bool]:
        """Only replies are written, when they are made."""
        return b"", False

    def disconnected(self, connection: JobClient) -> None:
        """The connection has ended. A kernel whose keeper has not left before has lost that keeper."""
        connection.close()
        self._clients.discard(connection)
        kernel_id = self._keepers.pop(connection, "")
        if kernel_id and kernel_id not in self._keepers.values():
            self._lost.add(kernel_id)

    def rejected(self, connection: JobClient, error: Exception) -> None:
        """Close the connection of a peer that sent something malformed. The job goes on."""
        if not isinstance(error, (FrameError, FieldError)):
            traceback.print_exception(type(error), error, error.__traceback__)
        self.disconnected(connection)

    # -------------------------------------------------------------------------------------- requests

    def _requested(self, connection: JobClient, request: Dict[str, Any]) -> None:
        handlers = {
            "status": self._status,
            "start": self._start,
            "kill": self._kill,
            "join": self._join,
            "leave": self._leave,
        }
        handler = handlers.get(text(request, "do", most=64))
        if handler is None:
            return connection.reply({"error": {"code": "unknown", "text": "unknown request"}})
        handler(connection, request)

    def _status(self, connection: JobClient, _: Dict[str, Any]) -> None:
        kernels = sorted({*self._keepers.values(), *self._lost})
        connection.reply(dict(self._facts(), kernels=kernels, pid=os.getpid(), log=own_output()))

    def _facts(self) -> Dict[str, Any]:
        job = self._slurm_job._asdict()
        return {**job, "start_time": int(self._start_time), "end_time": self._controller.end_time}

    def _start(self, connection: JobClient, request: Dict[str, Any]) -> None:
        """Start the process of a keeper, to which the asking `attach` sends its settings: see keeper/client.py."""
        kernel_id = text(request, "kernel")
        folder = self._root.kernel(kernel_id)
        command = [*agent_command(text(request, "python")), "serve", folder.name]
        environ = {name: value for name, value in os.environ.items() if name not in (TAG, SETUP, FIRST_HUB)}
        try:
            with open(str(folder / "log"), "ab", opener=private) as log:
                process = self._loop.runtime.start(
                    command, Streams(log), cwd=text(request, "cwd"), env=environ
                )
        except OSError as error:
            return connection.reply({"error": {"code": "keeper", "text": str(error)}})
        self._started[process.pid] = _Start(process, connection)
        connection.reply({"pid": process.pid})

    def _kill(self, connection: JobClient, _: Dict[str, Any]) -> None:
        for start in self._started.values():
            if start.connection is connection:
                start.process.kill()

    def _join(self, connection: JobClient, request: Dict[str, Any]) -> None:
        """Add a keeper, which leaves when its kernel has ended. If the keeper is killed, its connection is closed."""
        self._keepers[connection] = kernel_id = text(request, "kernel")
        self._had_keeper = True
        self._lost.discard(kernel_id)
        connection.reply(self._facts())

    def _leave(self, connection: JobClient, _: Dict[str, Any]) -> None:
        self._keepers.pop(connection, None)
        self._end_if_over()

    # -------------------------------------------------------------------------------------- signals

    def _signalled(self, signal: Received) -> None:
        if signal.name == "SIGCHLD":
            return self._reap()
        _say(f"{signal.name} from process {signal.pid} ({signal.command}) of user {signal.uid}")
        self._tell({"event": "signal", **signal._asdict()})
        if self._keepers:
            self._controller.signalled()
        if signal.name == "SIGTERM":
            self._deadline = self._loop.time()
            self._end_if_over()

    def _tell(self, event: Dict[str, Any]) -> None:
        for connection in list(self._keepers):
            connection.reply(event)

    def _reap(self) -> None:
        while True:
            pid = next_ended_child()
            if not pid:
                return self._end_if_over()
            start = self._started.pop(pid, None)
            if start is None:
                with contextlib.suppress(ChildProcessError):  # a program whose output a thread reads
                    os.waitpid(pid, 0)
                continue
            status = start.process.wait()
            if status:
                self._deadline = max(self._deadline, self._loop.time() + RETRY_WAIT)
            start.connection.reply({"status": status})

    # -------------------------------------------------------------------------------------- end

    def _look(self) -> None:
        """Look whether kernels that lost their keeper have ended, and whether the time for a first one is over."""
        self._loop.later(_LOOK_INTERVAL, self._look)
        folder = str(self._root.path)
        self._lost = {kernel for kernel in self._lost if find_descendants(kernel, root=folder)}
        self._end_if_over()

    def _end_if_over(self) -> None:
        if self._keepers or self._started or self._lost:
            return
        if self._had_keeper:
            return self._end("the last kernel has ended")
        if self._loop.time() >= self._deadline:
            self._end("no kernel was started in time")

    def _end(self, why: str) -> None:
        _say(f"The job ends: {why}.")
        self._loop.stop()


def run(runtime: AgentRuntime, root: Root) -> int:
    """Serve the job of this process's environment; return the exit status. Signals must be blocked already."""
    slurm_job = read_job(os.environ)
    if slurm_job is None:
        sys.stderr.write("agent job runs in a batch script of Slurm: SLURM_JOB_ID is not set\n")
        return 2
    if os.environ.get("SLURM_RESTART_COUNT", "0") not in ("", "0"):
        _say("The job was requeued. Its kernels are gone, and it ends.")
        return 0
    become_subreaper()
    _remove_stale(root, runtime.time())
    job = JobProcess(runtime, root, slurm_job, _seconds(os.environ))
    adopt_output(root, slurm_job.id, runtime.time())
    job.run()
    return 0


def _say(line: str) -> None:
    """Print a line into the job's output. A full disk must not end the job."""
    with contextlib.suppress(OSError):
        print(line, flush=True)


def _seconds(environ: Mapping[str, str]) -> float:
    try:
        return float(environ.get(FIRST_HUB, ""))
    except ValueError:
        return DEFAULT_WAIT


def _remove_stale(root: Root, now: float) -> None:
    """Remove the folders of jobs whose process was killed, but none of a job that starts at this moment."""
    for job_id in root.jobs():
        folder = root.job(job_id)
        with contextlib.suppress(OSError):  # another job has removed it
            if now - folder.stat().st_mtime > _STARTS_WITHIN and job_is_over(folder):
                shutil.rmtree(str(folder), ignore_errors=True)
