"""The `check` verb looks at the way as it is now, whatever connection is open from before."""

from __future__ import annotations

import sys
import sysconfig
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.manager import start_new_kernel
from remote import Remote
from sshd import make_key
from waiting import DEADLINE, eventually

from jupyter_gpu_kernel.client import HubClient

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("remote")]
STEPS = [(hop, step) for hop in ("login", "work") for step in ("reach", "host key", "sign in")]
LOOKS = ["python", "agent", "gpus"]


@pytest.fixture
def settings(remote: Remote, tmp_path: Path) -> dict[str, Any]:
    """The way to the work node, with files that a test may change."""
    known, config = tmp_path / "known_hosts", tmp_path / "config"
    known.write_text(remote.hops.known_hosts.read_text())
    key = tmp_path / "id_ed25519"
    key.write_bytes(remote.hops.key.read_bytes())
    key.chmod(0o600)
    text = remote.hops.ssh_config.read_text()
    text = text.replace(str(remote.hops.known_hosts), str(known)).replace(str(remote.hops.key), str(key))
    config.write_text(text)
    return {"route": list(remote.hops.route), "config": str(config), "python": sys.executable, "gpus": 1}


@pytest.fixture
def opened(settings: dict[str, Any]) -> Iterator[HubClient]:
    """There is an open connection."""
    with HubClient() as hub:
        hub.call("login", timeout=DEADLINE, settings=settings)
        yield hub
        hub.call("hang_up", timeout=DEADLINE)


def check(hub: HubClient, settings: dict[str, Any], ask: Any = None) -> list[dict[str, Any]]:
    return list(hub.call("check", timeout=DEADLINE, ask=ask, settings=settings, name="gpu2"))


def test_a_report_has_the_steps_and_the_newest_kernel(remote: Remote) -> None:
    manager, client = start_new_kernel(kernel_name="cpu")
    try:
        done = remote.program("check", "cpu", "--report")
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    assert done.returncode == 0, done.stderr
    assert "kernel process" in done.stdout and "sign in" in done.stdout
    assert "login" not in done.stdout.partition("### Steps")[2]


def test_the_whole_way_is_walked_and_nothing_stays(
    remote: Remote, settings: dict[str, Any], opened: HubClient
) -> None:
    before, sessions = remote.logins(), remote.hops.work.sessions()
    rows = check(opened, settings)
    assert all(row["ok"] and row["checked"] for row in rows)
    looks = [("work", step) for step in ("connect", *LOOKS)]
    assert [(row["hop"], row["step"]) for row in rows] == STEPS + looks
    assert remote.logins() == before + 1
    eventually(lambda: remote.hops.work.sessions() == sessions, "the connection is closed")


def test_a_host_key_that_has_changed_meanwhile(
    remote: Remote, settings: dict[str, Any], opened: HubClient, tmp_path: Path
) -> None:
    kind, blob, *_ = Path(f"{make_key(tmp_path / 'other')}.pub").read_text().split()
    (tmp_path / "known_hosts").write_text(
        f"{remote.hops.login.known_hosts_line()}[127.0.0.1]:{remote.hops.work.port} {kind} {blob}\n"
    )
    *_, last = check(opened, settings)
    assert (last["hop"], last["step"], last["ok"]) == ("work", "host key", False)
    assert "has changed" in last["message"] and "ssh-keygen -R" in last["remedy"]


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX file modes")
def test_a_key_file_that_others_can_read_meanwhile(
    settings: dict[str, Any], opened: HubClient, tmp_path: Path
) -> None:
    (tmp_path / "id_ed25519").chmod(0o644)
    *_, last = check(opened, settings)
    assert (last["hop"], last["step"], last["ok"]) == ("login", "sign in", False)
    assert "0644" in last["message"] and "chmod 600" in last["remedy"]


def test_a_jump_host_that_does_not_connect_on(
    remote: Remote, settings: dict[str, Any], opened: HubClient
) -> None:
    remote.hops.login.restart(AllowTcpForwarding="no")
    try:
        *_, last = check(opened, settings)
    finally:
        remote.hops.login.restart()
    assert (last["hop"], last["step"], last["ok"]) == ("work", "reach", False)
    assert last["message"].startswith("login: does not permit TCP forwarding")


class Owner:
    """Types the passphrase."""

    def __init__(self) -> None:
        self.asked = 0

    def secret(self, hop: str, prompt: str, secret: object) -> str:
        self.asked += 1
        return "sesame"

    def confirm_host(self, hop: str, fingerprint: str, key_type: str) -> bool:
        raise AssertionError("the host is known")


@pytest.fixture
def locked(remote: Remote, settings: dict[str, Any], tmp_path: Path) -> Iterator[dict[str, Any]]:
    """The work node asks for a key that its owner must open."""
    before = remote.hops.work.authorized.read_text()
    key = make_key(tmp_path / "locked", passphrase="sesame")
    remote.hops.work.authorized.write_text(key.with_suffix(".pub").read_text())
    config = Path(settings["config"])
    config.write_text(f"Host work\n  IdentityFile {key}\n  IdentitiesOnly yes\n{config.read_text()}")
    yield settings
    remote.hops.work.authorized.write_text(before)


def test_what_only_its_owner_could_do_is_not_asked_twice(locked: dict[str, Any]) -> None:
    owner = Owner()
    with HubClient() as hub:
        hub.call("login", timeout=DEADLINE, ask=owner, settings=locked)
        rows = check(hub, locked, owner)
        hub.call("hang_up", timeout=DEADLINE)
    assert owner.asked == 1
    assert all(row["ok"] for row in rows)
    (unchecked,) = [row for row in rows if not row["checked"]]
    assert (unchecked["hop"], unchecked["step"]) == ("work", "sign in")
    assert "not checked" in unchecked["message"] and "passphrase" in unchecked["message"]
    assert [row["step"] for row in rows][-4:] == ["connect", *LOOKS]
    assert "open connection" in rows[-4]["message"]


def test_the_python_is_looked_at_although_there_is_a_link_with_another_one(
    locked: dict[str, Any], tmp_path: Path
) -> None:
    """The other Python cannot run the agent."""
    venv.create(tmp_path / "env", symlinks=True)
    packages = next((tmp_path / "env" / "lib").glob("*/site-packages"))
    refuses = "import os, sys; 'attach' in sys.orig_argv and os._exit(3)"
    (packages / "all.pth").write_text(f"{sysconfig.get_path('purelib')}\n{refuses}\n")
    other = {**locked, "python": str(tmp_path / "env" / "bin" / "python")}
    owner = Owner()
    with HubClient() as hub:
        hub.call("ps", timeout=DEADLINE, ask=owner, specs=[{"settings": locked, "name": "gpu2"}])
        *_, last = check(hub, other, owner)
        hub.call("hang_up", timeout=DEADLINE)
    assert (last["step"], last["ok"]) == ("agent", False) and owner.asked == 1


def test_its_owner_is_asked_where_no_connection_is_open(remote: Remote, locked: dict[str, Any]) -> None:
    owner = Owner()
    with HubClient() as hub:
        *_, last = check(hub, locked)
        assert not last["ok"] and "login gpu2" in last["remedy"]
        assert all(row["ok"] and row["checked"] for row in check(hub, locked, owner))
        assert owner.asked == 1
        *_, last = check(hub, locked)  # nothing stayed
        assert not last["ok"]


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
@pytest.mark.usefixtures("opened")
def test_the_hub_leaves_no_core_file(remote: Remote) -> None:
    limits = Path(f"/proc/{remote.hub_pid()}/limits").read_text()
    (line,) = [line for line in limits.splitlines() if line.startswith("Max core file size")]
    assert line.split()[4:6] == ["0", "0"]
