"""The keeper's end of a kernel's process: starts it, and exchanges messages with it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from jupyter_gpu_kernel.agent.gpus.devices.gpu import NVIDIA, visible_uuids
from jupyter_gpu_kernel.agent.kernel_context import KernelContext
from jupyter_gpu_kernel.agent.kernel_protocol import returned
from jupyter_gpu_kernel.agent.kernel_settings import KernelSettings
from jupyter_gpu_kernel.wire.messages import Channel, Message

from .kernel import KILLED, ModelKernel, Parts
from .node_sockets import NodeSocket
from .world import Event, Process

if TYPE_CHECKING:
    from .keeper import KeeperProcess

_PIPE = 0.0004
"""Seconds at most from one end of a socket to the other."""


class _Pipe:
    """The keeper's pipe to its kernel."""

    def __init__(self, end: KernelEnd) -> None:
        self._end = end

    def write_successor(self, settings: KernelSettings, ended: Sequence[str]) -> bool:
        if self._end.model is not None:
            self._end.model.successor_settings, self._end.model.ended_before = settings, ended
        return True

    def write(self, message: dict[str, Any]) -> bool:
        if self._end.model is not None:
            self._end.process.world.later(
                0.001, self._end.model.marks_read, message["read"], process=self._end.model
            )
        return True

    def close(self) -> None:
        """The kernel has ended."""


class KernelEnd:
    """The keeper's end, in place of KernelProcess: starts the process, and exchanges messages with it, each socket's in
    order."""

    def __init__(
        self, process: KeeperProcess, context: KernelContext, on_message: Callable[..., None], on_mark: Any
    ) -> None:
        self.process, self.folder = process, context.folder
        self.lease_queue: NodeSocket = context.lease_queue  # type: ignore[assignment]
        self.pid = 0
        self.forked = False
        self.pipe = _Pipe(self)
        self.model: ModelKernel | None = None
        self.on_child: Callable[[], None] = lambda: None
        self.executed = process.node.world.executed
        self._world = process.node.world
        self._on_message, self._on_mark = on_message, on_mark
        self._random = self._world.random(
            f"kernel's sockets {process.node.started} {len(process.node.processes)}"
        )
        self._keeps: list[str] = []
        """The GPUs of a process that has ended for a restart."""
        self._connected = False
        self._coming: dict[Channel, deque[tuple[int, Parts, int]]] = {channel: deque() for channel in Channel}
        self._last: dict[tuple[str, Channel], float] = {}
        self._under_way: deque[Event] = deque(maxlen=20)  # to the kernel, or there already

    def start(self, python: str, env: dict[str, str], cwd: str | None, on_ready: Callable[[], None]) -> None:
        """Start a process, which is ready after a while."""
        self.model = ModelKernel(self, self.executed)
        self.pid = self.model.pid
        self.model.on_end = lambda: self._world.later(0.002, self.on_child, process=self.process)
        self._connected = False
        self._world.note("kernel starts", self.pid)
        uuids = self.process.node.uuids(visible_uuids(env, NVIDIA))
        if self.process.keeper.exit_report.cleanup.leaves:  # it was shut down since its restart was requested
            self._keeps = []
        if self._keeps != uuids and self._keeps:
            self._world.fail("GPUs lost in a restart", f"{self._keeps} became {uuids}")
        self.model.use_gpus(uuids, starts=True)
        model = self.model

        def ready() -> None:
            if self.model is model and model.running:
                self._connected = True
                model.publish_start()
                on_ready()

        self._world.later(self.process.node.delay(0.1, 0.8), ready, process=self.process)

    def adopt(self, process: ModelKernel, pipe: Any) -> None:
        """Take over a running kernel."""
        self.model, self.pid, process.end = process, process.pid, self
        self._connected = True

    def send(self, request: Message) -> None:
        """Send one message to the kernel; nothing, if the process has ended."""
        if self._connected and self.model is not None:
            fields = (request.channel, request.client, request.parts)
            event = self._in_order("to", request.channel, self.model.receive, *fields, process=self.model)
            self._under_way.append(event)
            self.process.step()

    def arrives(self, channel: Channel, client: int, parts: Parts, mark: int = 0) -> None:
        """The kernel sends a message, perhaps with a mark."""
        if self._connected:
            self._coming[channel].append((client, parts, mark))
            self._in_order("from", channel, self._take, channel, process=self.process)

    def _in_order(self, way: str, channel: Channel, callback: Any, *args: Any, process: Process) -> Event:
        at = max(self._world.now + self._random.uniform(0, _PIPE), self._last.get((way, channel), 0.0))
        self._last[way, channel] = at
        return self._world.later(at - self._world.now, callback, *args, process=process)

    def _take(self, channel: Channel) -> None:
        """Read what has arrived, perhaps already more than when this was due."""
        coming = self._coming[channel]
        if coming:
            client, parts, mark = coming.popleft()
            self._on_message(Message(channel, client, parts))
            if mark:
                self._on_mark(mark)

    def reap(self) -> int | None:
        """Return None while the process runs, then its return code."""
        return None if self.model is None else self.model.poll()

    def signal_group(self, number: int) -> None:
        """Only SIGKILL means something to the model."""
        if self.model is not None and number == 9:
            self.model.die(KILLED)

    def stderr_tail(self) -> str:
        """Return what it has written to stderr."""
        return ""

    def end(self) -> None:
        """The process has ended: read its last messages, and close the sockets."""
        for channel in (Channel.IOPUB, Channel.SHELL, Channel.STDIN, Channel.CONTROL):
            while self._coming[channel]:
                self._take(channel)
        restarts = self.process.keeper._end_request.word == "restart"
        self._keeps = self.model.gpus if self.model is not None and restarts else []
        self.model, self.pid, self._connected = None, 0, False

    @property
    def has_opened_gpus(self) -> bool:
        """Whether the process has opened its GPUs."""
        return self.model is not None and self.model.opened_gpus

    @property
    def cpu_seconds(self) -> float:
        """The model uses no CPU time beside its cells."""
        return 0.0

    def return_mark(self, total: int) -> None:
        """Tell the kernel how much was read."""
        self.pipe.write(returned(total))

    @property
    def runs_without_keeper(self) -> bool:
        """Whether the kernel of a killed keeper runs."""
        return self.model is not None and self.model.running

    def keeper_killed(self) -> None:
        """What was under way to the killed keeper is lost; perhaps also what it has sent, which ZeroMQ may not have
        written yet."""
        if self._random.random() < 0.5:
            for event in self._under_way:
                event.cancel()
        if self.model is not None:
            self.model.keeper_killed()
