"""How much the event loop reads from a TCP connection at once."""

from __future__ import annotations

import asyncio
import socket
import threading
import time

import pytest

from jupyter_gpu_kernel.hub.ssh import tcp

KIB = 1024
SIZE = 3_000_000


class Reader:
    """Notes the sizes of what it is given, and takes its time for it."""

    pending = 0

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.sizes: list[int] = []
        self.ended = asyncio.Event()

    def feed(self, data: bytes, /) -> None:
        self.sizes.append(len(data))
        time.sleep(self.seconds)

    def end(self) -> None:
        self.ended.set()


@pytest.mark.parametrize(("seconds", "least", "most"), [(0.0, 64 * KIB, 256 * KIB), (0.006, 1, 4 * KIB)])
def test_the_loop_reads_as_much_at_once_as_can_be_worked_through(
    seconds: float, least: int, most: int
) -> None:
    """Others have their turn between millions of tiny packets."""
    total = SIZE if not seconds else 200_000

    async def main() -> list[int]:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            sock = tcp.dial("127.0.0.1", listener.getsockname()[1], 5.0)
            theirs, _ = listener.accept()
        sending = threading.Thread(target=theirs.sendall, args=(bytes(total),))
        reader = Reader(seconds)
        sock.use_loop(asyncio.get_running_loop())
        sending.start()
        sock.pass_on(reader)
        while sum(reader.sizes) < total:
            await asyncio.sleep(0)
        sending.join()
        theirs.close()
        await reader.ended.wait()
        return reader.sizes

    loop = asyncio.SelectorEventLoop()
    try:
        sizes = loop.run_until_complete(main())
    finally:
        loop.close()
    assert least <= max(sizes[len(sizes) // 2 :]) <= most
