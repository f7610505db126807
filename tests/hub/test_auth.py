"""Passwords, codes and agents. OpenSSH needs root to ask for passwords, so paramiko's own server does."""

from __future__ import annotations

import gc
import hashlib
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import paramiko
import pytest
from certificates import Authority
from connecting import connect
from paramiko.common import MSG_IGNORE
from ssh_server import RecordingPacketizer, SignInRules, SshServer
from sshd import TwoHops, make_key
from waiting import DEADLINE, eventually

from jupyter_gpu_kernel.errors import AuthError, ConnectError
from jupyter_gpu_kernel.hub.ssh.config.reasons import reasons
from jupyter_gpu_kernel.hub.ssh.route_connection import RouteConnection
from jupyter_gpu_kernel.hub.ssh.sign_in.keys import agent_keys

ASKED = "The server asks: “Two factors · Look at your telephone · Code:” "


class Slammed(SignInRules):
    """Hangs up when a key comes, without a goodbye, as a network that is gone."""

    ssh_server: SshServer
    banner = ""

    def get_banner(self) -> tuple[str | None, str | None]:
        return self.banner or None, "en"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        self.ssh_server.transports[-1].sock.close()
        return paramiko.AUTH_FAILED


class Owner:
    """Answers one secret after the other; with none left gives up."""

    def __init__(self, *secrets: str) -> None:
        self.secrets = list(secrets)
        self.prompts: list[tuple[str, str]] = []

    def secret(self, hop: str, prompt: str, secret: object) -> str:
        self.prompts.append((hop, prompt))
        if not self.secrets:
            raise GaveUpError
        return self.secrets.pop(0)

    def confirm_host(self, hop: str, fingerprint: str, key_type: str) -> bool:
        raise AssertionError("the host is known")


class GaveUpError(Exception):
    """The owner closed the dialog."""


def test_a_password_is_asked_until_it_is_right(ssh_server: Callable[..., SshServer]) -> None:
    owner = Owner("wrong", "sesame")
    ssh_server("password").visit(owner)
    assert owner.prompts == [
        ("login", "Password of alice: "),
        ("login", "Not accepted. Password of alice: "),
    ]


def test_the_servers_own_words_reach_the_owner(ssh_server: Callable[..., SshServer]) -> None:
    owner = Owner("123456")
    ssh_server("keyboard-interactive").visit(owner)
    assert owner.prompts == [("login", ASKED)]


def test_a_wrong_code_is_reported_as_wrong(ssh_server: Callable[..., SshServer]) -> None:
    owner = Owner("000000", "123456")
    ssh_server("keyboard-interactive").visit(owner)
    assert owner.prompts == [("login", ASKED), ("login", f"Not accepted. {ASKED}")]


def test_a_right_password_is_not_called_wrong_before_its_code(ssh_server: Callable[..., SshServer]) -> None:
    owner = Owner("wrong", "sesame", "123456")
    ssh_server("password", "keyboard-interactive").visit(owner)
    assert [prompt for _, prompt in owner.prompts] == [
        "Password of alice: ",
        "Not accepted. Password of alice: ",
        ASKED,
    ]


def test_a_key_and_then_a_code(ssh_server: Callable[..., SshServer]) -> None:
    here = ssh_server("publickey", "keyboard-interactive")
    here.visit(Owner("123456"), here.key)
    assert here.rules.tries == ["publickey", "keyboard-interactive"]


def test_the_servers_host_keys_are_followed_by_a_message(ssh_server: Callable[..., SshServer]) -> None:
    """It lets the host before acknowledge them, so that the server may send more."""
    here = ssh_server("publickey")
    connection = here.connect(None, here.key)
    server = here.transports[0]
    received = cast(RecordingPacketizer, server.packetizer).kinds
    assert MSG_IGNORE not in received
    server.global_request("hostkeys-00@openssh.com", wait=False)
    eventually(lambda: MSG_IGNORE in received, "a message to ignore")
    connection.close()


@pytest.mark.parametrize(
    ("methods", "words"),
    [
        (["password"], "a password or code"),
        (["keyboard-interactive"], "a password or code"),
        (["publickey", "keyboard-interactive"], "another password or code"),
    ],
)
def test_without_anybody_to_ask_the_remedy_is_login(
    ssh_server: Callable[..., SshServer], methods: list[str], words: str
) -> None:
    here = ssh_server(*methods)
    with pytest.raises(AuthError, match=words) as caught:
        here.visit(None, here.key)
    assert "jupyter gpu-kernel login" in caught.value.remedy
    assert set(here.rules.tries) <= {"publickey"}


@pytest.mark.parametrize("methods", ["gssapi-with-mic", ""])
def test_a_server_that_takes_no_keys_is_not_offered_another_one(
    ssh_server: Callable[..., SshServer], methods: str
) -> None:
    here = ssh_server(methods)
    with pytest.raises(AuthError, match=f"accepted methods: {methods or 'no supported method'}\n") as caught:
        here.visit(None, here.key)
    assert "accepts no keys" in caught.value.remedy and "-i" not in caught.value.remedy


def test_a_key_that_would_not_be_taken_is_no_reason_to_refuse_a_password(
    ssh_server: Callable[..., SshServer], tmp_path: Path
) -> None:
    here = ssh_server("password")
    here.key.chmod(0o644)
    owner = Owner("sesame")
    here.visit(owner, here.key)
    assert [prompt for _, prompt in owner.prompts] == ["Password of alice: "]


class Forgetful:
    """Types a password that nothing else holds: the test itself knows only how it is made."""

    def __init__(self, *salts: bytes) -> None:
        self.salts = list(salts)

    def secret(self, hop: str, prompt: str, secret: object) -> str:
        return made_secret(self.salts.pop(0))

    def confirm_host(self, hop: str, fingerprint: str, key_type: str) -> bool:
        raise AssertionError("the host is known")


def made_secret(salt: bytes) -> str:
    return "s-" + hashlib.sha256(salt).hexdigest()


class Checking(SignInRules):
    """Knows passwords and codes by how they are made. Hangs up at one of them."""

    ssh_server: SshServer

    def check_auth_password(self, username: str, password: str) -> int:
        if password == made_secret(b"last"):
            self.ssh_server.transports[-1].sock.close()
        return self._judge("password", password == made_secret(b"right"))

    def check_auth_interactive_response(self, responses: list[str]) -> int:
        return self._judge("keyboard-interactive", responses == [made_secret(b"right")])


def holders(secret: str) -> list[str]:
    """What leads to the text, of all objects that Python's garbage collector knows, frames included."""
    gc.collect()
    data = secret.encode()
    found = []
    for holder in gc.get_objects():
        for held in gc.get_referents(holder):
            if (isinstance(held, str) and secret in held) or (isinstance(held, bytes) and data in held):
                found.append(f"{type(holder).__name__}: {str(holder)[:200]}")
    return found


@pytest.mark.parametrize("method", ["password", "keyboard-interactive"])
@pytest.mark.parametrize("salts", [[b"right"], [b"wrong", b"right"], [b"a", b"b", b"c"], [b"last"] * 3])
def test_nothing_holds_what_was_typed(
    ssh_server: Callable[..., SshServer], method: str, salts: list[bytes]
) -> None:
    """Neither the connection, nor an error that is kept."""
    here = ssh_server(method)
    here.rules.__class__ = Checking
    here.rules.ssh_server = here
    kept: list[object] = []
    try:
        kept.append(here.connect(Forgetful(*salts)))
    except ConnectError as error:
        kept.append(error)
    here.transports[-1].join(0.0 if isinstance(kept[0], RouteConnection) else DEADLINE)
    here.transports[-1].get_exception()  # what this process's own server stumbled over
    for salt in salts:
        assert holders(made_secret(salt)) == []
    for one in kept:
        if isinstance(one, RouteConnection):
            one.close()


@pytest.mark.parametrize(("method", "asked"), [("password", True), ("publickey", False)])
def test_whether_a_connection_could_be_made_anew_without_its_owner(
    ssh_server: Callable[..., SshServer], method: str, asked: bool
) -> None:
    here = ssh_server(method)
    connection = here.connect(Owner("sesame"), here.key)
    assert connection.interactive is asked
    connection.close()


def test_three_wrong_passwords_are_enough(ssh_server: Callable[..., SshServer]) -> None:
    owner = Owner("a", "b", "c", "sesame")
    with pytest.raises(AuthError, match="the typed password or code"):
        ssh_server("password").visit(owner)
    assert len(owner.prompts) == 3


@pytest.mark.parametrize("method", ["password", "keyboard-interactive"])
def test_an_owner_who_gives_up_ends_it_in_his_own_words(
    ssh_server: Callable[..., SshServer], method: str
) -> None:
    with pytest.raises(GaveUpError):
        ssh_server(method).visit(Owner())


def test_a_server_that_falls_silent_is_given_up_in_time(ssh_server: Callable[..., SshServer]) -> None:
    here = ssh_server("publickey")
    here.rules.answers.clear()
    with pytest.raises(ConnectError, match="timed out while signing in"):
        here.visit(None, here.key, timeout=4)
    here.rules.answers.set()


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A real ssh-agent's socket, which SSH_AUTH_SOCK names."""
    program = shutil.which("ssh-agent")
    if program is None or sys.platform == "win32":
        pytest.skip("no ssh-agent with a unix socket")
    path = str(tmp_path / "agent")
    monkeypatch.setenv("SSH_AUTH_SOCK", path)
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
    hops = [replace(hop, uses_agent=True) for hop in two_hops.hops]
    connect(hops, ask=None, trust_file=two_hops.trust_file).close()
    assert not any("Failed publickey" in line for line in two_hops.work.log)  # the right one came first
    hops = [replace(hop, identity_files=()) for hop in hops]
    connect(hops, ask=None, trust_file=two_hops.trust_file).close()
    only = [replace(hop, identities_only=True) for hop in hops]
    with pytest.raises(AuthError):
        connect(only, ask=None, trust_file=two_hops.trust_file)


def test_a_certificate_in_the_agent_needs_the_ssh_program(
    two_hops: TwoHops, agent: str, tmp_path: Path
) -> None:
    """Without the key itself, as sites' programs for signing in leave it."""
    authority = Authority(tmp_path / "authority")
    key = make_key(tmp_path / "key")
    authority.sign_user(key)
    authority.admit_users(two_hops.login)
    add = {"SSH_AUTH_SOCK": agent, "PATH": "/usr/bin:/bin"}
    subprocess.run(["ssh-add", "-q", str(key)], env=add, check=True, timeout=DEADLINE)
    subprocess.run(["ssh-add", "-q", "-d", f"{key}.pub"], env=add, check=True, timeout=DEADLINE)
    hop = replace(two_hops.hops[0], identity_files=(), uses_agent=True)
    listed = subprocess.run(
        ["ssh-add", "-L"], env=add, capture_output=True, text=True, timeout=DEADLINE
    ).stdout
    assert listed.startswith("ssh-ed25519-cert-v01@openssh.com") and len(listed.splitlines()) == 1
    assert list(reasons(hop)) == ["a certificate in the ssh agent"]
    with pytest.raises(AuthError, match="a certificate in the ssh agent can be offered only by the ssh"):
        connect([hop], ask=None, trust_file=two_hops.trust_file)
    subprocess.run(["ssh-add", "-q", "-D"], env=add, check=True, timeout=DEADLINE)
    assert list(reasons(hop)) == []


def test_a_certificate_that_paramiko_does_not_offer_is_named(two_hops: TwoHops, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    key = make_key(tmp_path / "key")
    authority.sign_user(key)
    authority.admit_users(two_hops.login)
    hop = replace(two_hops.hops[0], identity_files=(key,))
    told = r"refused: .*key; the certificate .*key-cert\.pub can be offered only by the ssh program"
    with pytest.raises(AuthError, match=told):
        connect([hop], ask=None, trust_file=two_hops.trust_file)
    two_hops.login.authorized.write_text(Path(f"{key}.pub").read_text())
    connect([hop], ask=None, trust_file=two_hops.trust_file).close()  # the key itself


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # paramiko leaves its socket open
@pytest.mark.parametrize("is_silent", [False, True])
def test_an_agent_that_is_gone_or_silent_is_no_obstacle(
    two_hops: TwoHops, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_silent: bool
) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))
    hops = [replace(two_hops.hops[0], uses_agent=True)]
    with socket.socket(socket.AF_UNIX) as silent:
        if is_silent:
            silent.bind(str(tmp_path / "agent"))
            silent.listen()
        connect(hops, ask=None, trust_file=two_hops.trust_file).close()
        with agent_keys(hops[0]) as held:
            assert not held
        waiting = [one for one in threading.enumerate() if one.name == "call with time limit"]
        assert len(waiting) <= 1  # a silent agent is not asked again
    for thread in threading.enumerate():
        if thread.name == "call with time limit":
            thread.join(DEADLINE)
    gc.collect()


@pytest.fixture
def lost(ssh_server: Callable[..., SshServer]) -> SshServer:
    """A server that hangs up."""
    lost = ssh_server("publickey")
    lost.rules.__class__ = Slammed
    lost.rules.ssh_server = lost
    return lost


@pytest.mark.parametrize("banner", ["", "Welcome to the cluster"])
def test_a_drop_while_we_sign_in_is_no_refusal(lost: SshServer, banner: str) -> None:
    """Else a link that comes back would wait as after a wrong password."""
    lost.rules.banner = banner
    with pytest.raises(ConnectError, match="the connection was lost while signing in") as caught:
        lost.visit(None, lost.key)
    assert not isinstance(caught.value, AuthError)


@pytest.mark.parametrize(
    ("banner", "remedy"),
    [
        ("Access denied by pam_slurm_adopt: you have no active jobs on this node\r\n", "Start a job"),
        ("Your account has expired; please contact\r\nyour administrator.\r\n", "administrators"),
    ],
)
def test_a_server_whose_rules_let_nobody_in_is_quoted(lost: SshServer, banner: str, remedy: str) -> None:
    """It takes the key, says why not, and hangs up."""
    lost.rules.banner = banner
    with pytest.raises(AuthError) as caught:
        lost.visit(None, lost.key)
    assert f"“{' '.join(banner.split())}”" in caught.value.cause and remedy in caught.value.remedy


def test_a_server_that_has_seen_too_many_keys_says_so(two_hops: TwoHops, tmp_path: Path) -> None:
    two_hops.login.restart(MaxAuthTries="1")
    others = tuple(make_key(tmp_path / f"other-{number}") for number in range(2))
    hop = replace(two_hops.hops[0], identity_files=(*others, two_hops.key), uses_agent=False)
    with pytest.raises(AuthError, match=r"closed the connection.*Too many authentication failures"):
        connect([hop], ask=None, trust_file=two_hops.trust_file)
