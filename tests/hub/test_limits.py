"""What ssh config forbids: the real ssh and we say the same of a server with the same config, or we refuse by name."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue

import paramiko
import pytest
from connecting import connect
from ssh_server import SignInRules, SshServer
from sshd import TwoHops
from waiting import DEADLINE

from jupyter_gpu_kernel.errors import AuthError, GpuKernelError, HostKeyError, RouteError
from jupyter_gpu_kernel.hub.ssh import hostkeys
from jupyter_gpu_kernel.hub.ssh.config import algorithms, directives, reasons
from jupyter_gpu_kernel.hub.ssh.config.route import Hop, resolve


@pytest.mark.parametrize("hop", ["login", "work"])
def test_what_can_never_be_is_refused_before_any_hop_is_reached(two_hops: TwoHops, hop: str) -> None:
    """Else its owner would type a code in vain."""
    lines = f"Host {hop}\n  Ciphers chacha20-poly1305@openssh.com\n"
    two_hops.ssh_config.write_text(lines + two_hops.ssh_config.read_text())
    with pytest.raises(RouteError, match="Ciphers") as caught:
        connect(two_hops.hops, ask=None, trust_file=two_hops.trust_file)
    assert caught.value.hop == hop
    assert not any("Connection from" in line for line in two_hops.login.log)


USUAL = {
    "ciphers": [
        "chacha20-poly1305@openssh.com,aes128-ctr,aes256-ctr,aes128-gcm@openssh.com,aes256-gcm@openssh.com"
    ],
    "pubkeyacceptedalgorithms": [",".join(algorithms.USER_KEYS)],
}
"""What an ssh permits that has no configuration."""


@pytest.mark.parametrize(
    ("directive", "given", "forbids"),
    [
        ("ciphers", USUAL["ciphers"], False),
        ("ciphers", ["aes256-gcm@openssh.com,aes256-ctr,aes128-gcm@openssh.com,aes128-ctr"], False),
        ("ciphers", ["chacha20-poly1305@openssh.com"], True),
        ("ciphers", ["aes256-gcm@openssh.com,aes256-ctr,aes128-gcm@openssh.com"], True),
        ("pubkeyacceptedalgorithms", ["*"], False),
        ("pubkeyacceptedalgorithms", ["ssh-*,ecdsa-*,rsa-*,sk-*"], False),
        ("pubkeyacceptedalgorithms", ["ssh-*"], True),
        ("pubkeyacceptedalgorithms", ["*", "ssh-ed25519"], True),
        ("kexalgorithms", ["curve25519-sha256@libssh.org"], False),  # this ssh has no other one
    ],
)
def test_a_list_that_forbids_what_paramiko_offers_needs_ssh(
    directive: str, given: list[str], forbids: bool
) -> None:
    usual = {**USUAL, "kexalgorithms": ["curve25519-sha256@libssh.org"]}
    found = list(algorithms.forbidding({**usual, directive: given}, usual))
    assert [one.lower() for one in found] == [f"{directive} {', '.join(given)}"] * forbids


def test_without_an_ssh_program_no_list_forbids_anything() -> None:
    assert list(algorithms.forbidding({}, {})) == []


# Lists such as those of the crypto policies DEFAULT and FIPS, which Fedora and RHEL include for all hosts.
CURVES = "ecdh-sha2-nistp256,ecdh-sha2-nistp384,ecdh-sha2-nistp521"
GROUPS = "diffie-hellman-group-exchange-sha256,diffie-hellman-group14-sha256,diffie-hellman-group16-sha512"
KEYS = "ecdsa-sha2-nistp256,ecdsa-sha2-nistp384,ecdsa-sha2-nistp521,ssh-ed25519,rsa-sha2-256,rsa-sha2-512"
DEFAULT_POLICY = f"""\
Ciphers aes256-gcm@openssh.com,chacha20-poly1305@openssh.com,aes256-ctr,aes128-gcm@openssh.com,aes128-ctr
MACs hmac-sha2-256-etm@openssh.com,hmac-sha1-etm@openssh.com,hmac-sha2-512-etm@openssh.com,hmac-sha2-256,hmac-sha2-512
KexAlgorithms curve25519-sha256,curve25519-sha256@libssh.org,{CURVES},{GROUPS}
HostKeyAlgorithms {KEYS}
PubkeyAcceptedAlgorithms {KEYS},sk-ssh-ed25519@openssh.com,sk-ecdsa-sha2-nistp256@openssh.com
RequiredRSASize 2048
"""
FIPS_POLICY = f"""\
Ciphers aes256-gcm@openssh.com,aes256-ctr,aes128-gcm@openssh.com,aes128-ctr
KexAlgorithms {CURVES},diffie-hellman-group14-sha256
"""


@pytest.mark.parametrize(("policy", "needs"), [(DEFAULT_POLICY, False), (FIPS_POLICY, True)])
def test_the_crypto_policy_of_a_system_does_not_take_every_route_to_ssh(
    tmp_path: Path, policy: str, needs: bool
) -> None:
    config = tmp_path / "config"
    config.write_text(policy + "IdentityFile none\nIdentityAgent none\n")
    assert bool(list(reasons.refused(resolve(["login"], config=str(config))[0]))) is needs


class Typing:
    """Types the password and the code."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def secret(self, hop: str, prompt: str, secret: object) -> str:
        self.asked.append(prompt)
        return "123456" if "Code" in prompt else "wrong"

    def confirm_host(self, hop: str, fingerprint: str, key_type: str) -> bool:
        self.asked.append(fingerprint)
        return True


@pytest.mark.parametrize(
    ("directive", "value", "usual"),
    [
        ("NumberOfPasswordPrompts", "1", "3"),
        ("KbdInteractiveAuthentication", "no", "yes"),
        ("PasswordAuthentication", "no", "yes"),
        ("PreferredAuthentications", "password", ""),
        ("PreferredAuthentications", "none", ""),
        ("PubkeyAuthentication", "false", "true"),
        ("RevokedHostKeys", "/etc/ssh/revoked", ""),
    ],
)
def test_what_restricts_and_only_ssh_follows_is_refused_by_name(
    directive: str, value: str, usual: str
) -> None:
    defaults = {directive.lower(): [usual]} if usual else {}
    assert list(directives.unsupported({directive.lower(): [value]}, defaults)) == [f"{directive} {value}"]
    assert list(directives.unsupported(defaults, defaults)) == []


@pytest.mark.parametrize(
    ("old", "named"),
    [
        ("challengeresponseauthentication no", "KbdInteractiveAuthentication no"),
        ("pubkeyacceptedkeytypes ssh-ed25519", "PubkeyAcceptedAlgorithms ssh-ed25519"),
        ("rsaminsize 3072", ""),
    ],
)
def test_a_directive_that_an_old_ssh_prints_by_its_earlier_name_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, named: str
) -> None:
    usual = "pubkeyacceptedkeytypes ssh-ed25519,rsa-sha2-512"
    program = tmp_path / "ssh"
    program.write_text(f'#!/bin/sh\ncase "$*" in *none*) echo "{usual}" ;; *) echo "{old}" ;; esac\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    hop = resolve(["login"])[0]
    assert list(reasons.refused(hop)) == [named] * bool(named)
    assert hop.rsa_bits == (1024 if named else 3072)


class Switching(SignInRules):
    """Takes passwords, until one comes; then questions and answers alone."""

    def get_allowed_auths(self, username: str) -> str:
        return ",".join(self.methods)

    def check_auth_password(self, username: str, password: str) -> int:
        self.methods = ["keyboard-interactive"]
        return paramiko.AUTH_FAILED


def test_a_password_does_not_go_to_another_host_than_its_owner_saw(
    ssh_server: Callable[..., SshServer],
) -> None:
    """paramiko can answer a server's question with the password, unseen."""
    here = ssh_server("password")
    here.rules.__class__ = Switching
    with pytest.raises(AuthError):
        here.visit(Typing())
    assert here.rules.tries == []


def test_batch_mode_asks_for_nothing(ssh_server: Callable[..., SshServer]) -> None:
    owner = Typing()
    with pytest.raises(AuthError, match="asks for a password or code"):
        ssh_server("password").visit(owner, asks=False)
    assert owner.asked == []


@pytest.mark.parametrize("forbidden", [{"asks": False}, {"new_hosts": False}])
def test_an_unknown_host_is_not_asked_about_where_the_config_forbids_it(
    two_hops: TwoHops, forbidden: dict[str, bool]
) -> None:
    two_hops.known_hosts.write_text("")
    owner = Typing()
    hop = replace(two_hops.hops[0], **forbidden)
    with pytest.raises(HostKeyError, match="not known"):
        connect([hop], ask=owner, trust_file=two_hops.trust_file)
    assert owner.asked == [] and not two_hops.trust_file.exists()


# --- what we offer


def offered() -> dict[str, list[str]]:
    """The lists in our key exchange, as they come over the wire."""
    messages: SimpleQueue[bytes] = SimpleQueue()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            client, _ = listener.accept()
            listener.close()  # an attempt to connect again is refused
            with client, client.makefile("rb") as file:
                client.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
                file.readline()
                size = int.from_bytes(file.read(4), "big")
                messages.put(file.read(size)[1:])

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        hop = Hop("login", "ssh", "127.0.0.1", listener.getsockname()[1], "alice", uses_agent=False)
        with pytest.raises(GpuKernelError):
            connect([hop], ask=None, trust_file=Path("/nowhere"), timeout=10)
        thread.join(DEADLINE)
    m = paramiko.Message(messages.get(timeout=DEADLINE)[17:])  # behind its type and 16 random bytes
    names = "kex", "keys", "cipher out", "cipher in", "MAC out", "MAC in", "compression out", "compression in"
    return {name: m.get_list() for name in names}


def test_nothing_weak_is_offered() -> None:
    lists = offered()
    for name, listed in lists.items():
        assert listed
        for one in listed:
            assert not any(weak in one for weak in ("md5", "sha1", "cbc", "3des", "arcfour", "dss", "-96")), (
                name
            )
            assert one not in ("ssh-rsa", "ssh-dss", "diffie-hellman-group14-sha1")
    assert lists["keys"] == hostkeys.offer(())
    assert lists["cipher in"][0] == "aes128-gcm@openssh.com" and lists["MAC in"][0].endswith(
        "etm@openssh.com"
    )
    assert "curve25519-sha256@libssh.org" in lists["kex"]
