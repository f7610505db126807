"""The front ends on one kernel: who owns it, whose number is whose, who is hung up on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import zmq
from edges import KEY, request
from runtimes import RUNTIME, make
from waiting import DEADLINE

from jupyter_gpu_kernel.hub.front_end import front_ends as fronts_module
from jupyter_gpu_kernel.hub.front_end.delivered import Delivered
from jupyter_gpu_kernel.hub.front_end.front_ends import FrontEnd, FrontEnds, FrontEndSpec
from jupyter_gpu_kernel.wire.messages import Channel, Message

BULK = Message(Channel.IOPUB, 0, make("stream", {"name": "stdout", "text": "x" * 1_000_000}))


class Kernel:
    """`fronts` on it, and raw clients of theirs; `received`: the requests of these clients."""

    def __init__(self, delivered: Delivered | None = None) -> None:
        self.received: list[Message] = []
        self.subscribed = 0
        self.fronts = FrontEnds(
            RUNTIME,
            lambda front, message: self.received.append(message),
            self._subscribes,
            lambda: None,
            lambda: None,
            delivered,
        )
        self._context = zmq.Context()

    def _subscribes(self) -> None:
        self.subscribed += 1

    def add(self, index: int | None = None, **spec: bool) -> FrontEnd:
        return self.fronts.add(FrontEndSpec(dict(KEY), number=index, **spec))

    def client(self, front: FrontEnd, channel: str, kind: int = zmq.DEALER) -> zmq.Socket[bytes]:
        socket: zmq.Socket[bytes] = self._context.socket(kind)
        socket.linger, socket.rcvhwm, socket.rcvbuf = 0, 1, 65536
        socket.connect(f"tcp://127.0.0.1:{front.edge.connection[f'{channel}_port']}")
        return socket

    async def until(self, condition: Callable[[], object]) -> None:
        async def look() -> None:
            while not condition():
                await asyncio.sleep(0.005)

        await asyncio.wait_for(look(), DEADLINE)

    async def asks(self, front: FrontEnd) -> Message:
        """A client of this front end's asks something."""
        with self.client(front, "shell") as client:
            before = len(self.received)
            client.send_multipart(request(b"key"))
            await self.until(lambda: len(self.received) > before)
        return self.received[-1]

    def close(self) -> None:
        self.fronts.close()
        self._context.destroy(linger=0)


def on(test: Callable[[Kernel], Awaitable[None]], delivered: Delivered | None = None) -> None:
    async def main() -> None:
        kernel = Kernel(delivered)
        try:
            await test(kernel)
        finally:
            kernel.close()

    asyncio.run(main())


def test_no_front_end_gets_the_number_of_another() -> None:
    """An answer for one that has left must not go to the next one; nor to one that a hub before knew."""

    async def test(kernel: Kernel) -> None:
        first, second = kernel.add(), kernel.add()
        kernel.fronts.remove(first)
        third, fourth = kernel.add(), kernel.add()
        kernel.fronts.remove(fourth)
        fifth = kernel.add()
        adopted, again, last = kernel.add(9), kernel.add(9), kernel.add()
        numbers = [one.number for one in (first, second, third, fourth, fifth, adopted, again, last)]
        assert adopted.number == 9 and len(set(numbers)) == len(numbers)
        assert list(kernel.fronts) == [second, third, fifth, adopted, again, last]

    on(test)


def test_numbers_of_front_ends_have_16_bits(tmp_path: Path) -> None:
    (tmp_path / f"k.{(1 << 16) - 1}.clients").touch()  # of a killed hub

    async def test(kernel: Kernel) -> None:
        assert 0 < kernel.add().number < (1 << 16) - 1

    on(test, Delivered(tmp_path / "k"))


def test_a_reply_goes_to_the_client_that_asked_and_to_nobody_else() -> None:
    async def test(kernel: Kernel) -> None:
        first, second = kernel.add(), kernel.add()
        with kernel.client(first, "shell") as other, kernel.client(second, "shell") as client:
            for socket in (other, client):
                before = len(kernel.received)
                socket.send_multipart(request(b"key"))
                await kernel.until(lambda before=before: len(kernel.received) > before)
            asked = kernel.received[-1]
            assert len({message.client for message in kernel.received}) == 2
            kernel.fronts.send(Message(Channel.SHELL, asked.client, make("kernel_info_reply", {})))
            await kernel.until(lambda: client.poll(0))
            assert not other.poll(0)
            kernel.fronts.remove(second)
            kernel.fronts.send(Message(Channel.SHELL, asked.client, make("kernel_info_reply", {})))
            assert not other.poll(0), "one that has left gets nothing, nor does another in its place"

    on(test)


@pytest.mark.parametrize("who", ["alone", "beside another", "alive"])
def test_one_that_does_not_read_is_hung_up_on_only_where_somebody_waits_for_that(
    monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    """A laptop that sleeps with a notebook open gets all of it when it wakes up."""

    async def test(kernel: Kernel) -> None:
        front, fronts = kernel.add(), kernel.fronts
        with kernel.client(front, "iopub", zmq.SUB) as stuck:
            stuck.subscribe(b"")
            await kernel.until(lambda: kernel.subscribed)
            for _ in range(40):  # more than all buffers on the way take
                fronts.send(BULK)
            assert not fronts.make_room(BULK) and not front.edge._omitted, "not before it had time to read"
            monkeypatch.setattr(fronts_module, "STALL_TIMEOUT", -1.0)
            if who == "beside another":
                kernel.add()
            while who == "alive" and not front.edge._omitted:  # it may just have taken the last that it can
                await kernel.asks(front)
                fronts.make_room(BULK)
            assert not fronts.make_room(BULK)
            assert bool(front.edge._omitted) == (who != "alone")

    on(test)


def test_a_page_that_comes_after_the_limit_gets_all_that_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first request comes before it has read anything."""

    async def test(kernel: Kernel) -> None:
        front, fronts = kernel.add(waits_for_page=True), kernel.fronts
        with kernel.client(front, "iopub", zmq.SUB) as page:
            page.subscribe(b"")
            await kernel.until(lambda: kernel.subscribed)
            for _ in range(40):  # more than all buffers on the way take
                fronts.send(BULK)
            monkeypatch.setattr(fronts_module, "STALL_TIMEOUT", -1.0)
            for _ in range(20):
                await kernel.asks(front)
                assert not fronts.make_room(BULK)
            for _ in range(40):
                await kernel.until(lambda: page.poll(0))
                assert len(page.recv_multipart()[-1]) > 1_000_000
            await kernel.until(lambda: fronts.make_room(BULK))

    on(test)
