"""Streams over paramiko: all bytes, in order, within bounds, and through key exchanges with every kind of cipher."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from connecting import connect
from ssh_server import SshServer
from sshd import TwoHops
from waiting import DEADLINE, eventually

from jupyter_gpu_kernel.hub.ssh.route_connection import RouteConnection
from jupyter_gpu_kernel.hub.ssh.transport import WINDOW
from jupyter_gpu_kernel.hub.transport.stream import CommandStream

KIB = 1024
Dial = Callable[[], RouteConnection]


@pytest.fixture
def dial(two_hops: TwoHops) -> Iterator[Dial]:
    """Connects over two hops."""
    connections: list[RouteConnection] = []

    def dialled() -> RouteConnection:
        connections.append(connect(two_hops.hops, ask=None, trust_file=two_hops.trust_file))
        return connections[-1]

    yield dialled
    for connection in connections:
        connection.close()


def echoed(stream: CommandStream, data: bytes) -> bytes:
    """What `cat` behind the stream returns for the data, which is written meanwhile."""
    writer = threading.Thread(target=stream.write, args=(data,))
    writer.start()
    received = bytearray()
    while len(received) < len(data) and (more := stream.read()):
        received += more
    writer.join(DEADLINE)
    return bytes(received)


def test_all_bytes_arrive_in_order(dial: Dial) -> None:
    data = os.urandom(30_000_000)
    assert hashlib.sha256(echoed(dial().open("cat"), data)).digest() == hashlib.sha256(data).digest()


@pytest.mark.parametrize("node", ["login", "work"])
def test_keys_are_exchanged_while_data_comes(dial: Dial, two_hops: TwoHops, node: str) -> None:
    """The server begins, on each hop, again and again."""
    getattr(two_hops, node).restart(RekeyLimit="1M")
    data = os.urandom(12_000_000)
    stream = dial().open("cat")
    assert echoed(stream, data) == data
    for number in range(50):
        assert echoed(stream, b"%d;" % number) == b"%d;" % number


@pytest.mark.parametrize("ciphers", ["aes128-ctr", "aes256-gcm@openssh.com"])
@pytest.mark.parametrize("macs", ["hmac-sha2-256", "hmac-sha2-256-etm@openssh.com"])
def test_with_every_kind_of_cipher(dial: Dial, two_hops: TwoHops, ciphers: str, macs: str) -> None:
    two_hops.work.restart(Ciphers=ciphers, MACs=macs)
    data = os.urandom(3_000_000)
    assert echoed(dial().open("cat"), data) == data


def test_the_end_of_a_command_comes_after_its_output(dial: Dial) -> None:
    stream = dial().open("head -c 5000000 /dev/zero; exit 7")
    size = 0
    while data := stream.read():
        size += len(data)
    assert (size, stream.wait(DEADLINE)) == (5_000_000, 7)


def test_what_is_not_read_stays_at_the_server(dial: Dial) -> None:
    connection = dial()
    stream = connection.open(f"head -c {3 * WINDOW} /dev/zero")
    buffer: Any = stream._ends._channel.in_buffer
    eventually(lambda: len(buffer) == WINDOW, "a full window")
    assert connection.run("echo others go on").stdout == b"others go on\n"
    assert len(buffer) == WINDOW
    size = 0
    while data := stream.read():
        size += len(data)
    assert size == 3 * WINDOW


@pytest.mark.parametrize("size", [2**31, 300 * KIB, 64])
def test_packets_beyond_all_reason_end_the_connection(
    ssh_server: Callable[..., SshServer], size: int
) -> None:
    """A size that no packet has, or bytes that nobody has encrypted."""
    here = ssh_server("publickey")
    connection = here.connect(None, here.key)
    here.transports[-1].sock.sendall(size.to_bytes(4, "big") + bytes(1000))
    eventually(lambda: not connection.alive(), "the end of the connection")
