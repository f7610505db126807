"""What comes over SSH is pushed by the event loop: all of it, in order, within bounds, and through key exchanges."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import paramiko
import pytest
from house import House
from sshd import TwoHops
from waiting import DEADLINE, eventually

from jupyter_gpu_kernel.errors import ConnectError
from jupyter_gpu_kernel.hub.ssh.connect import connect
from jupyter_gpu_kernel.hub.ssh.connection import CommandStream, SSHConnection
from jupyter_gpu_kernel.hub.ssh.transport import WINDOW, JumpSocket

pytestmark = pytest.mark.full

KIB = 1024


class Sink:
    """Takes what a stream pushes; `hold` keeps it from being acknowledged."""

    def __init__(self, stream: CommandStream, loop: asyncio.AbstractEventLoop, hold: bool = False) -> None:
        self.data = bytearray()
        self.threads: list[int] = []
        self.ended = False
        self.hold = hold
        self.pending = 0
        self.changed = threading.Condition()
        self.stream = stream
        stream.pass_on(self, loop)

    def feed(self, data: bytes) -> None:
        with self.changed:
            self.data += data
            self.threads.append(threading.get_ident())
            self.changed.notify_all()
        if self.hold:
            self.pending += len(data)
        else:
            self.stream.consumed(len(data))

    def end(self) -> None:
        with self.changed:
            self.ended = True
            self.changed.notify_all()

    def wait(self, done: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(done, DEADLINE), (len(self.data), self.ended)


class Hop:
    """The next hop over a channel: first it reads what was sent so far, then all is pushed to it. It parses nothing
    by itself."""

    def __init__(self, channel: paramiko.Channel) -> None:
        self.sock = JumpSocket(channel)
        self.pending = 0

    def read(self, size: int) -> None:
        self.pending += len(self.sock.recv(size))

    def feed(self, data: bytes) -> None:
        self.pending += len(data)

    def end(self) -> None:
        """Nobody waits for it."""


class Loop:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.SelectorEventLoop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

    def call(self, function: Callable[[], bool]) -> bool:
        async def called() -> bool:
            return function()

        return asyncio.run_coroutine_threadsafe(called(), self.loop).result(DEADLINE)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(DEADLINE)
        self.loop.close()


Dial = Callable[[], SSHConnection]


@pytest.fixture
def dial(two_hops: TwoHops) -> Iterator[Dial]:
    """Connects over two hops with paramiko: the ssh program pushes nothing."""
    connections: list[SSHConnection] = []

    def dialled() -> SSHConnection:
        connections.append(connect(two_hops.hops, ask=None, trust_file=two_hops.trust_file))
        return connections[-1]

    yield dialled
    for connection in connections:
        connection.close()


@pytest.fixture
def hub() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.close()


def pushed(hub: Loop, stream: CommandStream) -> Sink:
    """Return a sink for `cat` to which the loop itself pushes by now."""
    sink = Sink(stream, hub.loop)
    for _ in range(1000):
        before = len(sink.data)
        stream.write(b"x")
        sink.wait(lambda: len(sink.data) > before)  # noqa: B023 (called at once)
        if sink.threads[-1] == hub.thread.ident:
            break
    else:
        raise AssertionError("the loop does not push")
    sink.data.clear()
    return sink


def test_all_that_comes_is_pushed_in_order_from_the_first_byte_on(dial: Dial, hub: Loop) -> None:
    """The change from threads to the loop happens while data comes."""
    stream = dial().open("cat")
    data = os.urandom(30_000_000)
    writer = threading.Thread(target=stream.write, args=(data,))
    writer.start()
    sink = Sink(stream, hub.loop)
    sink.wait(lambda: len(sink.data) == len(data))
    writer.join(DEADLINE)
    assert hashlib.sha256(sink.data).digest() == hashlib.sha256(data).digest()
    assert sink.threads[-1] == hub.thread.ident


def test_other_commands_run_as_before(dial: Dial, hub: Loop) -> None:
    connection = dial()
    sink = pushed(hub, connection.open("cat"))
    done = connection.run("cat; head -c 3000000 /dev/zero; exit 3", stdin=b"in")
    assert (done.returncode, len(done.stdout)) == (3, 3_000_002)
    second = pushed(hub, connection.open("cat"))
    assert connection.responds(DEADLINE)
    connection.close()
    sink.wait(lambda: sink.ended)
    second.wait(lambda: second.ended)


@pytest.mark.parametrize("node", ["login", "work"])
def test_keys_are_exchanged_while_data_comes(dial: Dial, two_hops: TwoHops, hub: Loop, node: str) -> None:
    """The server begins, on each hop, again and again."""
    getattr(two_hops, node).restart(RekeyLimit="1M")
    stream = dial().open("cat")
    sink = pushed(hub, stream)
    data = os.urandom(12_000_000)
    writer = threading.Thread(target=stream.write, args=(data,))
    writer.start()
    sink.wait(lambda: len(sink.data) == len(data))
    writer.join(DEADLINE)
    assert sink.data == data
    for number in range(50):
        text = b"%d;" % number
        if not hub.call(lambda: stream.try_write(text)):  # noqa: B023 (called at once)
            stream.write(text)
    sink.wait(lambda: sink.data.endswith(b";49;"))
    assert bytes(sink.data[len(data) :]) == b"".join(b"%d;" % number for number in range(50))


@pytest.mark.parametrize("ciphers", ["aes128-ctr", "aes256-gcm@openssh.com"])
@pytest.mark.parametrize("macs", ["hmac-sha2-256", "hmac-sha2-256-etm@openssh.com"])
def test_with_every_kind_of_cipher(dial: Dial, two_hops: TwoHops, hub: Loop, ciphers: str, macs: str) -> None:
    """Where a packet's length is encrypted, threads go on to read it."""
    two_hops.work.restart(Ciphers=ciphers, MACs=macs)
    stream = dial().open("cat")
    sink = Sink(stream, hub.loop)
    data = os.urandom(3_000_000)
    stream.write(data)
    sink.wait(lambda: len(sink.data) == len(data))
    assert sink.data == data


@pytest.mark.parametrize("node", ["login", "work"])
def test_a_drop_is_noticed_without_a_reader(dial: Dial, two_hops: TwoHops, hub: Loop, node: str) -> None:
    connection = dial()
    stream = connection.open("cat")
    sink = pushed(hub, stream)
    getattr(two_hops, node).drop()
    sink.wait(lambda: sink.ended)
    eventually(lambda: not connection.alive(), "the end of the connection")
    assert not hub.call(lambda: stream.try_write(b"x"))
    with pytest.raises(ConnectError, match="lost"):
        connection.run("true")


def test_the_end_of_a_command_comes_after_its_output(dial: Dial, hub: Loop) -> None:
    connection = dial()
    pushed(hub, connection.open("cat"))
    stream = connection.open("head -c 5000000 /dev/zero; exit 7")
    sink = Sink(stream, hub.loop)
    sink.wait(lambda: sink.ended)
    assert len(sink.data) == 5_000_000
    assert stream.wait(DEADLINE) == 7


def test_what_is_not_consumed_stays_at_the_server(dial: Dial, hub: Loop) -> None:
    connection = dial()
    pushed(hub, connection.open("cat"))
    stream = connection.open(f"head -c {3 * WINDOW} /dev/zero")
    sink = Sink(stream, hub.loop, hold=True)
    sink.wait(lambda: len(sink.data) == WINDOW)
    assert connection.run("echo others go on").stdout == b"others go on\n"
    assert len(sink.data) == WINDOW
    sink.hold, sink.pending = False, 0
    stream.consumed(WINDOW)
    sink.wait(lambda: len(sink.data) == 3 * WINDOW)


def test_the_window_is_opened_once_for_each_byte(hub: Loop, house: Callable[..., House]) -> None:
    """Also for what was read before the change to pushing, and parsed after it."""
    _, channel, server = housed(hub, house("publickey"))
    size, more = WINDOW // 16, 1000  # less than what opens the window at once
    for _ in range(size // 32768):
        server._send_message(data_for(channel, bytes(32768)))  # type: ignore[attr-defined]
    eventually(lambda: len(channel.in_buffer) == size, "the data")
    hop = Hop(channel)
    hop.read(100)
    hop.sock.pass_on(hop)
    assert hop.pending == size
    hop.sock.consumed(size - 10)
    server._send_message(data_for(channel, bytes(more)))  # type: ignore[attr-defined]
    eventually(lambda: hop.pending == size + more, "more data")
    hop.sock.consumed(10 + more)
    assert channel.in_window_sofar == size + more


def test_a_small_write_needs_no_waiting_or_is_refused(dial: Dial, hub: Loop) -> None:
    """The loop never blocks: not for a command that reads nothing, and not for other writers."""
    connection = dial()
    stream = connection.open("cat")
    sink = pushed(hub, stream)
    assert hub.call(lambda: stream.try_write(b"small"))
    sink.wait(lambda: sink.data == b"small")
    assert not hub.call(lambda: stream.try_write(bytes(100 * KIB)))
    deaf = connection.open("sleep 600")
    sent = 0
    while hub.call(lambda: deaf.try_write(bytes(1000))):
        sent += 1000
    assert 0 < sent < 100_000_000
    writers = connection.last_transport
    assert writers is not None
    packetizer = writers.packetizer
    with packetizer.sending:  # type: ignore[attr-defined]  # another thread is sending
        assert not hub.call(lambda: stream.try_write(b"x"))
    assert hub.call(lambda: stream.try_write(b"again"))
    sink.wait(lambda: sink.data == b"smallagain")


def test_descriptors_are_closed_and_used_again(dial: Dial, hub: Loop) -> None:
    """A loop that still watched a closed connection would miss what comes over the next one of that number."""
    for _ in range(5):
        connection = dial()
        sink = pushed(hub, connection.open("cat"))
        connection.close()
        sink.wait(lambda: sink.ended)  # noqa: B023 (called at once)
    hub.call(lambda: True)
    assert not [key for key in hub.loop._selector.get_map().values() if key.data[0] is None]  # type: ignore[attr-defined]


def test_a_connection_can_be_closed_after_its_loop(dial: Dial) -> None:
    loop = Loop()
    connection = dial()
    sink = pushed(loop, connection.open("cat"))
    loop.close()
    connection.close()
    sink.wait(lambda: sink.ended)
    eventually(lambda: not connection.alive(), "the end of the connection")


def housed(hub: Loop, here: House) -> tuple[SSHConnection, paramiko.Channel, paramiko.Transport]:
    """A connection to a server that does what the test says, pushed by the loop by now."""
    connection = here.connect(None, here.key)
    transport = connection.last_transport
    assert transport is not None
    channel = transport.open_session(WINDOW, timeout=DEADLINE)
    connection._receive_on(hub.loop)
    packetizer: Any = transport.packetizer
    eventually(lambda: packetizer._source is not None, "the loop pushes")
    return connection, channel, here.transports[-1]


def data_for(channel: paramiko.Channel, data: bytes) -> paramiko.Message:
    m = paramiko.Message()
    m.add_byte(bytes([94]))
    m.add_int(channel.get_id())
    m.add_string(data)
    return m


def test_a_flood_of_other_messages_is_bounded_and_data_comes_after_it(
    hub: Loop, house: Callable[..., House]
) -> None:
    _, channel, server = housed(hub, house("publickey"))
    for _ in range(5000):
        server.send_ignore(100)
    server._send_message(data_for(channel, b"after"))  # type: ignore[attr-defined]
    assert channel.recv(100) == b"after"


@pytest.mark.parametrize("size", [2**31, 300 * KIB])
def test_packets_beyond_all_reason_end_the_connection(
    hub: Loop, house: Callable[..., House], size: int
) -> None:
    connection, _, server = housed(hub, house("publickey"))
    server.sock.sendall(size.to_bytes(4, "big") + bytes(1000))
    eventually(lambda: not connection.alive(), "the end of the connection")


def test_garbage_ends_the_connection(hub: Loop, house: Callable[..., House]) -> None:
    connection, _, server = housed(hub, house("publickey"))
    server.sock.sendall((64).to_bytes(4, "big") + bytes(1000))
    eventually(lambda: not connection.alive(), "the end of the connection")


def test_data_beyond_the_window_ends_a_connection_that_is_pushed(
    hub: Loop, house: Callable[..., House]
) -> None:
    connection, channel, server = housed(hub, house("publickey"))
    with contextlib.suppress(EOFError, OSError):
        for _ in range(3 * WINDOW // 32768):
            server._send_message(data_for(channel, bytes(32768)))  # type: ignore[attr-defined]
    eventually(lambda: not connection.alive(), "the end of the connection")
    channel.close()
