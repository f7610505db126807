"""What is said, and tried again, when a hop does not let us by."""

from __future__ import annotations

import contextlib
import re
import socket
import sys
import threading
from collections.abc import Iterator

import pytest
from dialling import Dial, Owner, behind, changed, in_thread
from sshd import TwoHops, free_port
from waiting import DEADLINE

from jupyter_gpu_kernel.errors import ConnectError
from jupyter_gpu_kernel.hub.connections.connect import Connections
from jupyter_gpu_kernel.hub.node.shared_connection import RouteSettings, SharedConnection
from jupyter_gpu_kernel.hub.ssh.route_connection import RouteConnection
from jupyter_gpu_kernel.hub.transport.connection import Connection

pytestmark = pytest.mark.full


@pytest.fixture
def silent() -> Iterator[int]:
    """The port of a server that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize("where", ["first hop", "through the jump"])
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"host": "no-such-host.invalid"}, "cannot be resolved"),
        ({"port": "free"}, "connection refused"),
        ({"port": "silent", "connect_timeout": 2.0}, "no SSH version string"),
    ],
)
def test_an_unreachable_hop_is_named_with_cause_and_remedy(
    dial: Dial, two_hops: TwoHops, silent: int, where: str, change: dict[str, object], words: str
) -> None:
    ports = {"free": free_port(), "silent": silent}
    change = {key: ports.get(str(value), value) for key, value in change.items()}
    route = behind(two_hops, **change)
    with pytest.raises(ConnectError, match=words) as caught:
        dial(route if where == "through the jump" else route[1:])
    assert caught.value.hop == "work"
    assert caught.value.remedy


def test_a_server_that_says_nothing_is_waited_for_once(dial: Dial, two_hops: TwoHops) -> None:
    """ConnectTimeout limits the wait for the version string, and no further attempt prolongs it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        with pytest.raises(ConnectError, match="no SSH version string"):
            dial([changed(two_hops.hops[-1], port=server.getsockname()[1], connect_timeout=1.0)])
        server.accept()[0].close()
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()


@pytest.mark.parametrize(
    ("label", "host", "message"),
    [
        ("alice@127.0.0.1", "127.0.0.1", r"alice@127\.0\.0\.1: port \d+: connection refused"),
        ("gpu2", "127.0.0.1", r"gpu2: 127\.0\.0\.1 port \d+: connection refused"),
        (
            "no-such-host.invalid",
            "no-such-host.invalid",
            r"no-such-host\.invalid: its host name cannot be resolved",
        ),
        ("gpu2", "no-such-host.invalid", r"gpu2: the host name no-such-host\.invalid cannot be resolved"),
    ],
)
def test_a_host_is_named_once(dial: Dial, two_hops: TwoHops, label: str, host: str, message: str) -> None:
    hop = changed(two_hops.hops[-1], label=label, host=host, port=free_port())
    with pytest.raises(ConnectError) as caught:
        dial([hop])
    assert re.match(message, str(caught.value)), str(caught.value)


def test_a_jump_host_that_forbids_forwarding_is_named(dial: Dial, two_hops: TwoHops) -> None:
    two_hops.login.restart(AllowTcpForwarding="no")
    with pytest.raises(ConnectError, match="AllowTcpForwarding") as caught:
        dial()
    assert caught.value.hop == "login"
    assert "another login node" in caught.value.remedy


def test_a_server_with_no_common_algorithm_is_named(dial: Dial, two_hops: TwoHops) -> None:
    two_hops.work.restart(Ciphers="aes256-cbc")
    with pytest.raises(
        ConnectError, match=r"no common SSH algorithm \(.*cipher(s\)|: it has aes256-cbc)\)\n"
    ) as caught:
        dial()
    assert caught.value.hop == "work"


def test_a_busy_server_is_tried_again(dial: Dial, two_hops: TwoHops) -> None:
    two_hops.work.restart(MaxStartups="1", LogLevel="DEBUG1")
    with socket.create_connection(("127.0.0.1", two_hops.work.port)) as hog:
        assert hog.recv(4) == b"SSH-"
        result = in_thread(dial)
        two_hops.work.wait_for_log("MaxStartups")
    connection = result.get(timeout=DEADLINE)
    assert isinstance(connection, RouteConnection), connection
    assert connection.alive()


class Cutting:
    """In front of a server: the first connections end after so many of the server's bytes; later ones pass."""

    def __init__(self, server: int, after: int, times: int) -> None:
        self._server, self._after, self._left = server, after, times
        self.taken = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._threads = [threading.Thread(target=self._serve)]

    def __enter__(self) -> Cutting:
        self._threads[0].start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(DEADLINE)
        self._listener.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                self.taken += 1
                limit = self._after if self.taken <= self._left else sys.maxsize
                self._threads.append(threading.Thread(target=self._join, args=(client, limit)))
                self._threads[-1].start()

    def _join(self, client: socket.socket, limit: int) -> None:
        with client, socket.create_connection(("127.0.0.1", self._server)) as server:
            back = threading.Thread(target=pass_on, args=(server, client, limit))
            back.start()
            pass_on(client, server, sys.maxsize)
            back.join()


def pass_on(source: socket.socket, target: socket.socket, limit: int) -> None:
    """So many bytes; then both sockets are shut down."""
    with contextlib.suppress(OSError):  # the other direction has ended it
        while limit and (data := source.recv(min(65536, limit))):
            target.sendall(data)
            limit -= len(data)
    for one in (source, target):
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("after", [0, 100], ids=["before the greeting", "in the key exchange"])
def test_a_connection_that_ends_before_anybody_signed_in_is_made_anew(
    dial: Dial, two_hops: TwoHops, after: int
) -> None:
    with Cutting(two_hops.work.port, after, times=1) as cutting:
        connection = dial(behind(two_hops, port=cutting.port), ask=Owner())
        alive = connection.alive()
        connection.close()
    assert alive and cutting.taken == 2


def test_a_connection_that_always_ends_in_the_key_exchange_is_given_up(dial: Dial, two_hops: TwoHops) -> None:
    with Cutting(two_hops.work.port, 100, times=100) as cutting:
        with pytest.raises(ConnectError, match="the connection was lost") as caught:
            dial(behind(two_hops, port=cutting.port), ask=Owner())
        assert caught.value.hop == "work" and cutting.taken == 2


def test_a_shared_connection_that_another_user_of_it_closed_is_made_anew(two_hops: TwoHops) -> None:
    """It answered that one too late, say."""
    way = RouteSettings(two_hops.route, (), str(two_hops.ssh_config))
    shared = SharedConnection(way, Connections(two_hops.trust_file).connect)
    used: list[Connection] = []

    def work(connection: Connection) -> bytes:
        used.append(connection)
        if len(used) == 1:
            shared.close()
        return connection.run("echo here").stdout

    assert shared.run(None, work) == b"here\n" and len(used) == 2
    shared.close()
