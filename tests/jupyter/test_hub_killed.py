"""The hub is killed while a front end uses a kernel: another one is started and goes on where it stopped."""

from __future__ import annotations

import socket
import time

import psutil
import pytest
from cells import all_it_printed, run, started, wait_for
from remote import Remote
from waiting import DEADLINE, eventually

from jupyter_gpu_kernel.errors import HubError

pytestmark = pytest.mark.usefixtures("remote")
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
