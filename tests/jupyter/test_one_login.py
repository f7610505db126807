"""A login node that lets nobody in without asking: one sign-in for all kernels, and again after a drop."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
from cells import all_it_printed, connect, printing
from jupyter_client.manager import KernelManager
from launchers import launched
from remote import DEADLINE, Remote, eventually
from sshd import make_key

from jupyter_gpu_kernel.client import HubClient

pytestmark = pytest.mark.usefixtures("remote")


class Owner:
    """Types the passphrase, and counts how often."""

    def __init__(self) -> None:
        self.asked = 0

    def secret(self, hop: str, prompt: str) -> str:
        self.asked += 1
        return "sesame"

    def confirm_host(self, hop: str, fingerprint: str, key_type: str) -> bool:
        raise AssertionError("the host is known")


@pytest.fixture
def settings(remote: Remote, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """The way to the work node with a key for the login node that its owner must open."""
    hops = remote.hops
    key = make_key(tmp_path / "locked", passphrase="sesame")
    before = hops.login.authorized.read_text()
    hops.login.authorized.write_text(before + key.with_suffix(".pub").read_text())
    config = tmp_path / "locked_config"
    opened = hops.ssh_config.read_text()
    config.write_text(
        opened.replace("Host login\n", f"Host login\n  IdentitiesOnly yes\n  IdentityFile {key}\n")
    )
    hops.login.authorized.write_text(key.with_suffix(".pub").read_text())
    yield {"route": list(hops.route), "config": str(config), "python": sys.executable}
    hops.login.authorized.write_text(before)


def log_in(remote: Remote, settings: dict[str, Any], owner: Owner) -> None:
    with remote.in_use(), HubClient() as hub:
        hub.call("login", timeout=DEADLINE, ask=owner, settings=settings)


def stop_what_is_left(remote: Remote, spec: list[dict[str, Any]]) -> None:
    for kernel in remote.ask("ps", specs=spec):
        if "error" not in kernel:
            remote.ask("stop", kernel=kernel["id"], specs=spec)


def test_three_kernels_share_one_sign_in(remote: Remote, settings: dict[str, Any]) -> None:
    remote.write("locked-argv", **settings)
    remote.write("locked", provisioner=True, **settings)
    spec = [{"name": "locked", "settings": settings}]
    owner, logins = Owner(), remote.logins()
    log_in(remote, settings, owner)
    manager = KernelManager(kernel_name="locked")
    with contextlib.ExitStack() as stack:
        stack.callback(stop_what_is_left, remote, spec)
        windows = [stack.enter_context(launched(remote, "locked-argv")) for _ in range(2)]
        manager.start_kernel(env=remote.program_environment())
        stack.callback(manager.shutdown_kernel)
        clients = [*(window.client() for window in windows), connect(manager)]
        stack.callback(clients[-1].stop_channels)
        asked = [printing(client, remote) for client in clients]
        assert (owner.asked, remote.logins()) == (1, logins + 1)

        remote.hops.login.drop()
        eventually(lambda: {row["link"] for row in remote.ask("kernels")} == {"away"}, "the hub notices")
        *away, node = remote.ask("ps", specs=spec)
        assert [(row["state"], row["attached"]) for row in away] == [("away", True)] * 3
        assert "needs its passphrase" in node["error"]["cause"]
        assert "jupyter gpu-kernel login locked" in node["error"]["remedy"]
        assert manager.is_alive() and not any(window.ended() for window in windows)

        log_in(remote, settings, owner)
        eventually(lambda: {row["link"] for row in remote.ask("kernels")} == {"up"}, "all are back")
        (remote.folder / "stop").touch()
        for client, cell in zip(clients, asked, strict=True):
            *numbers, last = all_it_printed(client, cell).split("end")
            assert "".join(numbers).split() == [str(number) for number in range(1, int(last))]
        assert (owner.asked, remote.logins()) == (2, logins + 2)
        for client in clients[:2]:
            client.shutdown()
        assert [window.end()[0] for window in windows] == [0, 0]
    remote.nothing_left()


def test_a_start_that_waits_goes_on_when_its_owner_has_signed_in(
    remote: Remote, settings: dict[str, Any]
) -> None:
    told: SimpleQueue[str] = SimpleQueue()
    arguments = {
        "settings": settings,
        "name": "locked",
        "notebook": "",
        "connection": {"transport": "tcp", "ip": "127.0.0.1", "key": "k", "signature_scheme": "hmac-sha256"},
        "login_wait": DEADLINE,
    }
    with remote.in_use(), HubClient() as hub, ThreadPoolExecutor(1) as pool:
        hub.call("hang_up", timeout=DEADLINE)
        started = pool.submit(
            hub.call, "start", timeout=DEADLINE, progress=lambda one: told.put(one["step"]), **arguments
        )
        while told.get(timeout=DEADLINE) != "waiting for you to sign in: jupyter gpu-kernel login locked":
            assert not started.done()
        (node,) = [one for one in remote.ask("nodes") if one["problem"] is not None]
        assert node["problem"]["login"] and not node["connected"]
        log_in(remote, settings, Owner())
        kernel = started.result(DEADLINE)
        assert [one["problem"] for one in remote.ask("nodes") if one["connected"]] == [None]
        hub.call("end", kernel=kernel["id"], why="the test is over", timeout=DEADLINE)
        hub.call("release", kernel=kernel["id"], timeout=DEADLINE)
    remote.nothing_left()


def test_a_start_whose_owner_does_not_sign_in_says_why(remote: Remote, settings: dict[str, Any]) -> None:
    remote.write("locked", provisioner=True, **settings)
    with remote.in_use(), HubClient() as hub:
        hub.call("hang_up", timeout=DEADLINE)
    manager = KernelManager(kernel_name="locked")
    manager.kernel_spec.metadata["kernel_provisioner"]["config"] = {"login_wait": 0.2}
    with pytest.raises(RuntimeError, match="needs its passphrase"):
        manager.start_kernel(env=remote.program_environment())
