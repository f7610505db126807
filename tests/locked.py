"""A login node that lets nobody in before its owner has typed the passphrase of a key, and that owner."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from remote import Remote
from sshd import make_key
from waiting import DEADLINE

from jupyter_gpu_kernel.client import HubClient


class Owner:
    """Types the passphrase, and counts how often."""

    def __init__(self) -> None:
        self.asked = 0

    def secret(self, hop: str, prompt: str, secret: object) -> str:
        self.asked += 1
        return "sesame"

    def confirm_host(self, hop: str, fingerprint: str, key_type: str) -> bool:
        raise AssertionError("the host is known")


@pytest.fixture
def locked(remote: Remote, tmp_path: Path) -> Iterator[dict[str, Any]]:
    with locked_way(remote, tmp_path) as way:
        yield way


@contextlib.contextmanager
def locked_way(remote: Remote, folder: Path) -> Iterator[dict[str, Any]]:
    """The way to the work node with a key for the login node that its owner must open."""
    hops = remote.hops
    key = make_key(folder / "locked", passphrase="sesame")
    before = hops.login.authorized.read_text()
    hops.login.authorized.write_text(before + key.with_suffix(".pub").read_text())
    config = folder / "locked_config"
    opened = hops.ssh_config.read_text()
    config.write_text(
        opened.replace("Host login\n", f"Host login\n  IdentitiesOnly yes\n  IdentityFile {key}\n")
    )
    hops.login.authorized.write_text(key.with_suffix(".pub").read_text())
    way = {"route": list(hops.route), "config": str(config), "transport": remote.transport}
    yield {**way, "python": sys.executable}
    hops.login.authorized.write_text(before)


def log_in(remote: Remote, settings: dict[str, Any], owner: Owner) -> None:
    with remote.in_use(), HubClient() as hub:
        hub.call("login", timeout=DEADLINE, ask=owner, settings=settings)
