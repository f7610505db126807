"""The kernel's process: forked, started or taken over, signalled, and reaped; with its sockets."""

from __future__ import annotations

import os
import signal
from typing import Callable, Dict, Optional

from ...wire.messages import Message
from ..failover.keeper_pipe import KeeperPipe
from ..kernel_context import KernelContext
from ..kernel_protocol import returned
from ..paths import agent_command, read_tail
from ..spare.client import Spare
from ..spare.places import KernelStart
from ..system.agent_runtime import Process, Streams
from ..system.procfs import has_opened_gpus, tree_cpu
from .kernel_sockets import KernelSockets

STDERR_TAIL = 4000
PREPARE_AFTER = 2.0
"""Seconds that a kernel has been ready when the next start is prepared, which takes CPU time."""


class KernelProcess:
    """One ipykernel. `on_message(message)` is called for every message of it, and `on_mark(total)` after one with a
    mark."""

    def __init__(
        self,
        context: KernelContext,
        on_message: Callable[[Message], None],
        on_mark: Callable[[int], object],
        spare: Spare,
    ) -> None:
        """`spare`: from which the process is forked, if that is possible."""
        self.folder = context.folder
        self.pid = 0
        self.forked = False
        """Whether the present process was forked from a spare interpreter."""
        self.pipe = KeeperPipe()
        self._loop = context.loop
        self._lease_queue = context.lease_queue
        self._sockets = KernelSockets(context.loop, context.folder, on_message, on_mark)
        self._spare = spare
        self._process: Optional[Process] = None
        self._last_start: Optional[KernelStart] = None
        self._ready_fd = -1  # the process writes to it when its sockets are bound

    @property
    def has_opened_gpus(self) -> bool:
        """Whether the process has opened GPUs, or may have: then they are free only after its end."""
        return has_opened_gpus(self.pid) is not False

    @property
    def cpu_seconds(self) -> float:
        """The CPU time of all processes in the session that the process leads, and of their reaped children."""
        return tree_cpu(self.pid)

    def start(
        self, python: str, env: Dict[str, str], cwd: Optional[str], on_ready: Callable[[], None]
    ) -> None:
        """Start the process in a session of its own. `on_ready()` is called when its sockets are bound. Raises OSError
        if the process cannot be started."""
        self._sockets.write_connection_file()
        read_fd, write_fd = os.pipe()
        keeper_fd = self.pipe.open()
        env = {name: value for name, value in env.items() if name != "JPY_PARENT_PID"}
        command = [*agent_command(python), "ipykernel", "-f", str(self._sockets.connection_file)]
        command.append("--HistoryManager.hist_file=:memory:")
        log = os.open(str(self.folder / "stderr"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        fds = {"JUPYTER_GPU_KERNEL_READY_FD": write_fd, "JUPYTER_GPU_KERNEL_KEEPER_FD": keeper_fd}
        fds["JUPYTER_GPU_KERNEL_LEASES_FD"] = self._lease_queue.fileno()
        start = KernelStart(command, command.index("ipykernel") + 1, cwd or os.getcwd(), env, log, fds)
        try:
            self._process = self._fork_or_start(start)
        except BaseException:
            os.close(read_fd)
            self.pipe.close()
            raise
        finally:
            os.close(write_fd)
            os.close(keeper_fd)
            os.close(log)
        self._last_start = start
        self.pid = self._process.pid
        self._ready_fd = read_fd
        os.set_blocking(read_fd, False)
        self._loop.watch(read_fd, lambda _: self._ready(on_ready))

    def _fork_or_start(self, start: KernelStart) -> Process:
        forked = self._spare.fork(start)
        self.forked = forked is not None
        if forked is not None:
            return forked
        env = {**start.env, **{name: str(fd) for name, fd in start.fds.items()}}
        # The process inherits this: a SIGTERM waits until its guard is there, or ends it then.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        try:
            return self._loop.runtime.start(
                start.command,
                Streams(start.output),
                cwd=start.cwd,
                env=env,
                pass_fds=start.fds.values(),
                core_files=True,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def adopt(self, process: Process, pipe: KeeperPipe) -> None:
        """Take over a running kernel whose keeper was killed. Raises OSError or ValueError if its folder is damaged."""
        self._sockets.read_connection_file()
        self._process, self.pid, self.pipe = process, process.pid, pipe
        self._sockets.connect()

    def send(self, request: Message) -> None:
        """Send one message to the kernel; nothing, if the process has ended."""
        self._sockets.send(request)

    def reap(self) -> Optional[int]:
        """Return None while the process runs, then its return code (negative: a signal)."""
        self._spare.reap()
        return None if self._process is None else self._process.poll()

    def signal_group(self, number: int) -> None:
        """Send a signal to the kernel and those of its children that stayed in its process group."""
        if self._process is not None:
            self._loop.runtime.signal_group(self._process.pid, number)

    def stderr_tail(self) -> str:
        """The last lines that the process wrote to stderr before its sockets were bound, or beside them."""
        return read_tail(self.folder / "stderr", STDERR_TAIL)

    def end(self) -> None:
        """After the process has ended: end its process group, read its last messages, close the sockets."""
        self.signal_group(signal.SIGKILL)  # a forked child holds sockets open
        self._sockets.close()
        self._close_ready()
        self.pipe.close()
        self._process = None
        self.pid = 0

    def _ready(self, on_ready: Callable[[], None]) -> None:
        try:
            ready = os.read(self._ready_fd, 1)
        except BlockingIOError:  # the event belongs to an earlier process with the same descriptor
            return
        self._close_ready()
        if ready:  # else the process has ended, and `reap` returns its status
            self._sockets.connect()
            on_ready()
            self._loop.later(PREPARE_AFTER, self._prepare_next_start)

    def _prepare_next_start(self) -> None:
        """See to it that the next start can be a fork."""
        if self._last_start is not None and self.pid:
            self._spare.ensure(self._last_start)

    def return_mark(self, total: int) -> None:
        """Tell the process that so many bytes of its output need not be kept any more."""
        self.pipe.write(returned(total))

    def _close_ready(self) -> None:
        if self._ready_fd >= 0:
            self._loop.forget(self._ready_fd)
            os.close(self._ready_fd)
        self._ready_fd = -1
