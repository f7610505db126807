"""The hub is killed while a front end uses a kernel: another one is started and goes on where it stopped."""

from __future__ import annotations

import socket
import time
from typing import Any

import psutil
import pytest
from cells import all_it_printed, run, started, wait_for
from remote import Remote
from waiting import DEADLINE, eventually

from jupyter_gpu_kernel.agent.keeper.client import ask_keeper
from jupyter_gpu_kernel.errors import HubError

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("remote")]
GPU = "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])"


@pytest.mark.parametrize("spec", ["gpu", "gpu-argv"])
def test_a_killed_hub_is_followed_by_another(remote: Remote, spec: str) -> None:
    """Ports, key, variables and the running cell stay; nothing that is printed meanwhile is lost."""
    with started(remote, spec) as (manager, client):
        gpu = run(client, GPU).text
        hub = remote.hub_pid()
        asked = client.execute(
            "import time\nfor i in range(300):\n    print(i, flush=True)\n    time.sleep(0.01)"
        )
        wait_for(client, "stream", text="0\n")
        psutil.Process(hub).kill()
        assert manager.is_alive()
        assert all_it_printed(client, asked, repeated=1).split() == [str(i) for i in range(1, 300)]
        assert client.get_shell_msg(timeout=DEADLINE)["content"]["status"] == "ok"
        assert manager.is_alive() and remote.hub_pid() != hub
        manager.restart_kernel()
        client.wait_for_ready(timeout=DEADLINE)
        assert run(client, GPU).text == gpu
    remote.nothing_left()


@pytest.mark.parametrize("spec", ["cpu", "cpu-argv"])
def test_cells_that_wait_for_the_link_run_after_the_hub_was_killed(remote: Remote, spec: str) -> None:
    """Once and in order: the first one was sent before the outage, the others never."""
    with started(remote, spec) as (_, client):
        cells = [client.execute(f"import os, time\n{wait_until(remote, 'go')}\nprint('first')")]
        wait_for(client, "execute_input")
        remote.hops.login.stop()
        eventually(lambda: link_of(remote) == "away", "the hub notices the outage")
        cells += [client.execute(f"print({text!r})") for text in ("second", "third")]
        eventually(lambda: kept(remote).count(b"execute_request") == 3, "the hub has got the cells")
        psutil.Process(remote.hub_pid()).kill()
        eventually(lambda: there_is_a_hub(remote), "another hub")
        cells.append(client.execute("print('fourth')"))
        eventually(lambda: kept(remote).count(b"execute_request") == 4, "the other hub has got the last cell")
        remote.hops.login.start()
        (remote.folder / "go").touch()
        assert [all_it_printed(client, cell).strip() for cell in cells] == [
            "first",
            "second",
            "third",
            "fourth",
        ]
        replies = [client.get_shell_msg(timeout=DEADLINE)["content"] for _ in cells]
        assert [reply["execution_count"] for reply in replies] == [1, 2, 3, 4]
        assert run(client, "print('fifth')").text == "fifth\n"
        eventually(lambda: not kept(remote), "nothing is kept")


def test_cells_that_wait_for_the_link_can_be_interrupted_after_the_hub_was_killed(remote: Remote) -> None:
    """At once, though neither the keeper nor the hub that was killed has sent them to the kernel."""
    with started(remote, "cpu-argv") as (_, client):
        cells = [client.execute(f"import os, time\n{wait_until(remote, 'go')}")]
        wait_for(client, "execute_input")
        remote.hops.login.stop()
        eventually(lambda: link_of(remote) == "away", "the hub notices the outage")
        cells += [client.execute("ran = True") for _ in range(2)]
        eventually(lambda: kept(remote).count(b"execute_request") == 3, "the hub has got the cells")
        psutil.Process(remote.hub_pid()).kill()
        eventually(lambda: there_is_a_hub(remote), "another hub")
        request = client.session.msg("interrupt_request", {})
        client.control_channel.send(request)
        while (reply := client.get_control_msg(timeout=DEADLINE))["msg_type"] != "interrupt_reply":
            pass
        assert reply["parent_header"]["msg_id"] == request["header"]["msg_id"]
        remote.hops.login.start()
        replies: list[dict[str, Any]] = []
        while len(replies) < len(cells):  # a kernel_info_reply may come before
            reply = client.get_shell_msg(timeout=DEADLINE)
            replies += [reply] if reply["msg_type"] == "execute_reply" else []
        assert sorted(one["parent_header"]["msg_id"] for one in replies) == sorted(cells)
        assert "ok" not in [one["content"]["status"] for one in replies]
        assert run(client, "print('ran' in globals())").text == "False\n"


def test_a_reply_that_a_killed_keeper_had_reaches_the_front_end_though_the_hub_is_killed_too(
    remote: Remote,
) -> None:
    with started(remote, "cpu") as (_, client):
        asked = client.execute(f"import os, time\n{wait_until(remote, 'go')}\ntreasure = 42")
        wait_for(client, "execute_input")
        (keeper,) = {one["keeper"] for one in remote.story(remote.ask("kernels")[0]["id"]) if "keeper" in one}
        remote.hops.login.stop()
        eventually(lambda: link_of(remote) == "away", "the hub notices the outage")
        (remote.folder / "go").touch()
        (socket_path,) = remote.base.glob("jupyter-gpu-kernel-*/k/*/keeper")
        status = {"do": "status"}
        eventually(
            lambda: (ask_keeper(str(socket_path), status) or {}).get("cells") == 0, "the keeper has the reply"
        )
        for pid in (keeper, remote.hub_pid()):
            psutil.Process(pid).kill()
        eventually(lambda: there_is_a_hub(remote), "another hub")
        remote.hops.login.start()
        reply = client.get_shell_msg(timeout=DEADLINE)
        assert reply["parent_header"]["msg_id"] == asked
        assert reply["content"]["status"] == "ok"
        assert run(client, "print(treasure)").text == "42\n"


def test_ports_that_are_not_free_at_once_are_asked_for_again(remote: Remote) -> None:
    """Somebody else has one of them for a moment; the kernel is not given up for that."""
    with started(remote, "cpu-argv") as (manager, client):
        run(client, "treasure = 42")
        hub = remote.hub_pid()
        psutil.Process(hub).kill()
        with socket.socket() as squatter:
            squatter.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            eventually(lambda: bound(squatter, client.shell_port), "the killed hub's port is free")
            squatter.listen()
            eventually(lambda: there_is_a_hub(remote), "another hub")
            time.sleep(1)  # while it is asked to adopt the kernel, and cannot
        assert all_it_printed(client, client.execute("print(treasure)")) == "42\n"
        assert manager.is_alive()


def wait_until(remote: Remote, name: str) -> str:
    """Code that waits until this file is there."""
    path = remote.folder / name
    path.unlink(missing_ok=True)
    return f"while not os.path.exists({str(path)!r}):\n    time.sleep(0.01)"


def link_of(remote: Remote) -> str:
    return str(remote.ask("kernels")[0]["link"])


def kept(remote: Remote) -> bytes:
    """What the hub keeps of cells without a reply."""
    return b"".join(path.read_bytes() for path in remote.folder.rglob("*.requests"))


def bound(sock: socket.socket, port: int) -> bool:
    try:
        sock.bind(("127.0.0.1", port))
    except OSError:
        return False
    return True


def there_is_a_hub(remote: Remote) -> bool:
    try:
        return remote.hub_pid() > 0
    except HubError:
        return False
