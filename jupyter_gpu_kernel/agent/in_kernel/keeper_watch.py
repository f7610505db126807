"""Runs in the kernel: watches the keeper, and starts another one if the keeper was killed, or crashed because of a bug.

The keeper holds the other end of a pipe, and has written into it how to start its successor: see
`failover/keeper_pipe.py`. The successor makes a new pipe, sends its other end over the socket that is its stdin, and
says on the control channel when it receives.

If the keeper was killed at the end of the scheduler's job in which they run, the kernel ends at once.

If no successor can be started, nobody can reach the kernel any more, and it must not hold its GPU indefinitely: the
running cell, perhaps a training that saves its result, has some minutes to finish; then the kernel ends itself and all
that it started.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path
from typing import Any, Dict, List, Tuple

from ..exit.descendants import ROOT, TAG, end_all, find_descendants
from ..job.client import job_is_over
from ..paths import job_folder
from ..story import Story
from ..system.agent_runtime import AgentRuntime, receive_descriptors
from .guard import Guard
from .output_window import OutputWindow

LIMIT = 600.0
"""Seconds that the running cell may take when there is no keeper any more."""
MAX_STARTS, PERIOD = 5, 600.0
"""If so many successors started within so many seconds, something ends every one of them."""
START_TIMEOUT = 50.0
_RETRY_INTERVAL = 0.2


class KeptLeases:
    """The socket that keeps the kernel's leases of GPUs. Processes that the kernel forks do not keep them."""

    def __init__(self, fd: int) -> None:
        """`fd`: the descriptor of the socket."""
        os.set_inheritable(fd, False)
        self.fd = fd
        os.register_at_fork(after_in_child=self._close)

    def _close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def watch(
    pipe: int, leases: KeptLeases, guard: Guard, report_socket: str, window: OutputWindow, limit: float
) -> None:
    """Watch in a thread.

    pipe: The descriptor of the pipe.
    report_socket: The path of the socket to which the guard reports.
    """
    os.set_inheritable(pipe, False)
    path = Path(report_socket)
    story = Story(path.parents[2] / "stories" / (path.parent.name + ".jsonl"), time.time)
    keeper_watch = KeeperWatch(guard, story, leases, window, limit)
    window.unread.keep()
    threading.Thread(target=keeper_watch.watch, args=(pipe,), name="keeper-watch", daemon=True).start()


class KeeperWatch:
    """Starts a successor after each end of a keeper; if none can be started, ends the kernel."""

    def __init__(
        self, guard: Guard, story: Story, leases: KeptLeases, window: OutputWindow, limit: float
    ) -> None:
        self._guard = guard
        self._leases = leases
        self._window = window
        self._story = story
        self._limit = limit
        self._successor: Dict[str, Any] = {}  # {command, environ, cwd, settings, ended}
        self._starts: List[float] = []

    def watch(self, pipe: int) -> None:
        """Replace each keeper that dies. When that is not possible any more, end the kernel."""
        while pipe >= 0:
            self._read(pipe)
            self._window.keeper_ended()
            if self._job_is_over():
                return self._end("the job in which it ran is over")
            pipe = self._replace_keeper()
        self._end_without_keeper()

    def _job_is_over(self) -> bool:
        """Whether the kernel runs in a scheduler's job whose process has ended."""
        job_id = str(self._successor.get("settings", {}).get("job") or "")
        return bool(job_id) and job_is_over(job_folder(self._story.path.parents[1], job_id))

    def _read(self, pipe: int) -> None:
        """Read the keeper's messages until it has died."""
        with os.fdopen(pipe, "rb") as lines:
            for line in lines:
                try:
                    message: Dict[str, Any] = json.loads(line.decode())
                except ValueError:  # incomplete, because the keeper died
                    continue
                if "command" in message:
                    self._successor = message
                else:
                    self._window.read(int(message["read"]))

    # -------------------------------------------------------------------------------------- a successor

    def _replace_keeper(self) -> int:
        """Return the pipe to the next keeper; -1 if none could be started."""
        problem = f"the last {MAX_STARTS} ended, too" if self._successor else "its command is not known"
        while self._successor and self._may_start():
            pipe, problem = self._start()
            if pipe >= 0:
                return pipe
            if self._job_is_over():
                self._end("the job in which it ran is over")
            time.sleep(_RETRY_INTERVAL)
        self._story.tell("fault", f"no other keeper could be started: {problem}")
        self._window.abandoned()
        return -1

    def _may_start(self) -> bool:
        now = time.monotonic()
        self._starts = [start for start in self._starts if now - start < PERIOD]
        self._starts.append(now)
        return len(self._starts) <= MAX_STARTS

    def _start(self) -> Tuple[int, str]:
        """Start a successor; return (pipe, "") once it serves, or (-1, why it does not).

        Its end of the pipe is never in this process: a process that a cell forks could hold that end open.
        """
        text = b""
        try:
            process, sock = self._start_process()
        except OSError as failure:  # the user's code may have opened too many files
            return -1, str(failure)
        with sock, contextlib.suppress(OSError):
            sock.settimeout(START_TIMEOUT)
            with contextlib.suppress(ConnectionError):  # it has ended, and its errors say why
                sock.sendall(self._successor_input())
            while True:
                data, pipes, _ = receive_descriptors(sock, 4096, 1)
                if pipes or not data:
                    process.wait()
                    return (pipes[0], "") if pipes else (-1, _last_words(text))
                text += data
        process.kill()  # and nothing waits for it: in a file system that hangs it does not end
        return -1, _last_words(text) or "it did not start in time"

    def _start_process(self) -> Tuple[subprocess.Popen[bytes], socket.socket]:
        """Return the process that becomes a successor, and our end of the socket that is its stdin and its stderr."""
        ours, theirs = socket.socketpair()
        with theirs, contextlib.ExitStack() as undo:
            undo.callback(ours.close)
            process = subprocess.Popen(
                self._successor["command"], cwd=self._successor["cwd"], env=self._successor["environ"],
                stdin=theirs.fileno(), stdout=subprocess.DEVNULL, stderr=theirs.fileno(),
                pass_fds=[self._leases.fd], start_new_session=True,
            )  # fmt: skip
            undo.pop_all()
        return process, ours

    def _successor_input(self) -> bytes:
        """The kernel, as the successor reads it: see `failover.successor.RunningKernel`."""
        known = {key: self._successor[key] for key in ("settings", "ended")}
        info = {"pid": os.getpid(), "leases": self._leases.fd, "guard": self._guard.on}
        return json.dumps({**info, **known}).encode() + b"\n"

    # -------------------------------------------------------------------------------------- no successor

    def _end_without_keeper(self) -> None:
        """Wait for the running cell, at most for the limit, and end the kernel."""
        usage = self._guard.usage
        cells = usage.running_cells()
        until = f"when its running cell has ended, in {self._limit:.0f} s at the latest" if cells else "now"
        self._story.tell(
            "orphan", f"the kernel's keeper was killed; as nobody can reach the kernel, it ends {until}"
        )
        AgentRuntime().wait_until(lambda: cells.isdisjoint(usage.running_cells()), self._limit, interval=0.1)
        self._guard.run_last_hooks()
        self._end("its keeper was killed")

    def _end(self, cause: str) -> None:
        more: Any = {"cause": cause, "evidence": "the pipe to its keeper closed"}
        self._story.tell("end", f"the kernel ended after its keeper: {cause}", **more)
        own = find_descendants(os.environ.get(TAG, "") or "none", root=os.environ.get(ROOT, ""))
        end_all(AgentRuntime(), own)
        if os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)
        os._exit(1)


def _last_words(printed: bytes) -> str:
    return printed.decode("utf-8", "replace").strip()[-500:]
