"""Routes of four real OpenSSH servers, one behind the other."""

from __future__ import annotations

import getpass
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from connecting import connect_route
from sshd import Sshd, make_key
from waiting import eventually

from jupyter_gpu_kernel.errors import ConnectError
from jupyter_gpu_kernel.hub.transport.connection import Connection

NAMES = ("a", "b", "c", "node")


class Chain:
    """Four servers, of which the ssh configuration knows users, ports and keys, but no jumps."""

    def __init__(self, folder: Path) -> None:
        self.keys = {name: make_key(folder / f"key_{name}") for name in NAMES}
        self.servers = {name: Sshd(name, folder / name, self.keys[name]) for name in NAMES}
        self.known_hosts = folder / "known_hosts"
        self.known_hosts.write_text("".join(one.known_hosts_line() for one in self.servers.values()))
        self.config = folder / "config"
        self.config.write_text(
            "".join(f"Host {name}\n  IdentityFile {self.keys[name]}\n" for name in NAMES)
            + f"Host *\n  HostName 127.0.0.1\n  IdentityAgent none\n  IdentitiesOnly yes\n"
            f"  UserKnownHostsFile {self.known_hosts}\n  GlobalKnownHostsFile none\n"
        )
        self.trust_file = folder / "trusted_hosts"
        self.transport = ""

    def address(self, name: str) -> str:
        return f"{getpass.getuser()}@{name}:{self.servers[name].port}"

    def connect(self, *route: str) -> Connection:
        return connect_route(
            route,
            config=self.config,
            transport=self.transport,
            trust_file=self.trust_file,
        )


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chain]:
    chain = Chain(tmp_path_factory.mktemp("chain"))
    try:
        for server in chain.servers.values():
            server.start()
        yield chain
    finally:
        for server in chain.servers.values():
            server.stop()


@pytest.fixture(params=["paramiko", "ssh"])
def chain(servers: Chain, request: pytest.FixtureRequest) -> Chain:
    servers.transport = request.param
    return servers


def test_each_hop_has_its_user_its_port_and_its_key(chain: Chain) -> None:
    connection = chain.connect(*map(chain.address, NAMES))
    try:
        labels = [chain.address(name) for name in NAMES]
        assert [hop for hop, step, _ in connection.steps if step == "sign in"] == labels
        assert connection.run("echo $HOME").stdout.decode().strip() == str(chain.servers["node"].home)
        data = bytes(range(256)) * 10_000
        assert connection.run("cat", stdin=data).stdout == data
    finally:
        connection.close()


def test_every_jump_host_has_a_session_so_that_it_sends_without_delay(chain: Chain) -> None:
    before = {name: sessions(server) for name, server in chain.servers.items()}
    connection = chain.connect(*map(chain.address, NAMES))
    try:
        for name in NAMES[:3]:
            eventually(
                lambda name=name: sessions(chain.servers[name]) == before[name] + 1, f"{name}: a session"
            )  # type: ignore[misc]
        assert connection.run("echo here").stdout == b"here\n"
    finally:
        connection.close()


def sessions(server: Sshd) -> int:
    return sum("Starting session" in line for line in server.log)


def test_a_hop_in_the_middle_is_named_when_it_fails(chain: Chain) -> None:
    chain.servers["b"].stop()
    try:
        with pytest.raises(ConnectError, match="connection refused from") as caught:
            chain.connect(*map(chain.address, NAMES))
        assert caught.value.hop == chain.address("b")
        assert [hop for hop, _, _ in caught.value.steps] == [*[chain.address("a")] * 3, chain.address("b")]
    finally:
        chain.servers["b"].start()


def test_a_drop_in_the_middle_ends_the_connection(chain: Chain) -> None:
    connection = chain.connect(*map(chain.address, NAMES))
    try:
        stream = connection.open("cat")
        chain.servers["b"].drop()
        assert stream.read(1) == b""
        eventually(lambda: not connection.alive(), "the connection is down")
    finally:
        connection.close()


def test_the_chain_may_stand_in_the_configuration(chain: Chain) -> None:
    """Each hop names the one before it."""
    jumps = "".join(
        f"Host {name}\n  ProxyJump {before}\n  Port {chain.servers[name].port}\n"
        for before, name in itertools.pairwise(NAMES)
    )
    own = chain.config.read_text()
    chain.config.write_text(f"{jumps}Host a\n  Port {chain.servers['a'].port}\n{own}")
    try:
        connection = chain.connect("node")
        assert [hop for hop, step, _ in connection.steps if step == "sign in"] == list(NAMES)
        connection.close()
    finally:
        chain.config.write_text(own)
