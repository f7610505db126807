"""An edge and raw clients of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import zmq
from jupyter_client.session import Session
from runtimes import RUNTIME
from waiting import DEADLINE

from jupyter_gpu_kernel.hub.front_end.edge import Edge
from jupyter_gpu_kernel.wire.messages import Message

KEY = {"key": "key"}


class Meeting:
    """An edge, and raw clients of it."""

    def __init__(self) -> None:
        self.received: list[Message] = []
        self.subscribed = 0
        self.edge = Edge(RUNTIME, dict(KEY), self.received.append, self._subscribed)
        self.context = zmq.Context()
        self.clients: list[zmq.Socket[bytes]] = []

    def _subscribed(self) -> None:
        self.subscribed += 1

    def client(self, channel: str, kind: int = zmq.DEALER, identity: bytes = b"") -> zmq.Socket[bytes]:
        socket: zmq.Socket[bytes] = self.context.socket(kind)
        socket.linger = 0
        if identity:
            socket.identity = identity
        socket.connect(f"tcp://127.0.0.1:{self.edge.connection[f'{channel}_port']}")
        self.clients.append(socket)
        return socket

    async def until(self, condition: Callable[[], object]) -> None:
        async def look() -> None:
            while not condition():
                await asyncio.sleep(0.005)

        await asyncio.wait_for(look(), DEADLINE)


def meet(test: Callable[[Meeting], Awaitable[None]]) -> None:
    async def main() -> None:
        meeting = Meeting()
        try:
            await test(meeting)
        finally:
            meeting.edge.close()
            for client in meeting.clients:
                client.close()
            meeting.context.term()

    asyncio.run(main())


def request(key: bytes, msg_type: str = "kernel_info_request", **content: Any) -> list[bytes]:
    session = Session(key=key)
    return list(session.serialize(session.msg(msg_type, content)))
