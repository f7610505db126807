"""Front ends that do not read: what they are sent is bounded in bytes, and nothing is lost when they read again."""

from __future__ import annotations

import contextlib
import os
import queue
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import zmq
from fronts import Front
from jupyter_client.session import Session
from streams import LoopThread, until, wait_for

from jupyter_gpu_kernel.hub.front_end import front_ends as fronts_module
from jupyter_gpu_kernel.hub.front_end.front_ends import FrontEndSpec
from jupyter_gpu_kernel.hub.front_end.requests import MARGIN
from jupyter_gpu_kernel.hub.front_end.sockets import MAX_UNREAD
from jupyter_gpu_kernel.hub.kernel.remote_kernel import RemoteKernel
from jupyter_gpu_kernel.hub.node.link import Link
from jupyter_gpu_kernel.wire.messages import Channel, Message
from jupyter_gpu_kernel.wire.stream.queues import MAX_MESSAGE
from jupyter_gpu_kernel.wire.stream.window import MOST

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="the agent needs a POSIX system"),
]
MEGABYTE = "print('%d ' % i + 'x' * 1_000_000, flush=True)"
LINES = 24


@pytest.fixture(scope="module")
def remote(loop: LoopThread, link: Link) -> RemoteKernel:
    remote = loop.kernel(link)
    until(remote, "idle")
    (front,) = remote.front_ends
    loop.call(remote.front_ends.reconnect, front, FrontEndSpec(front.edge.connection, rate_limited=False))
    return remote


@contextlib.contextmanager
def subscriber(connection: dict[str, Any]) -> Iterator[zmq.Socket[bytes]]:
    """A client that reads iopub when it is asked to; libzmq reads one message ahead for it."""
    context = zmq.Context()
    socket: zmq.Socket[bytes] = context.socket(zmq.SUB)
    socket.rcvhwm, socket.rcvbuf, socket.linger = 1, 65536, 0
    socket.subscribe(b"")
    socket.connect(f"tcp://127.0.0.1:{connection['iopub_port']}")
    try:
        assert socket.poll(30_000), "it is welcomed"
        yield socket
    finally:
        context.destroy(linger=0)


def unread(remote: RemoteKernel) -> int:
    """Bytes in the hub for front ends."""
    return remote.core.relay.pacer._size + sum(
        one.size for front in remote.front_ends for one in front.edge._sockets._unread.values()
    )


def lines(socket: zmq.Socket[bytes], session: Session, enough: Callable[[str], bool]) -> str:
    """What was printed, as far as this client hears of it."""
    printed = ""
    while not enough(printed):
        assert socket.poll(30_000), printed.count("\n")
        message = session.deserialize(session.feed_identities(socket.recv_multipart())[1])
        printed += message["content"].get("text", "") if message["msg_type"] == "stream" else ""
    return printed


def numbers(printed: str) -> list[int]:
    return [int(line.split()[0]) for line in printed.splitlines() if line[:1].isdigit()]


def test_what_a_front_end_does_not_read_waits_on_the_node(loop: LoopThread, remote: RemoteKernel) -> None:
    """Then it gets all of it, once and in order."""
    connection = remote.edge.connection
    with subscriber(connection) as slow, Front(connection) as front:
        request = front.client.execute(f"for i in range({LINES}): {MEGABYTE}")
        wait_for(lambda: remote.core.relay.pacer.waiting > 0, "the hub waits")
        most = 0
        for _ in range(50):
            most = max(most, loop.call(unread, remote))
            time.sleep(0.02)
        assert most <= MAX_UNREAD + 2 * MOST + 4_000_000
        assert loop.call(lambda: remote.core.relay.pacer.oldest) > 0, "the rest is not acknowledged"
        session = Session(key=b"key")
        printed = lines(slow, session, lambda printed: printed.count("\n") >= LINES)
        assert numbers(printed) == list(range(LINES))
        assert front.finish(request).reply["status"] == "ok"
    wait_for(lambda: loop.call(unread, remote) < MAX_UNREAD, "nothing is left")


def test_one_that_does_not_read_does_not_hold_up_another(
    loop: LoopThread, remote: RemoteKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is hung up on, and told so when it is back."""
    monkeypatch.setattr(fronts_module, "STALL_TIMEOUT", 0.5)
    ports = dict.fromkeys((f"{name}_port" for name in ("shell", "iopub", "stdin", "control", "hb")), 0)
    spec = FrontEndSpec({**remote.edge.connection, **ports}, "other", rate_limited=False)
    other = loop.call(remote.front_ends.add, spec)
    with subscriber(other.edge.connection) as slow, Front(remote.edge.connection) as front:
        cell = front.run(f"for i in range({LINES}): {MEGABYTE}")
        assert numbers(cell.text) == list(range(LINES))
        front.run("print('the end')")
        lines(slow, Session(key=b"key"), lambda printed: "MB left out here" in printed)
        front.run("print('and on')")
        lines(slow, Session(key=b"key"), lambda printed: "and on" in printed)
    loop.call(remote.front_ends.remove, other)


def test_a_reader_keeps_its_output_where_a_stranger_does_not_read(
    loop: LoopThread, remote: RemoteKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody on this machine may subscribe to a TCP port. Who asks for more is alive, and loses nothing."""
    monkeypatch.setattr(fronts_module, "STALL_TIMEOUT", 0.5)
    with subscriber(remote.edge.connection), Front(remote.edge.connection) as front:
        request = front.client.execute(f"for i in range({LINES}): {MEGABYTE}")
        wait_for(lambda: remote.core.relay.pacer.waiting > 0, "the hub waits")
        printed = ""
        while len(numbers(printed)) < LINES:
            front.client.kernel_info()
            with contextlib.suppress(queue.Empty):
                message = front.client.get_iopub_msg(timeout=0.1)
                if message["parent_header"].get("msg_id") == request:
                    printed += message["content"].get("text", "")
        assert numbers(printed) == list(range(LINES))


def test_what_waits_for_the_node_is_bounded_and_refused_beyond(
    loop: LoopThread, remote: RemoteKernel
) -> None:
    session = Session(key=b"key")

    def request(msg_type: str, size: int) -> Message:
        header = session.msg_header(msg_type)
        parts = tuple(map(session.pack, (header, {}, {}, {"code": "1"})))
        return Message(Channel.SHELL, (front.number << 16) + 1, (*parts, bytes(size)))

    (front,) = remote.front_ends
    printed: list[tuple[Channel, bytes]] = []
    send = front.edge.send

    def received(message: Message) -> None:
        printed.append((message.channel, message.parts[3]))
        send(message)

    front.edge.send = received  # type: ignore[method-assign]
    loop.call(remote.hold)
    try:
        loop.call(remote._receive_request, front, request("comm_msg", MAX_MESSAGE - MARGIN - 10_000))
        loop.call(remote._receive_request, front, request("comm_msg", 2 * MARGIN))
        # the kernel itself may send something, too
        assert any(b"comm_msg was dropped: the requests that wait for" in content for _, content in printed)
        loop.call(remote._receive_request, front, request("execute_request", 2 * MARGIN))
        replies = [
            content for channel, content in printed if channel is Channel.SHELL
        ]  # also to requests of before
        assert sum(b"QueueFull" in reply for reply in replies) == 1
        assert len(remote.core.relay.table.waiting) == 1
    finally:
        front.edge.send = send  # type: ignore[method-assign]
        loop.call(remote.core.relay.table.clear, waiting=True)
        loop.call(remote.resume)
