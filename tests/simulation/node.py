"""The work node: `attach` for each session, keepers, and the kernels whose processes outlive their keepers."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jupyter_gpu_kernel.agent.exit.reason import EndFacts, ExitReason, explain
from jupyter_gpu_kernel.agent.failover.successor import RunningKernel, Successor
from jupyter_gpu_kernel.agent.keeper.keeper import Keeper
from jupyter_gpu_kernel.agent.kernel_settings import KernelSettings
from jupyter_gpu_kernel.agent.paths import Root
from jupyter_gpu_kernel.agent.policy import Policy
from jupyter_gpu_kernel.agent.story import Story
from jupyter_gpu_kernel.wire.frames import MAGIC, Frame, FrameReader, Kind, json_frame, reply_frame

from .kernel import CRASHED, KernelEnd, ModelKernel
from .network import Listener, Session, UnixSocket
from .network import Path as NetworkPath
from .world import AsyncLoop, Failure, KeeperLoop, Process, SimulatedRuntime, World

SILENCE = 60.0
"""Seconds without data from the hub after which `attach` ends."""
SUCCESSOR_TIMEOUT = 25.0
_ROUTED = (Kind.HELLO, Kind.DATA, Kind.ACK)
_PIECE = 128 * 1024


class Refused(Exception):
    """What `attach` refuses. `code`: one word."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class NoProcesses:
    """In place of ProcessControl: nothing is started."""

    def start(self, *_: Any, **__: Any) -> Any:
        raise OSError("the simulation has no processes")

    def read_output(self, *_: Any) -> bytes:
        raise OSError("the simulation has no processes")


class _Cleanup:
    """Nothing is left of a simulated kernel."""

    alive = False

    def terminate(self, *_: Any) -> list[Any]:
        return []

    def kill(self) -> None:
        """Nothing runs."""


class _ExitReport:
    """Explains a kernel's end by the real rules, from what the model knows."""

    def __init__(self, loop: Any, story: Story) -> None:
        self.cleanup = _Cleanup()
        self.reason = ExitReason("")
        self._loop, self._story = loop, story
        self._stop_reason = ""
        self._signal = 0

    def process_started(self, *_: Any, **__: Any) -> dict[str, Any]:
        return {}

    def guard_switched(self, on: bool) -> None:
        """Nothing depends on it."""

    def signal_sent(self, number: int) -> None:
        self._signal = number

    def stop_requested(self, reason: str) -> None:
        self._stop_reason = reason

    def explain(self, returncode: int, requested: str, _: Any, __: Any, done: Callable[[str], None]) -> None:
        self.reason = explain(EndFacts(returncode, requested, self._stop_reason, self._signal))
        text = f"the kernel ended: {self.reason}"
        self._story.tell("end", text, returncode=returncode, asked=requested)
        if requested:
            done(text)
        else:
            self._loop.run_in_thread(lambda: None, lambda _: done(text))


class _Signals:
    """No kernel gets a SIGTERM."""

    def __init__(self) -> None:
        self.last_sigterm: dict[str, Any] = {}

    def watch_cell(self) -> None:
        """There is nothing to watch for."""

    def read_reports(self) -> None:
        """The guard has reported nothing."""


class _System:
    """What a keeper uses of this node."""

    def __init__(self, process: KeeperProcess) -> None:
        self.process = process
        self.processes = NoProcesses()
        self.loop = KeeperLoop(process, process.node.runtime)

    def listen(self, path: Path, _: int) -> Listener:
        self.process.listener = Listener(self.process.world, self.process, self.loop)
        return self.process.listener

    def kernel(self, folder: Path, on_message: Any, on_mark: Any, _: Any) -> KernelEnd:
        return KernelEnd(self.process, folder, on_message, on_mark)

    def running_process(self, pid: int, on_end: Callable[[], Any]) -> ModelKernel:
        kernel = self.process.node.processes[pid]
        kernel.on_end = lambda: self.loop.later(0.001, on_end)
        return kernel

    def exit_report(self, folder: Path, story: Story) -> _ExitReport:
        return _ExitReport(self.loop, story)

    def signals(
        self, kernel: KernelEnd, cells: Any, story: Story, on_child: Callable[[], None], _: Any
    ) -> _Signals:
        kernel.on_child = on_child
        return _Signals()


class KeeperProcess(Process):
    """A keeper: the real one, on this node. `ended`: it has cleaned up."""

    def __init__(self, node: Node, settings: KernelSettings, running: RunningKernel | None = None) -> None:
        super().__init__(node.world, f"keeper of {settings.id}")
        self.node, self.kernel_id = node, settings.id
        self.listener: Listener
        self.sockets: list[Any] = []
        self.system = _System(self)
        self.ended = False
        if running is None:
            self.keeper = Keeper(self.system, node.root, settings, Policy(Path("none")))  # type: ignore[arg-type]
        else:
            self.keeper = Successor(self.system, node.root, running)  # type: ignore[arg-type]

    def begin(self) -> None:
        """Start the kernel, or take it over."""
        self.keeper.begin()

    def after_event(self) -> None:
        if self.system.loop.stopped and not self.ended:
            self.ended = True
            self.keeper.clean_up()
            self.world.note("keeper ends", self.kernel_id)
            self.alive = False

    def kill(self) -> None:
        """SIGKILL: nothing is cleaned up but what the system does."""
        self.world.note("keeper killed", self.kernel_id)
        self.alive = False
        self.release()
        self.keeper.kernel.keeper_killed()

    def release(self) -> None:
        """The system closes what the process had open."""
        for sock in self.sockets:
            sock.close()
        self.keeper.replacement.close()
        self.keeper._backlog.close()

    @property
    def story(self) -> list[dict[str, Any]]:
        """What the keeper has told."""
        return [json.loads(line) for line in self.keeper.story.path.read_bytes().splitlines()]


class Node:
    """`dial` opens sessions. `keepers`: the last one of each kernel. `processes`: kernels by process id."""

    def __init__(self, world: World, folder: Path, path: NetworkPath) -> None:
        self.world, self.path = world, path
        self.runtime = SimulatedRuntime(world, "node")
        self.random = world.random("node's times")
        folder.mkdir(mode=0o700)
        self.root = Root(folder)
        self.keepers: dict[str, KeeperProcess] = {}
        self.processes: dict[int, ModelKernel] = {}
        self.attached: list[Attach] = []
        self.started = 0
        self.slow = 0.0
        self.replaced = True
        self.on_death: Callable[[str], None] = lambda kind: None

    def new_process(self, process: ModelKernel) -> int:
        """Return the id of a new process."""
        self.started += 1
        self.processes[(1 << 23) + self.started] = process
        return (1 << 23) + self.started

    def dial(self) -> Session:
        """Return a session with an `attach`."""
        session = self.path.session()
        self.attached = [one for one in self.attached if one.alive] + [Attach(self, session)]
        return session

    def delay(self, least: float, most: float) -> float:
        """Return how long something takes here."""
        return self.random.uniform(least, most) + self.slow

    def create(self, settings: KernelSettings) -> KeeperProcess:
        """Start a keeper with its kernel."""
        keeper = self.keepers[settings.id] = KeeperProcess(self, settings)
        keeper.begin()
        return keeper

    def succeed(self, kernel: ModelKernel) -> None:
        """The kernel's keeper was killed: a successor takes over."""
        if not kernel.running or not self.replaced:
            return
        settings = kernel.successor_settings
        assert settings is not None
        running = RunningKernel(kernel.pid, -1, list(kernel.gpus), True, settings)
        keeper = self.keepers[settings.id] = KeeperProcess(self, settings, running)
        self.world.note("successor", settings.id)
        keeper.begin()

    def reboot(self) -> None:
        """Nothing is left of keepers and kernels."""
        for keeper in self.keepers.values():
            if keeper.alive:
                self.world.note("reboot", keeper.kernel_id)
                keeper.alive, keeper.ended = False, True
                keeper.release()
                kernel = keeper.keeper.kernel.model
                if kernel is not None:
                    kernel.on_end = lambda: None
                    kernel.die(CRASHED)
                shutil.rmtree(keeper.keeper.folder, ignore_errors=True)

    def close(self) -> None:
        """Remove what is left of an episode."""
        for keeper in self.keepers.values():
            keeper.release()
        shutil.rmtree(self.root.path, ignore_errors=True)


class Attach(Process):
    """The `attach` process of one session, as a model: it routes frames, and opens kernels."""

    def __init__(self, node: Node, session: Session) -> None:
        super().__init__(node.world, "attach")
        self.node, self.session = node, session
        self._async = AsyncLoop(self)
        self._reader = FrameReader(greeting=False)
        self._links: dict[int, tuple[UnixSocket, FrameReader]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._last = self.world.now
        session.up.deliver = self._from_hub
        session.down.on_room = self._read_all
        session.on_node_end = self.end
        self.world.later(node.delay(0.01, 0.05), session.down.write, MAGIC, process=self)
        self.world.later(SILENCE, self._look, process=self)

    def end(self) -> None:
        """The end of stdin, or of patience."""
        self.alive = False
        for sock, _ in self._links.values():
            sock.hang_up()
        self._links.clear()

    def _look(self) -> None:
        left = self._last + SILENCE - self.world.now
        if left > 0:
            self.world.later(left, self._look, process=self)
        else:
            self.end()
            self.session.close_by_node()

    def _from_hub(self, data: bytes) -> None:
        if not self.alive:
            return
        self._last = self.world.now
        for frame in self._reader.feed(data):
            if frame.kind is Kind.PING:
                self._write(Frame(Kind.PONG, number=frame.number))
            elif frame.kind is Kind.REQUEST:
                self._async.call_soon(self._request, frame)
            elif frame.kind is Kind.CLOSE:
                self._drop(frame.attachment)
            elif frame.attachment in self._links:
                self._links[frame.attachment][0].feed(frame.encode())
            else:
                self._closed(frame.attachment, "no such attachment")

    def _write(self, frame: Frame) -> None:
        self.session.down.write(frame.encode())

    def _closed(self, number: int, reason: str) -> None:
        self._write(json_frame(Kind.CLOSE, {"reason": reason}, attachment=number))

    def _drop(self, number: int, reason: str | None = None) -> None:
        link = self._links.pop(number, None)
        if link is not None:
            link[0].hang_up()
            if reason is not None:
                self._closed(number, reason)

    def _read_all(self) -> None:
        for number in list(self._links):
            self._read(number)

    def _read(self, number: int) -> None:
        """Pass on what the keeper has written, as far as the session takes it."""
        while number in self._links and self.session.down.has_room and self.alive:
            sock, reader = self._links[number]
            data = sock.read(_PIECE)
            if not data:
                return self._drop(number, "the keeper closed the connection") if sock.closed else None
            frames = reader.feed(data)
            if not all(frame.kind in _ROUTED for frame in frames):
                raise Failure("protocol", f"the keeper sent {frames}")
            self.session.down.write(b"".join(frame._replace(attachment=number).encode() for frame in frames))

    # ------------------------------------------------------------------------------------ requests

    def _request(self, frame: Frame) -> None:
        task = self._async.create_task(self._handle(frame))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _handle(self, frame: Frame) -> None:
        request = frame.json()
        try:
            await asyncio.sleep(self.node.delay(0.002, 0.02))
            if request["do"] == "open":
                reply = await self._open(request)
            else:
                reply = await self._forward(request)
        except Refused as error:
            reply = {"error": {"code": error.code, "text": str(error)}}
        self._write(reply_frame(reply, frame.number))

    async def _forward(self, request: dict[str, Any]) -> dict[str, Any]:
        keeper = await self._keeper(str(request["kernel"]))
        if keeper is None:
            raise Refused("gone", "there is no such kernel")
        return await self._ask(keeper, request)

    async def _open(self, request: dict[str, Any]) -> dict[str, Any]:
        kernel_id = str(request["kernel"])
        owner = {key: request[key] for key in ("owner", "by") if key in request}
        keeper = await self._keeper(kernel_id)
        if keeper is not None and "attach" in request:
            await self._ask(keeper, dict(owner, do="return"))
        elif keeper is not None and owner:
            now = await self._ask(keeper, {"do": "owner"})
            if now.get("owner") not in (owner["owner"], "", None):
                raise Refused("taken", f"{now['by']} has kernel {kernel_id} now")
        if keeper is None and "create" in request:
            settings = KernelSettings.from_json({**request["create"], **owner, "id": kernel_id})
            keeper = await self._take_detached(settings, request)
            if keeper is None:
                await asyncio.sleep(self.node.delay(0.05, 0.4))
                keeper = await self._keeper(kernel_id) or self.node.create(settings)
        if keeper is None:
            raise Refused("gone", f"kernel {kernel_id} has ended")
        self._attach(int(request["attachment"]), keeper)
        return {"ok": True, "kernel": keeper.kernel_id}

    async def _keeper(self, kernel_id: str) -> KeeperProcess | None:
        """Return the kernel's keeper, or the successor of a killed one."""
        deadline = self.world.now + SUCCESSOR_TIMEOUT
        while True:
            keeper = self.node.keepers.get(kernel_id)
            if keeper is None or (keeper.alive and not keeper.listener.closed):
                return keeper
            if keeper.ended or not keeper.keeper.kernel.runs_without_keeper:
                return None
            if self.world.now > deadline:
                raise Refused("unresponsive", "no other keeper has taken over yet")
            await asyncio.sleep(0.05)

    async def _take_detached(self, settings: KernelSettings, request: dict[str, Any]) -> KeeperProcess | None:
        """Return the keeper of the kernel that this notebook has left."""
        if not settings.notebook or settings.fresh:
            return None
        for keeper in list(self.node.keepers.values()):
            if not keeper.alive or keeper.listener.closed:
                continue
            state = await self._ask(keeper, {"do": "status"})
            if state.get("notebook") != settings.notebook or state["state"] == "ended":
                continue
            if not state["attached"] or (
                state["owner"] == settings.owner and state["id"] not in request["attached_ids"]
            ):
                answer = {"owner": settings.owner, "by": settings.by, "notebook": settings.notebook}
                await self._ask(keeper, dict(answer, do="return", others=[]))
                return keeper
        return None

    async def _ask(self, keeper: KeeperProcess, request: dict[str, Any]) -> dict[str, Any]:
        sock, reader, reply = (
            keeper.listener.connect(),
            FrameReader(greeting=False),
            self._async.create_future(),
        )

        def read() -> None:
            for frame in reader.feed(sock.read(_PIECE)):
                if not reply.done():
                    reply.set_result(frame.json())

        def closed() -> None:
            if not reply.done():
                reply.set_exception(Refused("gone", "the keeper hung up"))

        sock.on_output, sock.on_close = read, closed
        sock.feed(json_frame(Kind.REQUEST, request, number=1).encode())
        try:
            return dict(await reply)
        finally:
            sock.hang_up()

    def _attach(self, number: int, keeper: KeeperProcess) -> None:
        self._drop(number)
        if keeper.listener.closed:
            raise Refused("gone", "the keeper has ended")
        sock = keeper.listener.connect()
        self._links[number] = (sock, FrameReader(greeting=False))
        sock.on_output = lambda: self._read(number)
        sock.on_close = lambda: self._read(number)
