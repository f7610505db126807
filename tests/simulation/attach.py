"""The `attach` process of one session, as a model: it routes frames, and opens kernels."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from jupyter_gpu_kernel.agent.kernel_settings import KernelSettings
from jupyter_gpu_kernel.wire.stream.frames import MAGIC, Frame, FrameReader, Kind, json_frame, reply_frame

from .keeper import KeeperProcess
from .network import Session, UnixSocket
from .world import AsyncLoop, Failure, Process

if TYPE_CHECKING:
    from .node import Node

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
            elif request["do"] == "job":
                reply = self._job(request)
            elif request["do"] == "offer":
                reply = await self._offer(request)
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
            self.world.takes += 1
            self.world.times["kernel gone"].append(self.world.now)
        elif keeper is not None and owner:
            now = await self._ask(keeper, {"do": "owner"})
            if now.get("owner") not in (owner["owner"], "", None):
                raise Refused("taken", f"kernel {kernel_id} was taken over by {now['by']}")
        if keeper is not None and not request.get("create", {"reservation": True}).get("reservation"):
            known = {
                key: request["create"][key] for key in ("notebook", "placement") if key in request["create"]
            }
            await self._ask(keeper, {**known, "do": "confirm"})
        if keeper is None and "create" in request:
            settings = KernelSettings.from_json({**request["create"], **owner, "id": kernel_id})
            keeper = await self._take_detached(settings, request)
            if keeper is None:
                await asyncio.sleep(self.node.delay(0.05, 0.4))
                keeper = await self._keeper(kernel_id) or self._create(settings)
        keeper = None if keeper is None else await self._keeper(keeper.kernel_id)  # it may have been killed
        if keeper is None:
            raise Refused("gone", f"kernel {kernel_id} has ended")
        self._attach(int(request["attachment"]), keeper)
        return {"ok": True, "kernel": keeper.kernel_id}

    def _job(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return what the process of a job says of it."""
        job = self.node.slurm and self.node.slurm.process_of(request["job"])
        if not job:
            raise Refused("job", "there is no process of this job")
        kernels = [one for one in job.kernels if self.node.has_processes(one)]
        return {"job": {"id": job.id, "kernels": kernels, "log": {"text": ""}}}

    async def _offer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return what this node offers to a kernel that has several hosts."""
        for keeper in self.node.keepers.values():
            settings = keeper.keeper.settings.now
            is_named = request.get("notebook") and not request.get("fresh")
            is_same = is_named and settings.notebook == request["notebook"]
            is_attached = keeper.alive and keeper.keeper.server.attached
            if settings.owner == request.get("owner") and settings.id not in request["attached_ids"]:
                is_attached = False  # by a dead connection of the hub that asks, or of a killed one
            is_free = self.node.has_processes(settings.id) and not (settings.reservation or is_attached)
            is_same = is_same or settings.id == request.get("id")
            if is_same and is_free and keeper.keeper.status.state != "ended":
                return {"detached": 1.0}
        gpus = self.node.gpus
        assert gpus is not None
        await asyncio.sleep(gpus.reading())
        free, usable = gpus.free(), [one.uuid for one in gpus.gpus]
        return {
            "enough": bool(free),
            "idle": len(free) == len(usable),
            "memory": 40_000 * bool(free),
            "waiting": 0,
            "usable": usable,
            "problem": "",
            "never": False,
        }

    def _create(self, settings: KernelSettings) -> KeeperProcess:
        """Start the kernel, perhaps in a job."""
        if settings.job:
            job = self.node.slurm and self.node.slurm.process_of(settings.job)
            if not job:
                raise Refused("job", "there is no process of this job")
            job.kernels.add(settings.id)
        return self.node.create(settings)

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
            if state.get("reservation") or not self._is_in(settings.job, keeper):
                continue
            if state.get("notebook") != settings.notebook or state["state"] == "ended":
                continue
            if not state["attached"] or (
                state["owner"] == settings.owner and state["id"] not in request["attached_ids"]
            ):
                answer = {"owner": settings.owner, "by": settings.by, "notebook": settings.notebook}
                await self._ask(keeper, dict(answer, do="return", others=[]))
                return keeper
        return None

    def _is_in(self, job_id: str, keeper: KeeperProcess) -> bool:
        """Whether the kernel can be used in this job; "" for a kernel without one."""
        job = self.node.slurm and self.node.slurm.process_of(job_id) if job_id else None
        return not job or keeper.kernel_id in job.kernels

    async def _ask(self, keeper: KeeperProcess, request: dict[str, Any]) -> dict[str, Any]:
        """Return the reply of the keeper, or of its successor if it is killed meanwhile."""
        reply = await self._ask_now(keeper, request)
        successor = await self._keeper(keeper.kernel_id) if reply is None else None
        if successor is not None:
            reply = await self._ask_now(successor, request)
        if reply is None:
            raise Refused("gone", "the keeper hung up")
        return reply

    async def _ask_now(self, keeper: KeeperProcess, request: dict[str, Any]) -> dict[str, Any] | None:
        """Return the reply of the keeper; None if it hangs up."""
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
                reply.set_result(None)

        sock.on_output, sock.on_close = read, closed
        sock.feed(json_frame(Kind.REQUEST, request, number=1).encode())
        try:
            answer: dict[str, Any] | None = await reply
            return answer
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
