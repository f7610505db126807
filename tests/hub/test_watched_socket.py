"""A ZeroMQ socket on the event loop: its descriptor reports a change only once, so nothing may be left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest
import zmq

from jupyter_gpu_kernel.hub.front_end.watched_socket import _TURN, WatchedSocket

MANY = 5 * _TURN + 3

Pair = tuple["zmq.Socket[bytes]", "zmq.Socket[bytes]"]


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Our socket and a client's, which is connected; both without a limit."""
    with zmq.Context() as context, context.socket(zmq.PAIR) as ours, context.socket(zmq.PAIR) as client:
        for socket in (ours, client):
            socket.sndhwm = socket.rcvhwm = socket.linger = 0
        client.connect(f"tcp://127.0.0.1:{ours.bind_to_random_port('tcp://127.0.0.1')}")
        client.send(b"connected")
        assert ours.recv() == b"connected"
        yield ours, client


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


def run(main: Awaitable[None]) -> None:
    async def limited() -> None:
        await asyncio.wait_for(main, 60)

    asyncio.run(limited())


def test_what_came_before_the_socket_was_watched_is_received(pair: Pair) -> None:
    ours, client = pair
    client.send(b"early")
    assert ours.poll(10_000)  # its descriptor has reported it

    async def main() -> None:
        got: list[list[bytes]] = []
        watched = WatchedSocket(ours, got.append)
        await until(lambda: bool(got))
        assert got == [[b"early"]]
        watched.close(linger=0)

    run(main())


def test_messages_that_are_left_after_a_turn_come_in_the_next(pair: Pair) -> None:
    """Others have their turn meanwhile."""
    ours, client = pair
    numbers = [b"%d" % number for number in range(MANY)]

    async def main() -> None:
        got: list[bytes] = []
        longest = before = 0
        watched = WatchedSocket(ours, lambda frames: got.extend(frames))
        for number in numbers:
            client.send(number)
        while len(got) < MANY:
            await asyncio.sleep(0)
            longest, before = max(longest, len(got) - before), len(got)
        assert got == numbers and longest <= 2 * _TURN  # one of the descriptor, one that was scheduled
        watched.close(linger=0)

    run(main())


def test_what_comes_while_we_send_is_received(pair: Pair) -> None:
    """Sending processes what came meanwhile, and the descriptor does not report that again."""
    ours, client = pair

    async def main() -> None:
        got: list[list[bytes]] = []
        watched = WatchedSocket(ours, got.append)
        for number in range(200):
            client.send(b"%d" % number)
            watched.send([b"answer"])
            assert client.recv() == b"answer"
            watched.send([b"answer"])
            assert client.recv() == b"answer"
            await until(lambda number=number: len(got) > number)  # type: ignore[misc]
        watched.close(linger=0)

    run(main())


def test_a_receiver_that_sends_hundreds_of_answers_misses_nothing(pair: Pair) -> None:
    ours, client = pair

    async def main() -> None:
        got: list[list[bytes]] = []

        def receive(frames: list[bytes]) -> None:
            got.append(frames)
            watched.send(frames)

        watched = WatchedSocket(ours, receive)
        for number in range(MANY):
            client.send(b"%d" % number)
        await until(lambda: len(got) == MANY)
        assert [await asyncio.to_thread(client.recv) for _ in range(MANY)] == [frames[0] for frames in got]
        watched.close(linger=0)

    run(main())


def test_an_error_in_a_receiver_is_reported_and_the_next_messages_come(pair: Pair) -> None:
    ours, client = pair
    reported: list[object] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, about: reported.append(about["exception"]))
        got: list[bytes] = []

        def receive(frames: list[bytes]) -> None:
            got.extend(frames)
            if frames == [b"bad"]:
                raise ValueError("bad")

        watched = WatchedSocket(ours, receive)
        for word in (b"bad", b"good", b"bad", b"last"):
            client.send(word)
        await until(lambda: len(got) == 4)
        assert got == [b"bad", b"good", b"bad", b"last"]
        watched.close(linger=0)

    run(main())
    assert [str(error) for error in reported] == ["bad", "bad"]


def test_a_receiver_may_close_the_socket(pair: Pair) -> None:
    """What came after that message is not received, and nothing is reported."""
    ours, client = pair
    reported: list[object] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, about: reported.append(about))
        got: list[list[bytes]] = []

        def receive(frames: list[bytes]) -> None:
            got.append(frames)
            watched.close(linger=0)

        for _ in range(3):
            client.send(b"x")
        assert ours.poll(10_000)
        watched = WatchedSocket(ours, receive)
        await until(lambda: ours.closed)
        for _ in range(3):  # what was scheduled runs
            await asyncio.sleep(0)
        assert got == [[b"x"]]

    run(main())
    assert not reported


def test_a_closed_socket_is_not_read_by_what_was_scheduled(pair: Pair) -> None:
    ours, _ = pair
    reported: list[object] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, about: reported.append(about))
        watched = WatchedSocket(ours, lambda frames: None)
        watched.close(linger=0)  # its first reading is still scheduled
        for _ in range(3):
            await asyncio.sleep(0)

    run(main())
    assert not reported


def test_a_send_that_would_block_drops_the_message() -> None:
    """Heartbeats have libzmq's own limit; the loop must not wait for a client that does not read."""
    with zmq.Context() as context, context.socket(zmq.PAIR) as ours:
        ours.linger = 0

        async def main() -> None:
            watched = WatchedSocket(ours, lambda frames: None)
            watched.send([b"nobody is connected"])
            watched.close(linger=0)

        run(main())
