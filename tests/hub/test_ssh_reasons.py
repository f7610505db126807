"""Which hops need the system's ssh program, by their configuration. test_ssh_routes.py connects along such routes."""

from __future__ import annotations

import base64
import os
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from connecting import connect_route, masters
from dialling import Owner
from sshd import TwoHops

from jupyter_gpu_kernel.errors import ConnectError, GpuKernelError, HostKeyError
from jupyter_gpu_kernel.hub.ssh.config.reasons import reasons
from jupyter_gpu_kernel.hub.ssh.config.route import resolve
from jupyter_gpu_kernel.hub.transport.connection import Connection

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(sys.platform == "win32", reason="ssh has no ControlMaster on Windows"),
]
Join = Callable[..., Connection]
FIDO = "sk-ssh-ed25519@openssh.com AAAAGnNrLXNzaC1lZDI1NTE5QG9wZW5zc2guY29tAAAAIA== alice\n"
FIDO_PRIVATE = (
    b"openssh-key-v1\0\0\0\0\4none\0\0\0\4none\0\0\0\0\0\0\0\1\0\0\0\x4a\0\0\0\x1ask-ssh-ed25519@openssh.com"
)


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ("", ""),
        ("ProxyCommand nc -X 5 -x proxy:1080 %h %p", "ProxyCommand nc -X 5"),
        ("ProxyCommand ssh -W %h:%p jump", ""),
        ("ProxyJump jump", ""),
        ("KnownHostsCommand /bin/keys %H", "KnownHostsCommand /bin/keys"),
        ("GSSAPIAuthentication yes", "a Kerberos ticket"),
        ("HostbasedAuthentication yes", "HostbasedAuthentication yes"),
        ("PKCS11Provider /usr/lib/token.so", "PKCS11Provider /usr/lib/token.so"),
        ("IdentityFile {folder}/fido", "the FIDO key"),
        ("IdentityFile {folder}/token", "the FIDO key {folder}/token"),
        ("IdentityFile {folder}/missing", ""),
        ("UserKnownHostsFile {folder}/authorities", "the certificate authority for hosts"),
        ("UserKnownHostsFile {folder}/other_authorities", ""),
        ("Ciphers chacha20-poly1305@openssh.com", "Ciphers chacha20"),
        ("PreferredAuthentications gssapi-with-mic", "PreferredAuthentications"),
        ("BindInterface lo", "BindInterface"),
        ("AddressFamily inet", "AddressFamily inet"),
        ("PreferredAuthentications password,publickey", "PreferredAuthentications password,publickey"),
        ("PreferredAuthentications publickey,password", "PreferredAuthentications publickey,password"),
        ("PubkeyAuthentication yes\n  NumberOfPasswordPrompts 3", ""),
        ("PasswordAuthentication no", "PasswordAuthentication no"),
        ("IdentityFile {folder}/%h", "IdentityFile {folder}/%h"),
        ("CertificateFile ${{HOME}}/certificate", "CertificateFile ${{HOME}}/certificate"),
        ("IdentityFile {folder}/certified", "the certificate {folder}/certified-cert.pub"),
        ("CertificateFile {folder}/fido", "the certificate {folder}/fido"),
        ("CertificateFile {folder}/missing", ""),
        ("ControlPath {folder}/master\n  ControlMaster auto", ""),
        ("IdentityAgent {folder}/agent", "IdentityAgent {folder}/agent"),
        ("Match exec true\n  ProxyCommand nc %h %p", "ProxyCommand nc"),
        ("Match exec false\n  ProxyCommand nc %h %p", ""),
    ],
)
def test_what_a_configuration_needs(
    tmp_path: Path, lines: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "fido").write_text(FIDO)
    lines_of_key = textwrap.fill(base64.b64encode(FIDO_PRIVATE + bytes(200)).decode(), 70)
    (tmp_path / "token").write_text(
        f"-----BEGIN OPENSSH PRIVATE KEY-----\n{lines_of_key}\n-----END OPENSSH PRIVATE KEY-----\n"
    )
    (tmp_path / "certified-cert.pub").write_text("")
    authority = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA=="
    (tmp_path / "authorities").write_text(f"@cert-authority *.cluster {authority}\n")
    (tmp_path / "other_authorities").write_text(f"@cert-authority *.elsewhere {authority}\n")
    config = tmp_path / "config"
    config.write_text(
        f"Host gpu2\n  HostName gpu2.cluster\n  {lines.format(folder=tmp_path)}\n  IdentityAgent none\n"
        "Host *\n  UserKnownHostsFile none\n  GlobalKnownHostsFile none\n"
    )
    hop = resolve(["gpu2"], config=str(config))[-1]
    klist = tmp_path / "klist"
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    klist.write_text("#!/bin/sh\nexit 0\n")
    klist.chmod(0o755)
    found = list(reasons(hop))
    assert bool(found) == bool(reason) and reason.format(folder=tmp_path) in "; ".join(found)
    klist.write_text("#!/bin/sh\nexit 1\n")
    assert not any("Kerberos" in one for one in reasons(hop))


@pytest.fixture
def join(two_hops: TwoHops) -> Iterator[Join]:
    """Connect to the login node with `auto`, and these lines in the configuration; closed afterwards."""
    made: list[Connection] = []
    plain = two_hops.ssh_config.read_text()

    def joined(
        lines: str, ask: Owner | None = None, transport: str = "auto", without: str = "!", to: str = "login"
    ) -> Connection:
        rest = "".join(line for line in plain.splitlines(True) if without not in line)
        two_hops.ssh_config.write_text(f"Host login\n  {lines}\n{rest}")
        connection = connect_route(
            [to],
            config=two_hops.ssh_config,
            transport=transport,
            ask=ask,
            trust_file=two_hops.trust_file,
        )
        made.append(connection)
        return connection

    yield joined
    for connection in made:
        connection.close()


def works(connection: Connection, why: str) -> None:
    """The connection is of the system's ssh, for this reason."""
    assert connection.run("echo on").stdout == b"on\n"
    assert connection.transport.startswith("the system's ssh (") and why in connection.transport


def test_paramiko_is_taken_where_it_can_do_all(join: Join) -> None:
    assert join("").transport == "paramiko"


def test_ssh_is_taken_where_the_user_says_so(join: Join) -> None:
    connection = join("", transport="ssh")
    works(connection, "")
    assert ", for " not in connection.transport


@pytest.mark.parametrize(
    "only",
    [
        {"Ciphers": "chacha20-poly1305@openssh.com"},
        {"KexAlgorithms": "curve25519-sha256"},  # paramiko knows its earlier name only (its issue 2221)
    ],
)
def test_ssh_is_taken_for_a_server_with_algorithms_that_paramiko_lacks(
    join: Join, two_hops: TwoHops, only: dict[str, str]
) -> None:
    two_hops.login.restart(**only)
    works(join(""), "login: no common SSH algorithm (")
    with pytest.raises(ConnectError, match="no common SSH algorithm") as caught:
        join("", transport="paramiko")
    assert "--transport ssh" in caught.value.remedy


def test_a_proxy_that_leaves_a_process_behind_is_not_waited_for(join: Join, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with pytest.raises(GpuKernelError, match="its ProxyCommand ended: the proxy is down"):
        join(f"ProxyCommand sh -c 'cat {fifo} >/dev/null & read line; echo the proxy is down >&2'")
    os.close(os.open(fifo, os.O_RDWR))  # ends it


def test_a_proxy_that_ends_is_named_with_its_words(join: Join) -> None:
    with pytest.raises(GpuKernelError, match="its ProxyCommand ended: the proxy is down") as caught:
        join("ProxyCommand sh -c 'read line; echo the proxy is down >&2'")
    assert caught.value.hop == "login"


def test_a_command_that_knows_the_hosts(join: Join, two_hops: TwoHops, tmp_path: Path) -> None:
    known = tmp_path / "known"
    known.write_text(two_hops.login.known_hosts_line())
    two_hops.known_hosts.write_text("")
    works(join(f"KnownHostsCommand /bin/cat {known}"), "KnownHostsCommand")


def test_an_ssh_that_ends_while_it_verifies_the_host_key_has_not_refused_it(
    join: Join, tmp_path: Path
) -> None:
    ends_ssh = tmp_path / "ends_ssh"
    ends_ssh.write_text('#!/bin/sh\n[ "$1" = ORDER ] || kill -KILL "$PPID"\n')
    ends_ssh.chmod(0o755)
    with pytest.raises(ConnectError, match="the connection was lost in the SSH key exchange") as caught:
        join(f"KnownHostsCommand {ends_ssh} %I")
    assert not isinstance(caught.value, HostKeyError)  # after which the hub would wait a minute


def test_a_connection_that_is_open_is_a_reason(
    join: Join, two_hops: TwoHops, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path("/tmp") / f"jgk-needs-{os.getpid()}"
    own = join("", transport="ssh")
    two_hops.ssh_config.write_text(two_hops.ssh_config.read_text())
    path.symlink_to(masters(own)[-1].control)  # type: ignore[attr-defined]
    try:
        works(join(f"ControlPath {path}"), f"your own connection is open (ControlPath {path})")
        own.close()
        assert join(f"ControlPath {path}").transport == "paramiko"
    finally:
        path.unlink()
