"""Two hops of real OpenSSH: which hosts and keys are taken, and what is said of others."""

from __future__ import annotations

import stat
import sys
import threading
from pathlib import Path

import pytest
from dialling import Dial, Owner, behind
from sshd import TwoHops, make_key

from jupyter_gpu_kernel.errors import AuthError, HostKeyError

pytestmark = pytest.mark.full


def test_an_unknown_host_is_refused_before_any_credential(dial: Dial, two_hops: TwoHops) -> None:
    two_hops.known_hosts.write_text(two_hops.login.known_hosts_line())
    with pytest.raises(HostKeyError, match="SHA256:") as caught:
        dial()
    assert caught.value.hop == "work"
    assert "login NAME" in caught.value.remedy
    two_hops.work.wait_for_log("Connection closed by")
    assert not any("publickey" in line for line in two_hops.work.log)


def test_a_host_the_owner_knows_is_remembered_in_our_own_file(dial: Dial, two_hops: TwoHops) -> None:
    two_hops.known_hosts.write_text("")
    owner = Owner()
    dial(ask=owner)
    assert [question.split()[0] for question in owner.questions] == ["login", "work"]
    assert two_hops.known_hosts.read_text() == ""
    assert two_hops.trust_file.read_text() == (
        two_hops.login.known_hosts_line() + two_hops.work.known_hosts_line()
    )
    if sys.platform != "win32":
        assert stat.S_IMODE(two_hops.trust_file.stat().st_mode) == 0o600
    assert dial().alive()


def test_the_time_the_owner_takes_is_not_counted(dial: Dial, two_hops: TwoHops) -> None:
    class Slow(Owner):
        def confirm_host(self, hop: str, fingerprint: str, key_type: str) -> bool:
            threading.Event().wait(6.5)  # longer than the whole time of `connect`
            return True

    two_hops.known_hosts.write_text(two_hops.login.known_hosts_line())
    assert dial(ask=Slow(), timeout=6).run("echo on").stdout == b"on\n"


def test_a_host_the_owner_does_not_know_is_refused(dial: Dial, two_hops: TwoHops) -> None:
    two_hops.known_hosts.write_text("")
    with pytest.raises(HostKeyError, match="not known"):
        dial(ask=Owner(knows=False))
    assert not two_hops.trust_file.exists()


def test_an_owner_who_gives_up_at_a_host_key_ends_it(dial: Dial, two_hops: TwoHops) -> None:
    class GaveUpError(Exception):
        pass

    class Leaving(Owner):
        def confirm_host(self, hop: str, fingerprint: str, key_type: str) -> bool:
            raise GaveUpError

    two_hops.known_hosts.write_text("")
    with pytest.raises(GaveUpError):
        dial(ask=Leaving())
    assert not two_hops.trust_file.exists()


def test_a_changed_host_is_refused_even_if_the_owner_would_agree(
    dial: Dial, two_hops: TwoHops, tmp_path: Path
) -> None:
    two_hops.work.host_key = make_key(tmp_path / "new_host_key")
    two_hops.work.restart()
    owner = Owner()
    with pytest.raises(HostKeyError, match="changed") as caught:
        dial(ask=owner)
    assert caught.value.hop == "work"
    assert owner.questions == []


def test_the_known_key_type_is_asked_for_where_a_host_has_several(
    dial: Dial, two_hops: TwoHops, tmp_path: Path
) -> None:
    first, two_hops.work.host_key = two_hops.work.host_key, make_key(tmp_path / "ecdsa_host_key", "ecdsa")
    two_hops.known_hosts.write_text(two_hops.login.known_hosts_line() + two_hops.work.known_hosts_line())
    two_hops.work.restart(HostKey=f"{two_hops.work.host_key}\nHostKey {first}")
    assert dial().alive()


def test_a_refused_key_is_named(dial: Dial, two_hops: TwoHops, tmp_path: Path) -> None:
    other = make_key(tmp_path / "other_key")
    with pytest.raises(AuthError, match="permission denied") as caught:
        dial(behind(two_hops, identity_files=(other,)))
    assert str(other) in caught.value.cause
    assert "authorized_keys" in caught.value.remedy
    assert caught.value.hop == "work"


def test_an_unknown_user_is_refused_by_name(dial: Dial, two_hops: TwoHops) -> None:
    with pytest.raises(AuthError, match="nobody-of-that-name") as caught:
        dial(behind(two_hops, user="nobody-of-that-name"))
    assert "user name" in caught.value.remedy


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX file modes")
@pytest.mark.parametrize("mode", [0o644, 0o640, 0o601])
def test_a_key_others_can_read_is_not_used(dial: Dial, two_hops: TwoHops, mode: int) -> None:
    two_hops.key.chmod(mode)
    with pytest.raises(AuthError, match=f"{mode:04o}") as caught:
        dial()
    assert f"chmod 600 {two_hops.key}" in caught.value.remedy
    assert caught.value.hop == "login"
    assert not any("Accepted publickey" in line for line in two_hops.login.log)


def locked_key(two_hops: TwoHops, tmp_path: Path) -> Path:
    key = make_key(tmp_path / "locked key", passphrase="open sesame")
    with two_hops.work.authorized.open("a") as file:
        file.write(Path(f"{key}.pub").read_text())
    return key


def test_a_locked_key_opens_with_its_passphrase(dial: Dial, two_hops: TwoHops, tmp_path: Path) -> None:
    key = locked_key(two_hops, tmp_path)
    owner = Owner("wrong", "open sesame")
    assert dial(behind(two_hops, identity_files=(key,)), ask=owner).alive()
    assert owner.questions == [f"Passphrase of {key}: ", f"Wrong passphrase. Passphrase of {key}: "]


def test_a_locked_key_without_anybody_to_ask_names_the_remedies(
    dial: Dial, two_hops: TwoHops, tmp_path: Path
) -> None:
    key = locked_key(two_hops, tmp_path)
    with pytest.raises(AuthError, match="needs its passphrase") as caught:
        dial(behind(two_hops, identity_files=(key,)))
    assert f"ssh-add '{key}'" in caught.value.remedy
    assert "jupyter gpu-kernel login" in caught.value.remedy


def test_a_key_that_is_none_is_named(dial: Dial, two_hops: TwoHops, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_text("no key")
    broken.chmod(0o600)
    with pytest.raises(AuthError, match=f"{broken}: cannot be used"):
        dial(behind(two_hops, identity_files=(broken,)))
