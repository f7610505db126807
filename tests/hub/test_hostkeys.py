"""known_hosts lines and what follows from them, with keys made by ssh-keygen."""

from __future__ import annotations

import base64
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from sshd import make_key

from jupyter_gpu_kernel.errors import HostKeyError
from jupyter_gpu_kernel.hub.ssh import hostkeys
from jupyter_gpu_kernel.hub.ssh.config import algorithms
from jupyter_gpu_kernel.hub.ssh.config.route import Hop


class Key:
    """A host key: its words in a known_hosts line, and its blob."""

    def __init__(self, file: Path, kind: str = "ed25519") -> None:
        self.file = make_key(file, kind)
        self.type, self.text, *_ = Path(f"{file}.pub").read_text().split()
        self.line = f"{self.type} {self.text}"
        self.blob = base64.b64decode(self.text)


@pytest.fixture
def key(tmp_path: Path) -> Key:
    return Key(tmp_path / "key")


@pytest.fixture
def other(tmp_path: Path) -> Key:
    return Key(tmp_path / "other")


class Desk:
    """A hop, the user's known_hosts, our own file, and an owner who says `answer` and is remembered."""

    def __init__(self, folder: Path) -> None:
        self.known = folder / "known_hosts"
        self.known.write_text("")
        self.trust_file = folder / "ours" / "trusted_hosts"
        self.hop = Hop("login", "ssh", "login.example", 7092, known_hosts=(self.known,))
        self.answer: bool | None = None
        self.asked: list[tuple[str, str, str]] = []

    def judge(self, key: Key, **hop: object) -> None:
        here = Hop(**{**vars(self.hop), **hop})  # type: ignore[arg-type]
        entries = hostkeys.lookup(here, self.trust_file)
        confirm = self.confirm if self.answer is not None else None
        hostkeys.verify(here, key.type, key.blob, entries, self.trust_file, confirm)

    def confirm(self, hop: str, fingerprint: str, key_type: str) -> bool:
        self.asked.append((hop, fingerprint, key_type))
        return bool(self.answer)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


@pytest.mark.parametrize(
    "hosts",
    [
        "[login.example]:7092",
        "other,[login.example]:7092",
        "[*.example]:7092",
        "[login.example]:709?",
        "[Login.Example]:7092",
        "login.example",
    ],
)
def test_a_known_key_is_accepted(desk: Desk, key: Key, hosts: str) -> None:
    desk.known.write_text(f"# comment\n\n{hosts} {key.line} comment\n")
    desk.judge(key)


@pytest.mark.parametrize(
    "hosts",
    [
        "login",
        "[login.example]:22",
        "[other.example]:7092",
        "*,!login.example,![login.example]:7092",
        "l[o]gin.example",
    ],
)
def test_a_line_of_another_host_does_not_count(desk: Desk, key: Key, hosts: str) -> None:
    desk.known.write_text(f"{hosts} {key.line}\n")
    with pytest.raises(HostKeyError, match="not known"):
        desk.judge(key)


def test_hashed_names_are_read(desk: Desk, key: Key) -> None:
    desk.known.write_text(f"[login.example]:7092 {key.line}\n")
    subprocess.run(
        ["ssh-keygen", "-q", "-H", "-f", str(desk.known)], check=True, capture_output=True, timeout=20
    )
    assert "login" not in desk.known.read_text()
    desk.judge(key)


def test_the_alias_is_the_name_where_there_is_one(desk: Desk, key: Key) -> None:
    desk.known.write_text(f"nodes {key.line}\n")
    desk.judge(key, host_key_alias="nodes")
    with pytest.raises(HostKeyError):
        desk.judge(key)


def test_the_alias_is_the_only_name(desk: Desk, key: Key) -> None:
    desk.known.write_text(f"login.example,[login.example]:7092 {key.line}\n")
    with pytest.raises(HostKeyError, match="not known"):
        desk.judge(key, host_key_alias="nodes")
    desk.answer = True
    desk.judge(key, host_key_alias="nodes")
    assert desk.trust_file.read_text() == f"nodes {key.line}\n"


def test_bad_lines_do_not_spoil_the_file(desk: Desk, key: Key) -> None:
    desk.known.write_bytes(b"broken\n* ssh-rsa !!!\n|1|x|y ssh-rsa AAAA\n\xff\xfe a b\n@revoked\n")
    with desk.known.open("a") as file:
        file.write(f"[login.example]:7092 {key.line}\n")
    desk.judge(key)


def test_an_unknown_key_is_refused_with_its_fingerprint_and_a_remedy(desk: Desk, key: Key) -> None:
    shown = subprocess.run(
        ["ssh-keygen", "-lf", str(key.file)], capture_output=True, text=True, timeout=20
    ).stdout
    with pytest.raises(HostKeyError) as caught:
        desk.judge(key)
    assert shown.split()[1] in caught.value.cause
    assert "jupyter gpu-kernel login" in caught.value.remedy
    assert caught.value.hop == "login"


def test_a_key_the_owner_accepts_goes_to_our_file_only(desk: Desk, key: Key) -> None:
    desk.answer = True
    desk.judge(key)
    assert desk.asked == [("login", hostkeys.fingerprint(key.blob), key.type)]
    assert desk.known.read_text() == ""
    assert desk.trust_file.read_text() == f"[login.example]:7092 {key.line}\n"
    if sys.platform != "win32":
        assert stat.S_IMODE(desk.trust_file.stat().st_mode) == 0o600
    desk.judge(key)
    assert len(desk.asked) == 1


def test_a_key_the_owner_does_not_accept_is_refused(desk: Desk, key: Key) -> None:
    desk.answer = False
    with pytest.raises(HostKeyError, match="not known"):
        desk.judge(key)
    assert not desk.trust_file.exists()


@pytest.mark.parametrize("answer", [None, True])
def test_a_changed_key_is_an_error_whatever_anybody_says(
    desk: Desk, key: Key, other: Key, answer: bool | None
) -> None:
    desk.known.write_text(f"[login.example]:7092 {other.line}\n")
    desk.answer = answer
    with pytest.raises(HostKeyError, match="has changed") as caught:
        desk.judge(key)
    assert f"{desk.known} line 1" in caught.value.cause
    assert f"ssh-keygen -R '[login.example]:7092' -f {desk.known}" in caught.value.remedy
    assert desk.asked == []


def test_another_type_where_one_is_known_is_a_change(desk: Desk, key: Key, tmp_path: Path) -> None:
    desk.known.write_text(f"[login.example]:7092 {key.line}\n")
    with pytest.raises(HostKeyError, match="has changed"):
        desk.judge(Key(tmp_path / "ecdsa", "ecdsa"))


def test_known_types_are_offered_first(desk: Desk, key: Key) -> None:
    desk.known.write_text(f"login.example ssh-rsa {key.text}\n")
    offered = hostkeys.offer(hostkeys.lookup(desk.hop, desk.trust_file))
    assert offered[:2] == ["rsa-sha2-512", "rsa-sha2-256"]
    assert set(offered) == {name for names in algorithms.HOST_KEYS.values() for name in names}


def test_a_revoked_key_is_refused_even_if_known(desk: Desk, key: Key, other: Key) -> None:
    desk.known.write_text(
        f"[login.example]:7092 {key.line}\n@revoked * {key.line}\n@revoked * {other.line}\n"
    )
    desk.answer = True
    with pytest.raises(HostKeyError, match="revoked"):
        desk.judge(key)
    desk.known.write_text(f"[login.example]:7092 {key.line}\n@revoked * {other.line}\n")
    desk.judge(key)


def test_an_authority_is_named_not_followed(desk: Desk, key: Key, other: Key) -> None:
    desk.known.write_text(f"@cert-authority *.example {other.line}\n")
    for shown in (key, other):  # also where a machine shows the authority's own key
        with pytest.raises(HostKeyError, match=r"not known.* trusts a certificate authority"):
            desk.judge(shown)
    desk.known.write_text(f"@cert-authority *.example {other.line}\n[login.example]:7092 {key.line}\n")
    desk.judge(key)


def test_a_revoked_key_is_refused_under_each_name(desk: Desk, key: Key) -> None:
    desk.known.write_text(f"[login.example]:7092 {key.line}\n@revoked login.example {key.line}\n")
    with pytest.raises(HostKeyError, match="revoked"):
        desk.judge(key)


def test_a_key_that_was_accepted_for_one_port_does_not_count_for_another(desk: Desk, key: Key) -> None:
    desk.answer = True
    desk.judge(key)
    desk.answer = None
    for port in (22, 7093):
        with pytest.raises(HostKeyError, match="not known"):
            desk.judge(key, port=port)
