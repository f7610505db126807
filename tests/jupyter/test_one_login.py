"""A login node that lets nobody in without asking: one sign-in for all kernels, and again after a drop."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
from cells import all_it_printed, connect, printing
from jupyter_client.manager import KernelManager
from jupyter_server.services.kernels.kernelmanager import AsyncMappingKernelManager
from launchers import launched
from locked import Owner, log_in
from remote import Remote, over_both_transports
from servers import TERMINAL
from tornado.web import HTTPError
from waiting import DEADLINE, eventually

from jupyter_gpu_kernel.client import HubClient
from jupyter_gpu_kernel.errors import GpuKernelError

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("remote")]


def stop_what_is_left(remote: Remote, spec: list[dict[str, Any]]) -> None:
    for kernel in remote.ask("ps", specs=spec):
        if "error" not in kernel:
            with contextlib.suppress(GpuKernelError):  # it has ended meanwhile
                remote.ask("stop", kernel=kernel["id"], specs=spec)


@over_both_transports
def test_three_kernels_share_one_sign_in(remote: Remote, locked: dict[str, Any]) -> None:
    remote.write("locked-argv", **locked)
    remote.write("locked", provisioner=True, **locked)
    spec = [{"name": "locked", "settings": locked}]
    owner, logins = Owner(), remote.logins()
    log_in(remote, locked, owner)
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

        log_in(remote, locked, owner)
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
    remote: Remote, locked: dict[str, Any]
) -> None:
    reported: SimpleQueue[str] = SimpleQueue()
    arguments = {
        "settings": locked,
        "name": "locked",
        "notebook": "",
        "connection": {"transport": "tcp", "ip": "127.0.0.1", "key": "k", "signature_scheme": "hmac-sha256"},
        "login_wait": DEADLINE,
    }
    with remote.in_use(), HubClient() as hub, ThreadPoolExecutor(1) as pool:
        hub.call("hang_up", timeout=DEADLINE)
        started = pool.submit(
            hub.call, "start", timeout=DEADLINE, progress=lambda one: reported.put(one["step"]), **arguments
        )
        while reported.get(timeout=DEADLINE) != "waiting for you to sign in: jupyter gpu-kernel login locked":
            assert not started.done()
        (node,) = [one for one in remote.ask("nodes") if one["problem"] is not None]
        assert node["problem"]["login"] and not node["connected"]
        log_in(remote, locked, Owner())
        kernel = started.result(DEADLINE)
        problems = [one["problem"] for one in remote.ask("nodes") if one["connected"]]
        assert problems and not any(problems)  # other tests may have left another connection
        hub.call("end", kernel=kernel["id"], why="the test is over", timeout=DEADLINE)
        hub.call("release", kernel=kernel["id"], timeout=DEADLINE)
    remote.nothing_left()


def test_a_start_just_after_a_drop_asks_its_owner(remote: Remote, locked: dict[str, Any]) -> None:
    """The hub may not have noticed the drop yet, or its link, which asks nobody, may be reconnecting."""
    connection = {"transport": "tcp", "ip": "127.0.0.1", "key": "k", "signature_scheme": "hmac-sha256"}
    start = {"settings": locked, "name": "locked", "notebook": "", "connection": connection}
    owner = Owner()
    with remote.in_use(), HubClient() as hub:
        hub.call("hang_up", timeout=DEADLINE)
        kernels = [hub.call("start", timeout=DEADLINE, ask=owner, **start)]
        remote.hops.login.drop()
        kernels.append(hub.call("start", timeout=DEADLINE, ask=owner, **start))
        assert owner.asked == 2
        for kernel in kernels:
            hub.call("end", kernel=kernel["id"], why="the test is over", timeout=DEADLINE)
    remote.nothing_left()


def test_a_restart_and_a_command_just_after_a_drop_ask_their_owner(
    remote: Remote, locked: dict[str, Any]
) -> None:
    connection = {"transport": "tcp", "ip": "127.0.0.1", "key": "k", "signature_scheme": "hmac-sha256"}
    start = {"settings": locked, "name": "locked", "notebook": "", "connection": connection}
    specs = [{"settings": locked, "name": "locked"}]
    owner = Owner()
    with remote.in_use(), HubClient() as hub:
        hub.call("hang_up", timeout=DEADLINE)
        kernel = hub.call("start", timeout=DEADLINE, ask=owner, **start)["id"]
        remote.hops.login.drop()
        assert hub.call("restart", kernel=kernel, timeout=DEADLINE, ask=owner)["link"] == "up"
        assert owner.asked == 2
        remote.hops.login.drop()
        eventually(lambda: hub.call("kernels", timeout=DEADLINE)[0]["link"] == "away", "the hub notices")
        (row,) = hub.call("ps", specs=specs, timeout=DEADLINE, ask=owner)
        assert row.get("id") == kernel, row
        assert owner.asked == 3
        hub.call("end", kernel=kernel, why="the test is over", timeout=DEADLINE)
    remote.nothing_left()


def test_a_start_whose_owner_does_not_sign_in_says_why(remote: Remote, locked: dict[str, Any]) -> None:
    remote.write("locked", provisioner=True, **locked)
    with remote.in_use(), HubClient() as hub:
        hub.call("hang_up", timeout=DEADLINE)
    manager = KernelManager(kernel_name="locked")
    manager.kernel_spec.metadata["kernel_provisioner"]["config"] = {"login_wait": 0.2}
    with pytest.raises(RuntimeError, match="needs its passphrase"):
        manager.start_kernel(env=remote.program_environment())
    assert refused_nodes(remote) == [["locked"]]
    log_in(remote, locked, Owner())
    assert refused_nodes(remote) == []


@over_both_transports
def test_ctrl_d_at_a_prompt_is_the_users_own_word(remote: Remote, locked: dict[str, Any]) -> None:
    remote.write("locked", provisioner=True, **locked)
    with remote.in_use(), HubClient() as hub:
        hub.call("hang_up", timeout=DEADLINE)
    words = [
        sys.executable,
        "-c",
        TERMINAL,
        sys.executable,
        "-m",
        "jupyter_gpu_kernel.cli",
        "login",
        "locked",
    ]
    with subprocess.Popen(
        words, env=remote.program_environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as login:
        assert login.stdin and login.stdout
        shown = b""
        while b"Passphrase of" not in shown:
            shown += (one := login.stdout.read1())
            assert one, shown
        login.stdin.write(b"\x04")
        login.stdin.flush()
        shown += login.stdout.read()
    assert b"you cancelled the sign-in" in shown and b"login locked" in shown and b"answered" not in shown


def refused_nodes(remote: Remote) -> list[list[str]]:
    """The kernelspecs' names of each node that is said to want a login."""
    return [one["names"] for one in remote.ask("nodes") if one["problem"] and one["problem"]["login"]]


async def test_a_server_says_where_to_type_what_and_what_follows(
    remote: Remote, locked: dict[str, Any]
) -> None:
    remote.write("locked", provisioner=True, **locked)
    with remote.in_use(), HubClient() as hub:
        hub.call("hang_up", timeout=DEADLINE)
    manager = AsyncMappingKernelManager()
    with pytest.raises(HTTPError) as caught:
        await manager.start_kernel(kernel_name="locked")
    assert str(caught.value) == caught.value.log_message
    assert f"{Path(sys.executable).parent}/jupyter-gpu-kernel login locked” in a terminal.\n" in str(
        caught.value
    )
    assert "File → New → Terminal" in str(caught.value) and "jupyter gpu-kernel" not in str(caught.value)
