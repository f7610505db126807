"""One configuration after the other, for the real ssh and for us: both connect in the same way, or neither does.

Where only ssh can follow a configuration, our error names the directive. The server's log says who came, by which
method, and with which algorithms.
"""

from __future__ import annotations

import gzip
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from connecting import connect
from real_ssh import run_ssh
from ssh_verdicts import Lab, Seen, assert_same, permitted, seen

from jupyter_gpu_kernel.errors import GpuKernelError
from jupyter_gpu_kernel.hub.ssh.config import directives
from jupyter_gpu_kernel.hub.ssh.config.route import parse_route

pytestmark = pytest.mark.full

HARMLESS = """
  RekeyLimit default none
  AddKeysToAgent no
  CanonicalizeHostname no
  Compression yes
  ConnectionAttempts 2
  ControlMaster no
  FingerprintHash md5
  ForwardAgent yes
  HashKnownHosts yes
  HostbasedAuthentication yes
  IdentityAgent none
  LogLevel QUIET
  Protocol 2
  ProxyCommand none
  ProxyJump none
  RevokedHostKeys none
  SecurityKeyProvider internal
  SendEnv LANG
  SetEnv A=b
  ServerAliveInterval 15
  VerifyHostKeyDNS yes
"""
CONNECTS = [
    "",
    HARMLESS.strip(),
    "BatchMode yes",
    "CertificateFile {folder}/missing",
    "Ciphers +aes128-cbc",
    "Ciphers -chacha20*,*-cbc",
    "Ciphers ^aes256-ctr",
    "ConnectTimeout 1m",
    "GlobalKnownHostsFile {folder}/known\n  UserKnownHostsFile none",
    "HostKeyAlias somebody\n  UserKnownHostsFile {folder}/alias",
    "IdentitiesOnly yes",
    "IgnoreUnknown Nonsense*\n  NonsenseOption yes",
    "KexAlgorithms -sntrup*",
    "ProxyCommand none\n  ProxyJump nowhere",
    "RequiredRSASize 4096",
    "StrictHostKeyChecking accept-new",
    "StrictHostKeyChecking no",
    "StrictHostKeyChecking yes",
    "UserKnownHostsFile {folder}/empty {folder}/known",
]
REFUSES = [
    "AddressFamily inet6",
    "BindAddress 192.0.2.77",
    "Ciphers aes128-cbc",
    "HostKeyAlgorithms -ssh-ed25519*",
    "HostKeyAlgorithms ecdsa-sha2-nistp384",
    "HostKeyAlgorithms ssh-ed25519-cert-v01@openssh.com",
    "HostKeyAlias somebody",
    "Hostname 127.0.0.1\n  Port 1",
    "IdentityFile none\n  IdentitiesOnly yes",
    "Include {folder}/included",
    "KexAlgorithms diffie-hellman-group1-sha1",
    "MACs hmac-md5\n  Ciphers aes128-ctr",
    "NonsenseOption yes",
    "PreferredAuthentications keyboard-interactive,password",
    "ProxyJump none\n  ProxyCommand false",
    "PubkeyAcceptedAlgorithms -ssh-ed25519*",
    "PubkeyAcceptedAlgorithms *-cert-v01@openssh.com",
    "PubkeyAcceptedKeyTypes rsa-sha2-512",
    "PubkeyAuthentication no",
    "RevokedHostKeys {folder}/missing",
    "RevokedHostKeys {folder}/revoked",
    "User nobody-of-that-name",
    "UserKnownHostsFile {folder}/empty\n  StrictHostKeyChecking yes",
    "UserKnownHostsFile {folder}/marked",
    "UserKnownHostsFile {folder}/other",
    "UserKnownHostsFile {folder}/other\n  StrictHostKeyChecking accept-new",
    "UserKnownHostsFile none",
]
# What ssh can follow and we cannot: refused, with the directive's name in the message.
BY_NAME = [
    "AddressFamily inet",
    "BindAddress 127.0.0.1",
    "KbdInteractiveAuthentication FALSE",
    "KbdInteractiveDevices pam",
    "NumberOfPasswordPrompts 0",
    "PasswordAuthentication No",
    "PreferredAuthentications gssapi-with-mic,publickey",
    "BindInterface lo",
    "CheckHostIP yes",
    "Ciphers aes256-ctr,aes128-ctr",
    "Ciphers chacha20-poly1305@openssh.com",
    "HostKeyAlgorithms -ecdsa*",
    "HostKeyAlgorithms ssh-ed25519",
    "KexAlgorithms curve25519-sha256",
    "KexAlgorithms sntrup761x25519-sha512@openssh.com",
    "MACs umac-128-etm@openssh.com",
    "PubkeyAcceptedAlgorithms ssh-ed25519",
    "IdentityAgent {folder}/missing",
    "KnownHostsCommand /bin/cat {folder}/known",
    "PreferredAuthentications password,publickey",
    "ProxyCommand {nc} %h %p\n  ProxyJump nowhere",
    "RekeyLimit 1G 1h",
    "RevokedHostKeys {folder}/krl",
]
# Only ssh connects: an unknown host is never accepted without the user.
STRICTER = [
    "UserKnownHostsFile {folder}/empty\n  StrictHostKeyChecking no",
    "UserKnownHostsFile {folder}/empty\n  NoHostAuthenticationForLocalhost yes",
]
# Blocks with conditions.
BLOCKS = [
    ("Match host login exec true\n  PubkeyAuthentication no", False),
    ("Match host login exec false\n  PubkeyAuthentication no", True),
    ("Match host login !localuser nobody\n  PubkeyAuthentication no", False),
    ("Match originalhost login\n  PasswordAuthentication no\nMatch final\n  PubkeyAuthentication no", False),
    (
        "Host login\n  Hostname login\n  CanonicalizeHostname yes\n  CanonicalizeFallbackLocal no\n"
        "  CanonicalDomains x.invalid",
        False,
    ),
    ("Match tagged cluster\n  PubkeyAuthentication no", None),  # refused as such before OpenSSH 9.4
    ("Match nonsense\n  Port 1", False),
    ("Host *\n  Include {folder}/*cluded", False),
]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A login node that stays as it is."""
    lab = Lab(tmp_path_factory.mktemp("table"))
    lab.login.start()
    yield lab
    lab.login.stop()


def row(lab: Lab, lines: str) -> tuple[Path, Seen | None, Seen | GpuKernelError]:
    """The configuration file, and both verdicts: of ssh, and ours."""
    config = lab.config(lines)
    theirs = lab.ssh(config)
    (lab.files / "empty").write_text("")  # ssh may have added the host
    return config, theirs, lab.we(config)


@pytest.mark.parametrize("lines", CONNECTS)
def test_both_connect(lab: Lab, lines: str) -> None:
    config, theirs, ours = row(lab, lines)
    assert theirs is not None
    assert_same(config, theirs, ours)


@pytest.mark.parametrize("lines", REFUSES)
def test_neither_connects(lab: Lab, lines: str) -> None:
    _, theirs, ours = row(lab, lines)
    assert theirs is None
    assert isinstance(ours, GpuKernelError) and ours.hop == "login" and ours.remedy


@pytest.mark.parametrize("lines", BY_NAME)
def test_what_only_ssh_can_follow_is_refused_by_name(lab: Lab, lines: str) -> None:
    if "{nc}" in lines and not shutil.which("nc"):
        pytest.skip("no nc on this machine (Debian: netcat-openbsd)")
    _, theirs, ours = row(lab, lines)
    assert theirs is not None
    assert isinstance(ours, GpuKernelError) and ours.hop == "login"
    assert ours.cause.startswith(f"{lines.split()[0]} ") and "--transport ssh" in ours.remedy


@pytest.mark.parametrize("lines", STRICTER)
def test_an_unknown_host_is_never_accepted_unasked(lab: Lab, lines: str) -> None:
    _, theirs, ours = row(lab, lines)
    assert theirs is not None
    assert isinstance(ours, GpuKernelError) and "host key is not known" in ours.cause


@pytest.mark.parametrize(("lines", "connects"), BLOCKS)
def test_blocks_with_conditions(lab: Lab, lines: str, connects: bool | None) -> None:
    config = lab.config(lines, host="")
    theirs, ours = lab.ssh(config), lab.we(config)
    assert connects in (None, theirs is not None)
    if theirs is None:
        assert isinstance(ours, GpuKernelError) and ours.hop == "login" and ours.remedy
    else:
        assert_same(config, theirs, ours)


# --- each hop has its own

HOPS = [
    ("Host login\n  Ciphers -aes192-ctr\nHost work\n  Compression yes", ""),
    ("Host work\n  Ciphers aes192-ctr", "by name"),
    ("Host work\n  AddressFamily inet6", "by name"),
    ("Host login\n  BindAddress 192.0.2.77", "login"),
    ("Host work\n  PubkeyAuthentication no", "work"),
    ("Host login\n  HostKeyAlias somebody", "login"),
    ("Host work\n  UserKnownHostsFile {folder}/known", "work"),
    ("Host login\n  RekeyLimit 1G", "by name"),
    ("Host work\n  RekeyLimit 1G", "by name"),
    ("Host *\n  PubkeyAuthentication no", "login"),
]


@pytest.mark.parametrize(("lines", "refuses"), HOPS)
def test_each_hop_has_its_own_directives(hops: Lab, lines: str, refuses: str) -> None:
    """`refuses`: the hop at which both end; “by name”, if only ssh can follow it."""
    config, servers = hops.config(lines, host=""), (hops.login, hops.two.work)
    since = [len(server.log) for server in servers]
    assert run_ssh(config, "work").connected is (refuses in ("", "by name"))
    theirs = (
        [seen(server, start) for server, start in zip(servers, since, strict=True)] if not refuses else []
    )
    since = [len(server.log) for server in servers]
    try:
        route = parse_route("work", config=str(config))
        connect(route, ask=None, trust_file=hops.two.trust_file).close()
    except GpuKernelError as error:
        assert refuses in (error.hop, "by name")
        directive = lines.split()[2]
        assert refuses != "by name" or (error.cause.startswith(directive) and error.hop in lines)
    else:
        assert not refuses
        for server, start, their in zip(servers, since, theirs, strict=True):
            ours = seen(server, start)
            assert ours[:3] == their[:3] and ours.host_key == their.host_key


@pytest.fixture(scope="module")
def hops(lab: Lab) -> Iterator[Lab]:
    """The lab with its work node."""
    lab.two.work.options = {"LogLevel": "DEBUG"}
    lab.two.work.start()
    yield lab
    lab.two.work.stop()


def test_every_directive_that_this_ssh_prints_is_known(lab: Lab) -> None:
    assert [key for key in permitted(lab.config("")) if not directives.is_known(key.lower())] == []


def test_the_manual_has_no_directive_that_the_table_lacks() -> None:
    """Where the manual is installed; that of a newer ssh may have more, which are then refused by name."""
    manual = next(Path("/usr/share/man/man5").glob("ssh_config.5*"), None)
    if manual is None:
        pytest.skip("no ssh_config.5 on this machine")
    data = gzip.decompress(manual.read_bytes()) if manual.suffix == ".gz" else manual.read_bytes()
    named = re.findall(r"^\.It Cm ([A-Z]\w+)", data.decode(), re.MULTILINE)
    assert [name for name in named if not directives.is_known(name.lower())] == []


def test_a_directive_that_is_not_known_is_refused_unless_it_has_its_default() -> None:
    """As one of a newer ssh would be."""
    values = {"futuredirective": ["yes"], "otherdirective": ["5"], "compression": ["yes"]}
    assert list(directives.unsupported(values, {"otherdirective": ["5"]})) == ["futuredirective yes"]


def test_a_text_that_restricts_is_not_switched_off_and_the_usual_agent_is_no_other_one() -> None:
    values = {"refuseconnection": ["No"], "identityagent": ["SSH_AUTH_SOCK"], "bindaddress": ["none"]}
    assert list(directives.unsupported(values, {})) == ["RefuseConnection No"]


def test_what_is_switched_off_does_not_restrict_although_an_older_ssh_has_it_on() -> None:
    """Before OpenSSH 8.5 the default of CheckHostIP was yes."""
    assert list(directives.unsupported({"checkhostip": ["no"]}, {"checkhostip": ["yes"]})) == []
    assert list(directives.unsupported({"futuredirective": ["no"]}, {})) == ["futuredirective no"]
