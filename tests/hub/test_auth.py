"""Passwords, codes and agents. OpenSSH needs root to ask for passwords, so paramiko's own server does."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import paramiko
import pytest
from sshd import DEADLINE, TwoHops, make_key

from jupyter_gpu_kernel.errors import AuthError, ConnectError
from jupyter_gpu_kernel.hub.route import Hop
from jupyter_gpu_kernel.hub.ssh import Asker, connect


class Door(paramiko.ServerInterface):
    """Lets alice in by `methods`, one after the other: password "sesame", code "123456", the test's key."""

    def __init__(self, methods: list[str], key: paramiko.PKey) -> None:
        self.methods, self.key = list(methods), key
        self.tries: list[str] = []
        self.answers = threading.Event()  # cleared: it falls silent when a key comes
        self.answers.set()

    def get_allowed_auths(self, username: str) -> str:
        return self.methods[0]

    def _judge(self, method: str, right: bool) -> int:
        self.tries.append(method)
        if not right or self.methods[0] != method:
            return paramiko.AUTH_FAILED
        if len(self.methods) == 1:
            return paramiko.AUTH_SUCCESSFUL
        del self.methods[0]
        return paramiko.AUTH_PARTIALLY_SUCCESSFUL

    def check_auth_password(self, username: str, password: str) -> int:
        return self._judge("password", password == "sesame")

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        self.answers.wait(DEADLINE)
        return self._judge("publickey", key == self.key)

    def check_auth_interactive(
        self, username: str, submethods: str
    ) -> int | paramiko.server.InteractiveQuery:
        if self.methods[0] != "keyboard-interactive":
            return paramiko.AUTH_FAILED
        return paramiko.server.InteractiveQuery("Two factors", "Look at your telephone", ("Code: ", False))

    def check_auth_interactive_response(self, responses: list[str]) -> int:
        return self._judge("keyboard-interactive", responses == ["123456"])

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return paramiko.OPEN_SUCCEEDED


class House:
    """A one-hop SSH server with a `Door`."""

    def __init__(self, folder: Path, methods: list[str]) -> None:
        self.key = make_key(folder / "key")
        self.door = Door(methods, paramiko.PKey.from_path(self.key))
        self.trust_file = folder / "trusted_hosts"
        host_key_file = make_key(folder / "host_key")
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(DEADLINE)
        self.host_key = paramiko.PKey.from_path(host_key_file)
        self.port = self.listener.getsockname()[1]
        self.trust_file.write_text(
            f"[127.0.0.1]:{self.port} {self.host_key.get_name()} {self.host_key.get_base64()}\n"
        )
        self.transports: list[paramiko.Transport] = []
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self) -> None:
        client, _ = self.listener.accept()
        transport = paramiko.Transport(client)
        self.transports.append(transport)
        transport.add_server_key(self.host_key)
        transport.start_server(threading.Event(), self.door)

    def visit(self, ask: Asker | None, *keys: Path, timeout: float = 20.0) -> None:
        hop = Hop("login", "ssh", "127.0.0.1", self.port, "alice", identity_files=keys, identity_agent="none")
        connect([hop], ask=ask, trust_file=self.trust_file, timeout=timeout).close()

    def close(self) -> None:
        self.thread.join(DEADLINE)
        self.listener.close()
        for transport in self.transports:
            transport.close()


class Slammed(Door):
    """Hangs up when a key comes, without a goodbye, as a network that is gone."""

    house: House
    said = ""

    def get_banner(self) -> tuple[str | None, str | None]:
        return self.said or None, "en"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        self.house.transports[-1].sock.close()
        return paramiko.AUTH_FAILED


@pytest.fixture
def house(tmp_path: Path) -> Iterator[Callable[..., House]]:
    """A house whose door asks for the methods given."""
    built: list[House] = []

    def build(*methods: str) -> House:
        built.append(House(tmp_path, list(methods)))
        return built[-1]

    yield build
    for one in built:
        one.close()


class Owner:
    """Answers one secret after the other; with none left gives up."""

    def __init__(self, *secrets: str) -> None:
        self.secrets = list(secrets)
        self.prompts: list[tuple[str, str]] = []

    def secret(self, hop: str, prompt: str) -> str:
        self.prompts.append((hop, prompt))
        if not self.secrets:
            raise GaveUpError
        return self.secrets.pop(0)

    def confirm_host(self, hop: str, fingerprint: str, key_type: str) -> bool:
        raise AssertionError("the host is known")


class GaveUpError(Exception):
    """The owner closed the dialog."""


def test_a_password_is_asked_until_it_is_right(house: Callable[..., House]) -> None:
    owner = Owner("wrong", "sesame")
    house("password").visit(owner)
    assert owner.prompts == [
        ("login", "Password of alice: "),
        ("login", "That was not accepted. Password of alice: "),
    ]


def test_the_servers_own_words_reach_the_owner(house: Callable[..., House]) -> None:
    owner = Owner("123456")
    house("keyboard-interactive").visit(owner)
    assert owner.prompts == [("login", "Two factors\nLook at your telephone\nCode: ")]


def test_a_wrong_code_is_said_to_be(house: Callable[..., House]) -> None:
    owner = Owner("000000", "123456")
    house("keyboard-interactive").visit(owner)
    said = "Two factors\nLook at your telephone\nCode: "
    assert owner.prompts == [("login", said), ("login", f"That was not accepted.\n{said}")]


def test_a_right_password_is_not_called_wrong_before_its_code(house: Callable[..., House]) -> None:
    owner = Owner("wrong", "sesame", "123456")
    house("password", "keyboard-interactive").visit(owner)
    assert [prompt for _, prompt in owner.prompts] == [
        "Password of alice: ",
        "That was not accepted. Password of alice: ",
        "Two factors\nLook at your telephone\nCode: ",
    ]


def test_a_key_and_then_a_code(house: Callable[..., House]) -> None:
    here = house("publickey", "keyboard-interactive")
    here.visit(Owner("123456"), here.key)
    assert here.door.tries == ["publickey", "keyboard-interactive"]


@pytest.mark.parametrize(
    ("methods", "words"),
    [
        (["password"], "a password or code"),
        (["keyboard-interactive"], "a password or code"),
        (["publickey", "keyboard-interactive"], "a further code"),
    ],
)
def test_without_anybody_to_ask_the_remedy_is_login(
    house: Callable[..., House], methods: list[str], words: str
) -> None:
    here = house(*methods)
    with pytest.raises(AuthError, match=words) as caught:
        here.visit(None, here.key)
    assert "jupyter gpu-kernel login" in caught.value.remedy
    assert set(here.door.tries) <= {"publickey"}


def test_three_wrong_passwords_are_enough(house: Callable[..., House]) -> None:
    owner = Owner("a", "b", "c", "sesame")
    with pytest.raises(AuthError, match="what was typed"):
        house("password").visit(owner)
    assert len(owner.prompts) == 3


@pytest.mark.parametrize("method", ["password", "keyboard-interactive"])
def test_an_owner_who_gives_up_ends_it_in_his_own_words(house: Callable[..., House], method: str) -> None:
    with pytest.raises(GaveUpError):
        house(method).visit(Owner())


def test_a_server_that_falls_silent_is_given_up_in_time(house: Callable[..., House]) -> None:
    here = house("publickey")
    here.door.answers.clear()
    with pytest.raises(ConnectError, match="timed out while signing in"):
        here.visit(None, here.key, timeout=1.5)
    here.door.answers.set()


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[str]:
    """A real ssh-agent's socket."""
    program = shutil.which("ssh-agent")
    if program is None or sys.platform == "win32":
        pytest.skip("no ssh-agent with a unix socket")
    path = str(tmp_path / "agent")
    process = subprocess.Popen([program, "-D", "-a", path], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()  # its first line comes when it listens
    yield path
    process.terminate()
    process.wait(DEADLINE)
    process.stdout.close()


def test_the_agents_keys_are_used(two_hops: TwoHops, agent: str, tmp_path: Path) -> None:
    add = {"SSH_AUTH_SOCK": agent, "PATH": "/usr/bin:/bin"}
    strange = make_key(tmp_path / "strange")
    for key in (strange, two_hops.key):
        subprocess.run(["ssh-add", "-q", str(key)], env=add, check=True, timeout=DEADLINE)
    two_hops.key.unlink()  # only its public half is left, beside it
    hops = [replace(hop, identity_agent=agent) for hop in two_hops.hops]
    connect(hops, ask=None, trust_file=two_hops.trust_file).close()
    assert not any("Failed publickey" in line for line in two_hops.work.log)  # the right one came first
    hops = [replace(hop, identity_files=()) for hop in hops]
    connect(hops, ask=None, trust_file=two_hops.trust_file).close()
    only = [replace(hop, identities_only=True) for hop in hops]
    with pytest.raises(AuthError):
        connect(only, ask=None, trust_file=two_hops.trust_file)


def test_an_agent_that_is_gone_is_no_obstacle(two_hops: TwoHops, tmp_path: Path) -> None:
    hops = [replace(hop, identity_agent=str(tmp_path / "gone")) for hop in two_hops.hops]
    connect(hops, ask=None, trust_file=two_hops.trust_file).close()


@pytest.fixture
def lost(house: Callable[..., House]) -> House:
    """A house with a `Slammed` door."""
    lost = house("publickey")
    lost.door.__class__ = Slammed
    lost.door.house = lost
    return lost


@pytest.mark.parametrize("said", ["", "Welcome to the cluster"])
def test_a_drop_while_we_sign_in_is_no_refusal(lost: House, said: str) -> None:
    """Else a link that comes back would wait as after a wrong password."""
    lost.door.said = said
    with pytest.raises(ConnectError, match="the connection was lost while we signed in") as caught:
        lost.visit(None, lost.key)
    assert not isinstance(caught.value, AuthError)


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ("Access denied by pam_slurm_adopt: you have no active jobs on this node\r\n", "Start a job"),
        ("Your account has expired; please contact\r\nyour administrator.\r\n", "administrators"),
    ],
)
def test_a_server_whose_rules_let_nobody_in_is_quoted(lost: House, said: str, remedy: str) -> None:
    """It takes the key, says why not, and hangs up."""
    lost.door.said = said
    with pytest.raises(AuthError) as caught:
        lost.visit(None, lost.key)
    assert f"“{' '.join(said.split())}”" in caught.value.cause and remedy in caught.value.remedy


def test_a_server_that_has_seen_too_many_keys_says_so(two_hops: TwoHops, tmp_path: Path) -> None:
    two_hops.login.restart(MaxAuthTries="1")
    others = tuple(make_key(tmp_path / f"other-{number}") for number in range(2))
    hop = replace(two_hops.hops[0], identity_files=(*others, two_hops.key), identity_agent="none")
    with pytest.raises(AuthError, match=r"ended the connection.*Too many authentication failures"):
        connect([hop], ask=None, trust_file=two_hops.trust_file)
