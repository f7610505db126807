"""The transport `ssh` with configurations that change what an ssh of the user's own does: same verdict as that ssh."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from connecting import connect_route
from ssh_verdicts import Lab, seen
from sshd import free_port

from jupyter_gpu_kernel.errors import GpuKernelError
from jupyter_gpu_kernel.hub.transport.connection import Connection

pytestmark = pytest.mark.full

CONNECTS = [
    "AddressFamily inet",
    "BindAddress 127.0.0.1",
    "BindInterface lo",
    "CheckHostIP yes",
    "Ciphers aes256-ctr,aes128-ctr",
    "Ciphers chacha20-poly1305@openssh.com",
    "HostKeyAlgorithms -ecdsa*",
    "HostKeyAlgorithms ssh-ed25519",
    "KexAlgorithms ecdh-sha2-nistp384,curve25519-sha256",
    "KexAlgorithms sntrup761x25519-sha512@openssh.com\n  MACs umac-128-etm@openssh.com\n  Ciphers aes128-ctr",
    "KnownHostsCommand /bin/cat {folder}/known\n  UserKnownHostsFile none",
    "IdentityAgent {folder}/missing",
    "PreferredAuthentications password,publickey",
    "PubkeyAcceptedAlgorithms ssh-ed25519",
    "PubkeyAcceptedKeyTypes ssh-ed25519,rsa-sha2-512",
    "RekeyLimit 1G 1h",
    "RevokedHostKeys {folder}/krl",
]
REFUSES = [
    "AddressFamily inet6",
    "KnownHostsCommand /bin/cat {folder}/other\n  UserKnownHostsFile none",
    "PubkeyAuthentication no",
    "RefuseConnection not_today",
    "RevokedHostKeys {folder}/krl_of_host",
    "RevokedHostKeys {folder}/missing",
    "RevokedHostKeys {folder}/revoked",
    "UserKnownHostsFile {folder}/empty",
    "UserKnownHostsFile {folder}/empty\n  StrictHostKeyChecking accept-new",
    "UserKnownHostsFile {folder}/empty\n  StrictHostKeyChecking no",
    "UserKnownHostsFile {folder}/empty\n  NoHostAuthenticationForLocalhost yes",
    "UserKnownHostsFile {folder}/other\n  StrictHostKeyChecking no",
    "UserKnownHostsFile {folder}/other\n  NoHostAuthenticationForLocalhost yes",
]
# Each would disturb a command that we run, or leave something behind, if the program were simply run.
MEDDLES = """
  AddKeysToAgent yes
  ControlMaster auto
  ControlPath {folder}/master-%p
  ControlPersist yes
  EscapeChar a
  ExitOnForwardFailure yes
  ForkAfterAuthentication yes
  ForwardAgent yes
  ForwardX11 yes
  HashKnownHosts yes
  LocalCommand touch {folder}/ran
  LocalForward 127.0.0.1:{busy} 127.0.0.1:1
  LocalForward 127.0.0.1:{free} 127.0.0.1:1
  LogLevel QUIET
  PermitLocalCommand yes
  ProxyUseFdpass yes
  RemoteCommand false
  RequestTTY force
  SessionType none
  StdinNull yes
  UpdateHostKeys yes
  VisualHostKey yes
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A login node and a work node that stay as they are."""
    lab = Lab(tmp_path_factory.mktemp("transport"))
    lab.two.work.options = {"LogLevel": "DEBUG"}
    lab.two.start()
    yield lab
    lab.two.stop()


def dial(lab: Lab, config: Path, transport: str, host: str = "login") -> Connection:
    """A connection as a kernelspec's."""
    return connect_route(
        [host],
        config=config,
        transport=transport,
        trust_file=lab.two.trust_file,
    )


@pytest.mark.parametrize("lines", CONNECTS)
def test_what_paramiko_cannot_follow_connects_as_with_ssh(lab: Lab, lines: str) -> None:
    config = lab.config(lines)
    theirs = lab.ssh(config)
    assert theirs is not None
    since = len(lab.login.log)
    connection = dial(lab, config, "auto")
    assert connection.run("cat", stdin=b"here").stdout == b"here"
    connection.close()
    assert seen(lab.login, since) == theirs


@pytest.mark.parametrize("lines", REFUSES)
def test_what_ssh_refuses_is_refused_and_no_unknown_host_is_accepted(lab: Lab, lines: str) -> None:
    config = lab.config(lines)
    with pytest.raises(GpuKernelError) as caught:
        dial(lab, config, "ssh")
    assert caught.value.hop == "login" and caught.value.remedy
    assert (lab.files / "empty").read_text() == ""


@pytest.mark.parametrize("host", ["login", "work"])
@pytest.mark.parametrize("transport", ["ssh", "direct"])
def test_nothing_in_the_configuration_disturbs_our_commands(lab: Lab, transport: str, host: str) -> None:
    known = lab.two.known_hosts.read_text()
    with socket.create_server(("127.0.0.1", free_port())) as busy:
        free = free_port()
        text = MEDDLES.replace("{busy}", str(busy.getsockname()[1])).replace("{free}", str(free))
        config = lab.config(text.strip(), host="Host login work\n  ")
        connection = dial(lab, config, transport, host)
        assert connection.run("echo out; cat", stdin=b"here").stdout == b"out\nhere"
        stream = connection.open("echo out; cat")
        stream.write(b"there")
        stream.close_stdin()
        assert b"".join(iter(stream.read, b"")) == b"out\nthere"
        with socket.socket() as nobody:
            assert nobody.connect_ex(("127.0.0.1", free)) != 0, "nothing is forwarded"
        connection.close()
    assert list(lab.files.glob("master-*")) == [] and not (lab.files / "ran").exists()
    assert lab.two.known_hosts.read_text() == known
