"""A connection that died unnoticed, as by a reboot: whatever is asked next is answered, and nobody sees an error."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from launchers import launched
from remote import Remote, over_both_transports
from sshd import make_key
from waiting import DEADLINE, eventually

from jupyter_gpu_kernel.client import HubClient
from jupyter_gpu_kernel.errors import GpuKernelError

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("remote"), over_both_transports]


@pytest.fixture
def settings(remote: Remote) -> Iterator[dict[str, Any]]:
    """The way to the work node, with a connection that is open and that nothing uses."""
    way = {"route": list(remote.hops.route), "config": str(remote.hops.ssh_config)}
    settings = {**way, "transport": remote.transport, "python": sys.executable, "gpus": 0}
    with HubClient() as hub:
        hub.call("login", timeout=DEADLINE, settings=settings)
        yield settings
        hub.call("hang_up", timeout=DEADLINE)


def questions(settings: dict[str, Any]) -> dict[str, dict[str, Any]]:
    spec = {"settings": settings, "name": "cpu"}
    return {
        "ps": {"specs": [spec]},
        "gpus": {"specs": [spec]},
        "probe": {"settings": settings},
        "login": {"settings": settings},
        "check": {"settings": settings, "name": "cpu"},
        "leftovers": {"specs": [spec]},
    }


def problems(answer: Any) -> list[Any]:
    rows = answer if isinstance(answer, list) else [answer]
    return [row for row in rows if "error" in row or row.get("ok") is False]


@pytest.mark.parametrize(
    ("hop", "op"),
    [*(("login", op) for op in ("ps", "gpus", "probe", "login")), ("work", "probe"), ("work", "leftovers")],
)
def test_after_a_reset_the_first_question_is_answered(
    remote: Remote, settings: dict[str, Any], hop: str, op: str
) -> None:
    getattr(remote.hops, hop).drop()
    assert problems(remote.ask(op, **questions(settings)[op])) == []


@pytest.mark.parametrize("op", ["probe", "login"])
def test_a_silent_connection_is_replaced(remote: Remote, settings: dict[str, Any], op: str) -> None:
    before = remote.logins()
    with remote.hops.login.stalled():
        assert problems(remote.ask(op, **questions(settings)[op])) == []
        eventually(lambda: remote.logins() == before + 1, "a new connection")


def test_a_link_that_died_unnoticed_is_dialled_again(remote: Remote, settings: dict[str, Any]) -> None:
    asked = questions(settings)["ps"]
    assert remote.ask("ps", **asked) == []  # now there is a link, and no kernel on it
    with remote.hops.work.stalled():
        assert remote.ask("ps", **asked) == []


def test_a_kernel_starts_and_stops_over_a_connection_that_was_reset(
    remote: Remote, settings: dict[str, Any]
) -> None:
    remote.write("reset-argv", **settings)
    remote.hops.login.drop()
    with launched(remote, "reset-argv") as window:
        window.client()
        specs = questions(settings)["ps"]["specs"]
        (kernel,) = [row for row in remote.ask("ps", specs=specs) if "error" not in row]

        def connections() -> list[str]:
            rows = remote.ask("logs", kernel=kernel["id"], specs=specs)
            return [row["text"] for row in rows if row.get("event") == "connection"]

        eventually(lambda: len(connections()) == 1, "the first connection in the log")
        remote.hops.work.drop()
        eventually(lambda: len(connections()) == 2, "the one after the drop")
        first, second = connections()
        assert first == second and re.fullmatch(
            r"by .+; host key of \S+: SHA256:\S+, of \S+: SHA256:\S+", first
        )
        remote.hops.work.drop()
        assert remote.ask("stop", kernel=kernel["id"], specs=specs) == {"ok": True}
        eventually(lambda: window.ended(), "the launcher ends with its kernel")
        window.end()


def test_where_signing_in_needs_the_owner_the_question_says_so(
    remote: Remote, settings: dict[str, Any], tmp_path: Path
) -> None:
    key = make_key(tmp_path / "locked", passphrase="sesame")
    before = remote.hops.login.authorized.read_text()
    remote.hops.login.authorized.write_text(key.with_suffix(".pub").read_text())
    config = tmp_path / "config"
    config.write_text(
        f"Host login\n  IdentitiesOnly yes\n  IdentityFile {key}\n{remote.hops.ssh_config.read_text()}"
    )
    settings = {**settings, "config": str(config)}
    try:
        with HubClient() as hub:
            hub.call("login", timeout=DEADLINE, settings=settings, ask=Owner())
        remote.hops.login.drop()
        with pytest.raises(GpuKernelError, match="needs its passphrase") as caught:
            remote.ask("probe", settings=settings, name="locked")
        assert "login locked" in caught.value.remedy and caught.value.login
    finally:
        remote.hops.login.authorized.write_text(before)


class Owner:
    """Types the passphrase."""

    def __init__(self) -> None:
        self.asked = 0

    def secret(self, hop: str, prompt: str, secret: object) -> str:
        self.asked += 1
        return "sesame"

    def confirm_host(self, hop: str, fingerprint: str, key_type: str) -> bool:
        raise AssertionError("the host is known")
