"""Forwards connections to a port of this machine, with a fixed delay in both directions.

    python proxy.py PORT SECONDS

Prints the port on which it listens. The bytes on the way are bounded, so that a fast sender is slowed as on a network.
"""

from __future__ import annotations

import asyncio
import socket
import sys

_PIECE = 1 << 16
_ON_THE_WAY = 4096  # pieces: 256 MB


async def main(port: int, delay: float) -> None:
    """Serve until killed."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
        for one in (writer, far_writer):
            one.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.gather(_carry(reader, far_writer, delay), _carry(far_reader, writer, delay))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay: float) -> None:
    """Until one of both ends."""
    pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_ON_THE_WAY)
    now = asyncio.get_running_loop().time

    async def read() -> None:
        data = b"-"
        while data:
            try:
                data = await reader.read(_PIECE)
            except OSError:
                data = b""
            await pieces.put((now() + delay, data))

    reading = asyncio.create_task(read())
    try:
        while True:
            due, data = await pieces.get()
            await asyncio.sleep(max(0.0, due - now()))
            if not data:
                return
            writer.write(data)
            await writer.drain()
    except OSError:  # closed by the other side
        pass
    finally:
        reading.cancel()
        writer.close()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), float(sys.argv[2])))
