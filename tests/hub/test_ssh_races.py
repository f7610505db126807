"""What can happen between two steps of the event loop and of paramiko's threads, made to happen."""

from __future__ import annotations

import asyncio
import queue
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import paramiko
import pytest
from house import House
from played_agent import Socket
from waiting import DEADLINE, eventually

from jupyter_gpu_kernel.hub.node.arrivals import Consumer
from jupyter_gpu_kernel.hub.node.stream import StreamThreads
from jupyter_gpu_kernel.hub.ssh.transport import WINDOW, Transport
from jupyter_gpu_kernel.wire.frames import MAGIC, Frame, Kind

OPEN_SUCCESS, WINDOW_ADJUST, DATA = b"\x5b", b"\x5d", b"\x5e"


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.SelectorEventLoop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join(DEADLINE)
    loop.close()


def pushed(
    here: House, loop: asyncio.AbstractEventLoop
) -> tuple[Transport, paramiko.Channel, paramiko.Transport]:
    """A connection that the loop reads by now, its channel, and the server's end."""
    connection = here.connect(None, here.key)
    transport = connection.last_transport
    assert transport is not None
    channel = transport.open_session(WINDOW, timeout=DEADLINE)
    transport.receive_on(loop)
    packetizer: Any = transport.packetizer
    eventually(lambda: packetizer._source is not None, "the loop pushes")
    return transport, channel, here.transports[-1]


def message(kind: bytes, *numbers: int) -> paramiko.Message:
    m = paramiko.Message()
    m.add_byte(kind)
    for number in numbers:
        m.add_int(number)
    return m


def test_a_server_may_open_the_window_right_after_the_channel(
    loop: asyncio.AbstractEventLoop, house: Callable[..., House]
) -> None:
    """The loop reads both messages at once, and paramiko's thread handles the first one later."""
    transport, _, server = pushed(house("publickey"), loop)
    packetizer: Any = server.packetizer
    send, write = packetizer.send_message, packetizer.write_all

    def send_both(m: paramiko.Message) -> None:
        opened = paramiko.Message(m.asbytes())
        if opened.get_byte() != OPEN_SUCCESS:
            return send(m)  # type: ignore[no-any-return]
        ours, theirs = opened.get_int(), opened.get_int()
        written: list[bytes] = []
        packetizer.write_all = written.append
        send(message(OPEN_SUCCESS, ours, theirs, 0, 32768))
        send(message(WINDOW_ADJUST, ours, 100_000))
        packetizer.write_all = write
        write(b"".join(written))

    packetizer.send_message = send_both
    for _ in range(5):
        channel: Any = transport.open_session(timeout=DEADLINE)
        eventually(lambda: channel.out_window_size == 100_000, "an open window")  # noqa: B023 (called at once)


class SlowQueue(queue.SimpleQueue):  # type: ignore[type-arg]
    """Nothing is taken from it until it is full; whoever asks for its size then loses all that time."""

    def __init__(self) -> None:
        super().__init__()
        self.full = threading.Event()

    def get(self, *args: Any, **more: Any) -> Any:
        self.full.wait(DEADLINE)
        return super().get(*args, **more)

    def qsize(self) -> int:
        size = super().qsize()
        if size >= 99:
            self.full.set()
            eventually(self.empty, "all to be taken")
            return 100
        return size


def test_a_full_queue_that_is_emptied_at_once_holds_nothing_up(
    loop: asyncio.AbstractEventLoop, house: Callable[..., House]
) -> None:
    transport, channel, server = pushed(house("publickey"), loop)
    packetizer: Any = transport.packetizer
    before, packetizer._queue = packetizer._queue, SlowQueue()
    before.put(None)  # the transport's thread looks again
    for _ in range(150):
        server.send_ignore(10)
    after = message(DATA, channel.get_id())
    after.add_string(b"after")
    server._send_message(after)  # type: ignore[attr-defined]
    channel.settimeout(DEADLINE)
    assert channel.recv(100) == b"after"


def test_nothing_is_sent_over_a_channel_that_is_being_closed(
    loop: asyncio.AbstractEventLoop, house: Callable[..., House]
) -> None:
    """A server may end the whole connection because of it."""
    transport, channel, _ = pushed(house("publickey"), loop)
    packetizer: Any = transport.packetizer
    lock = packetizer.sending

    class Contended:
        """Another thread closes the channel before we get the lock."""

        def __enter__(self) -> None:
            lock.acquire()

        def __exit__(self, *error: object) -> None:
            lock.release()

        def acquire(self, blocking: bool = True) -> bool:
            if not blocking:
                closer = threading.Thread(target=channel.close)
                closer.start()
                closer.join(DEADLINE)
            return lock.acquire(blocking)

        def release(self) -> None:
            lock.release()

    packetizer.sending = Contended()
    assert not transport.try_send(channel, b"late")
    assert channel.closed


def test_what_comes_last_is_taken_before_the_end() -> None:
    """Another thread brings it, and the end, while the loop is at work with what came before."""
    ours, theirs = socket.socketpair()
    ping, pong = Frame(Kind.PING).encode(), Frame(Kind.PONG).encode()

    class Pushing(Socket):
        consumer: Consumer

        def pass_on(self, consumer: Consumer, loop: asyncio.AbstractEventLoop, /) -> None:
            self.consumer = consumer
            consumer.feed(MAGIC + ping)

        def consumed(self, size: int, /) -> None:
            pass

        def try_write(self, data: bytes, /) -> bool:
            return False

    def end(consumer: Consumer) -> None:
        consumer.feed(pong)
        consumer.end()

    async def main() -> list[Kind]:
        stream = Pushing(theirs)
        kinds: list[Kind] = []

        def on_frame(frame: Frame) -> None:
            kinds.append(Kind(frame.kind))
            if kinds == [Kind.PING]:
                ending = threading.Thread(target=end, args=(stream.consumer,))
                ending.start()
                ending.join(DEADLINE)

        wire = StreamThreads(stream, asyncio.get_running_loop(), on_frame, lambda: None, "gpu2")
        await asyncio.wait_for(wire.ended, DEADLINE)
        wire.close()
        return kinds

    assert asyncio.run(main()) == [Kind.PING, Kind.PONG]
    ours.close()
    theirs.close()
