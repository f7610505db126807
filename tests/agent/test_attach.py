"""What attach passes on from the hub to a keeper."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from typing import Any, Dict, Iterator, List, Optional, Tuple, cast

import pytest
from waiting import DEADLINE, readable

from jupyter_gpu_kernel.agent.mux.attach import MAX_PENDING, Router
from jupyter_gpu_kernel.agent.mux.handlers import RequestHandlers
from jupyter_gpu_kernel.wire.stream.frames import CHUNK, MAGIC, Frame, FrameReader, Kind, json_frame

OPEN = json_frame(Kind.REQUEST, {"do": "open", "kernel": "k", "attachment": 5}, number=1)


class Held(socket.socket):
    """A keeper's socket that, while bytes are sent, waits a moment for the one who replaces it."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(fileno=sock.detach())
        self.sending, self.replaced = threading.Event(), threading.Event()

    def send(self, *arguments: Any) -> int:
        sent = super().send(*arguments)
        self.sending.set()
        self.replaced.wait(0.3)
        return sent

    def close(self) -> None:
        super().close()
        self.replaced.set()


class Node:
    """Attach in a thread; `hub` writes to it, and `keeper` is the other end of the one socket that it opens."""

    def __init__(self, kind: int = socket.SOCK_SEQPACKET) -> None:
        stdin, self.hub = os.pipe()
        self._stdout, stdout = os.pipe()
        self.keeper, first = socket.socketpair(socket.AF_UNIX, kind)
        self.keeper.settimeout(DEADLINE)
        router = Router(cast(RequestHandlers, self), lambda: None, stdin, stdout)
        self._thread = threading.Thread(target=router.run)
        self._thread.start()
        self._fds = [stdin, self._stdout, stdout]
        assert os.read(self._stdout, len(MAGIC)) == MAGIC
        self.opens: List[Tuple[socket.socket, Optional[threading.Event]]] = [(first, None)]
        self._opened: List[socket.socket] = []
        assert self.asks(OPEN)["ok"]

    def open(self, kernel_id: str, request: Dict[str, Any]) -> Tuple[str, socket.socket]:
        """`opens` has the sockets, and what is waited for before."""
        sock, event = self.opens.pop(0)
        self._opened.append(sock)
        assert event is None or event.wait(DEADLINE)
        return kernel_id, sock

    def asks(self, request: Frame) -> Dict[str, Any]:
        os.write(self.hub, request.encode())
        return self.reply()

    def reply(self) -> Dict[str, Any]:
        assert readable(self._stdout)
        (reply,) = FrameReader(greeting=False).feed(os.read(self._stdout, 1 << 16))
        return reply.json()

    def handle(self, request: Dict[str, Any]) -> Dict[str, Any]:
        return {"came": readable(self.keeper.fileno(), 0)}

    def identity(self) -> str:
        return "node"

    def ask(self, *frames: Frame) -> Dict[str, Any]:
        """The frames come from the hub at once, with a request behind them, and much behind that: its reply."""
        request = json_frame(Kind.REQUEST, {"do": "interrupt"}, number=2)
        behind = [Frame(Kind.ACK, 5, 7)] * 3000
        os.write(self.hub, b"".join(frame.encode() for frame in (*frames, request, *behind)))
        return self.reply()

    def hears(self, *frames: Frame) -> List[List[Frame]]:
        """The frames come from the hub at once, and then a close: what the keeper gets, by write."""
        os.write(self.hub, b"".join(frame.encode() for frame in (*frames, Frame(Kind.CLOSE, 5))))
        writes = iter(lambda: self.keeper.recv(1 << 16), b"")
        return [FrameReader(greeting=False).feed(data) for data in writes]

    def flood(self) -> Frame:
        """More than the window allows comes from the hub, and the keeper reads nothing: what the hub gets first."""
        frame = Frame(Kind.DATA, 5, 1, 0x02, bytes(CHUNK)).encode()
        for _ in range(MAX_PENDING // CHUNK + 9):
            os.write(self.hub, frame)
        return FrameReader(greeting=False).feed(os.read(self._stdout, 1 << 16))[0]

    def close(self) -> None:
        os.close(self.hub)
        self._thread.join(DEADLINE)
        for fd in self._fds:
            os.close(fd)
        for sock in (self.keeper, *self._opened):
            sock.close()


@pytest.fixture
def node() -> Iterator[Node]:
    node = Node()
    yield node
    node.close()


def test_what_comes_at_once_wakes_the_keeper_once_and_a_close_loses_nothing(node: Node) -> None:
    frames = [
        Frame(Kind.ACK, 5, 7),
        Frame(Kind.DATA, 5, 8, 0x82, b"request"),
        Frame(Kind.DATA, 5, 9, 0x80, b"stop"),
    ]
    assert node.hears(*frames) == [frames]


def test_what_came_before_a_request_is_at_the_keeper_before_it(node: Node) -> None:
    assert node.ask(Frame(Kind.DATA, 5, 8, 0x82, b"a cell, which the request may interrupt"))["came"]


def test_an_attachment_that_is_replaced_while_its_keeper_is_written_to(node: Node) -> None:
    """Requests have their own threads. No other kernel notices."""
    first, keeper = map(Held, socket.socketpair())
    second, other = socket.socketpair()
    with keeper, other:
        node.opens = [(first, None), (second, first.sending)]
        assert node.asks(OPEN)["ok"]
        os.write(node.hub, OPEN.encode() + Frame(Kind.ACK, 5, 7).encode())
        assert node.reply()["ok"]
        assert node.asks(json_frame(Kind.REQUEST, {"do": "interrupt"}, number=2))["root"] == "node"
        os.write(node.hub, Frame(Kind.ACK, 5, 8).encode())
        other.settimeout(DEADLINE)
        assert other.recv(1 << 16) == Frame(Kind.ACK, 5, 8).encode()


def test_for_a_keeper_that_reads_nothing_no_more_is_kept_than_the_window_allows() -> None:
    with contextlib.closing(Node(socket.SOCK_STREAM)) as node:
        closed = node.flood()
    assert closed.kind is Kind.CLOSE and "more was sent" in closed.json()["reason"]
