"""jupyter_client's managers with the provisioner: a kernel's whole life, and that a lost link is no dead kernel."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
from cells import all_it_printed, connect, printing, run, started, wait_for
from jupyter_client.asynchronous.client import AsyncKernelClient
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import AsyncKernelManager, KernelManager
from jupyter_client.utils import run_sync
from remote import Remote
from waiting import DEADLINE, eventually

from jupyter_gpu_kernel.provisioner import RemoteGPUProvisioner
from jupyter_gpu_kernel.server.serve.kernels import RemoteKernelSpecs

pytestmark = pytest.mark.usefixtures("remote")
Pair = tuple[KernelManager, BlockingKernelClient]


@pytest.fixture(scope="module")
def pair(remote: Remote) -> Iterator[Pair]:
    """A manager and its client, with a kernel without GPU."""
    with started(remote, "cpu") as pair:
        yield pair


@pytest.fixture
def gpu_pair(remote: Remote) -> Iterator[Pair]:
    """The same, with a GPU."""
    with started(remote, "gpu") as pair:
        yield pair


def value(client: BlockingKernelClient, expression: str) -> str:
    ran = run(client, f"print({expression})")
    assert ran.reply["status"] == "ok", ran
    return ran.text.strip()


GPU = "__import__('os').environ['CUDA_VISIBLE_DEVICES']"


def test_the_first_user_cell_takes_a_free_gpu(remote: Remote, gpu_pair: Pair) -> None:
    _, client = gpu_pair
    before = run(client, f"print(repr({GPU}))", store_history=False)
    assert before.text.strip() == "''"
    assert value(client, GPU) in remote.free
    assert value(client, "__import__('os').environ['CUDA_DEVICE_ORDER']") == "PCI_BUS_ID"
    own = value(client, "__import__('os').environ['JUPYTER_GPU_KERNEL_ID']")
    (kernel,) = [kernel for kernel in remote.ask("kernels") if kernel["id"] == own]
    assert kernel["gpus"] == [value(client, GPU)]


def test_a_restart_is_a_fresh_kernel_with_the_same_gpu(gpu_pair: Pair) -> None:
    manager, client = gpu_pair
    gpu = value(client, GPU)
    for now in (False, True):
        pid = value(client, "(x := 1) and __import__('os').getpid()")
        before = manager.get_connection_info()
        manager.restart_kernel(now=now)
        client.wait_for_ready(timeout=DEADLINE)
        assert manager.get_connection_info() == before
        assert value(client, "'x' in globals()") == "False"
        assert value(client, "__import__('os').getpid()") != pid
        assert value(client, GPU) == gpu


def test_two_kernels_have_different_gpus_and_shutdown_leaves_nothing(remote: Remote) -> None:
    async def kernel() -> str:
        manager = AsyncKernelManager(kernel_name="gpu")
        await manager.start_kernel()
        client: AsyncKernelClient = manager.client()
        client.start_channels()
        await client.wait_for_ready(timeout=DEADLINE)
        texts: list[str] = []

        def hook(message: dict[str, Any]) -> None:
            texts.append(message["content"].get("text", ""))

        await client.execute_interactive(f"print({GPU})", timeout=DEADLINE, output_hook=hook)
        client.stop_channels()
        both.append("".join(texts).strip())
        while len(both) < 2:
            await asyncio.sleep(0.02)
        await manager.shutdown_kernel()
        assert not await manager.is_alive()
        return both[-1]

    async def main() -> None:
        await asyncio.wait_for(asyncio.gather(kernel(), kernel()), DEADLINE)

    before = set(remote.kernels_on_node())  # one of an earlier test may just be going
    both: list[str] = []
    asyncio.run(main())
    assert len(set(both)) == 2 and set(both) <= set(remote.free)
    eventually(lambda: set(remote.kernels_on_node()) <= before, "the kernels' folders are gone")


def test_a_kernel_that_takes_its_time_to_shut_down_is_not_killed(remote: Remote, tmp_path: Path) -> None:
    """jupyter_client would wait for half a second, then have it killed."""
    began, ended = tmp_path / "began", tmp_path / "ended"
    with started(remote, "cpu", shutdown_wait_time=0.5) as (manager, client):
        assert manager.provisioner.get_shutdown_wait_time(0.5) == manager.provisioner.shutdown_wait == 10
        assert manager.provisioner.get_shutdown_wait_time(99) == 99, "who asks for more gets it"
        manager.provisioner.shutdown_wait = DEADLINE
        run(
            client,
            f"""
            import atexit, pathlib, time
            def slow():
                pathlib.Path({str(began)!r}).touch()
                time.sleep(2)  # as a user's own clean-up may take
                pathlib.Path({str(ended)!r}).touch()
            atexit.register(slow)
            """,
        )
    assert began.exists() and ended.exists()


@pytest.mark.parametrize("how", ["message", "signal"])
def test_interrupt_ends_the_running_cell(pair: Pair, how: str) -> None:
    manager, client = pair
    asked = client.execute("import time\nprint('runs')\ntime.sleep(600)")
    wait_for(client, "stream", text="runs\n")
    if how == "message":
        manager.interrupt_kernel()
    else:
        manager.signal_kernel(signal.SIGINT)
    assert wait_for(client, "error")["content"]["ename"] == "KeyboardInterrupt"
    reply = client.get_shell_msg(timeout=DEADLINE)
    assert reply["parent_header"]["msg_id"] == asked
    assert value(client, "1 + 1") == "2"


def test_a_priority_is_set_by_the_program(remote: Remote, pair: Pair, spec: list[dict[str, Any]]) -> None:
    kernel = value(pair[1], "__import__('os').environ['JUPYTER_GPU_KERNEL_ID']")
    done = remote.program("priority", kernel, "-5")
    assert done.returncode == 0 and "has priority -5, and is not in the queue" in done.stdout, done
    (row,) = [row for row in remote.ask("ps", specs=spec) if row["id"] == kernel]
    assert (row["priority"], row["place"]) == (-5, None)
    assert [entry["priority"] for entry in remote.story(kernel) if entry["event"] == "priority"] == [-5]
    unknown = remote.program("priority", "nosuch", "1", "--json")
    assert unknown.returncode == 1 and "no node has a kernel nosuch" in unknown.stderr


def test_the_log_of_a_kernel_that_has_ended_is_shown_by_the_beginning_of_its_id(remote: Remote) -> None:
    with started(remote, "cpu") as (_, client):
        kernel = value(client, "__import__('os').environ['JUPYTER_GPU_KERNEL_ID']")
    eventually(lambda: kernel not in remote.kernels_on_node(), "its end")
    done = remote.program("logs", kernel[:8])
    assert done.returncode == 0 and done.stdout.startswith(f"Kernel {kernel}, as work tells it:\n"), done
    assert remote.program("logs", "nosuch").returncode == 1


def test_restart_now_ends_a_cell_that_runs(pair: Pair) -> None:
    manager, client = pair
    client.execute("import time\nprint('runs')\ntime.sleep(600)")
    wait_for(client, "stream", text="runs\n")
    manager.restart_kernel(now=True)
    client.wait_for_ready(timeout=DEADLINE)
    assert value(client, "'time' in globals()") == "False"


def test_a_kernel_that_ends_itself_is_not_alive_and_can_be_restarted(remote: Remote) -> None:
    manager = KernelManager(kernel_name="cpu")
    manager.start_kernel()
    client = connect(manager)
    ran = run(client, "import os; os._exit(3)")
    assert ran.reply["status"] == "error" and "ended" in ran.reply["evalue"]
    eventually(lambda: not manager.is_alive(), "the manager knows that it ended")
    assert asyncio.run(manager.provisioner.poll()) == 3
    manager.restart_kernel(now=True)
    client.wait_for_ready(timeout=DEADLINE)
    assert value(client, "1") == "1"
    client.stop_channels()
    manager.shutdown_kernel()
    assert not manager.is_alive()


def test_the_notebook_is_known(remote: Remote) -> None:
    manager = KernelManager(kernel_name="cpu")
    manager.start_kernel(env={**remote.program_environment(), "JPY_SESSION_NAME": "/home/alice/a.ipynb"})
    kernels = {kernel["notebook"] for kernel in remote.ask("kernels")}
    assert "/home/alice/a.ipynb" in kernels
    manager.shutdown_kernel()


def test_a_front_end_names_the_notebook_of_its_own_kernel_only(remote: Remote) -> None:
    """Neither the kernels of other notebooks change theirs, nor another kernel of the notebook of before."""
    managers = [KernelManager(kernel_name="cpu") for _ in range(3)]
    try:
        for manager, notebook in zip(managers, ("", "/me/a.ipynb", "/me/a.ipynb"), strict=True):
            manager.start_kernel(env={**remote.program_environment(), "JPY_SESSION_NAME": notebook})
        for manager, notebook in zip(managers, ("/me/b.ipynb", "/me/c.ipynb"), strict=False):
            assert isinstance(manager.provisioner, RemoteGPUProvisioner)
            run_sync(manager.provisioner.name_notebook)(notebook)
        ours = {str(kernel_id): one for one, kernel_id in RemoteGPUProvisioner.served().items()}

        def named() -> list[str]:
            known = {kernel["id"]: kernel["notebook"] for kernel in remote.ask("kernels")}
            return [known[ours[manager.kernel_id]] for manager in managers]

        eventually(lambda: named() == ["/me/b.ipynb", "/me/c.ipynb", "/me/a.ipynb"], "what the keepers say")
    finally:
        for manager in managers:
            manager.shutdown_kernel()


def test_the_next_cell_in_a_page_of_serve_starts_an_ended_kernel_anew(remote: Remote) -> None:
    """Its kernelspecs say what the front end is, whichever manager starts the kernel."""
    with started(remote, "cpu", kernel_spec_manager=RemoteKernelSpecs()) as (_, client):
        assert "the kernel ended" in run(client, "import os; os._exit(3)").reply["evalue"]
        assert run(client, "print(6 * 7)").text == "42\n"


@pytest.mark.parametrize("spec", ["cpu", "cpu-argv"])
def test_sockets_of_the_file_system(
    remote: Remote, spec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """jupyter_client's default is a relative path, and it removes the sockets' files at each restart."""
    monkeypatch.chdir(tmp_path)
    with started(remote, spec, transport="ipc") as (manager, client):
        assert value(client, "6 * 7") == "42"
        manager.restart_kernel()
        client.wait_for_ready(timeout=DEADLINE)
        another = connect(manager)
        try:
            assert value(another, "6 * 7") == "42"
        finally:
            another.stop_channels()


def state_of(remote: Remote, link: str) -> bool:
    return any(kernel["link"] == link for kernel in remote.ask("kernels"))


@pytest.mark.parametrize("how", ["drop", "stop"])
def test_a_lost_link_is_no_dead_kernel(remote: Remote, pair: Pair, how: str) -> None:
    manager, client = pair
    asked = printing(client, remote)
    before = remote.logins()
    if how == "drop":
        remote.hops.login.drop()
    else:
        remote.hops.login.stop()
        eventually(lambda: state_of(remote, "away"), "the hub notices")
        assert manager.is_alive()
        assert asyncio.run(manager.provisioner.poll()) is None
        remote.hops.login.start()
    eventually(lambda: remote.logins() > before and state_of(remote, "up"), "the link is back")
    (remote.folder / "stop").touch()
    lines = all_it_printed(client, asked).split("\n")
    numbers = [int(line) for line in lines if line.isdigit()]
    assert lines[-2] == f"end {numbers[-1] + 1}"
    assert numbers == list(range(numbers[0], numbers[-1] + 1)) and numbers[0] <= 1
    assert manager.is_alive()
    assert client.get_shell_msg(timeout=DEADLINE)["content"]["status"] == "ok"


def test_who_asks_does_not_wait_for_a_link_that_dials(
    remote: Remote, pair: Pair, spec: list[dict[str, Any]]
) -> None:
    """A login node that takes connections and greets nobody: each attempt takes long, and kernels are known here."""
    eventually(lambda: state_of(remote, "up"), "the link, after an outage of before")
    with remote.hops.login.silent():
        remote.hops.login.drop()
        eventually(lambda: state_of(remote, "away"), "the hub notices")
        *kernels, node = remote.ask("ps", specs=spec)
        assert [row["state"] for row in kernels] == ["away"]
        assert "is being restored" in node["error"]["cause"]
    eventually(lambda: state_of(remote, "up"), "the link is back")


def test_a_kernel_that_was_stopped_is_not_away(remote: Remote, spec: list[dict[str, Any]]) -> None:
    """Its front end still has it here, and the node cannot be asked."""
    before = {row["id"] for row in remote.ask("kernels")}
    manager = KernelManager(kernel_name="cpu")
    manager.start_kernel()
    (stopped,) = {row["id"] for row in remote.ask("kernels")} - before
    remote.ask("stop", kernel=stopped, specs=spec)
    eventually(lambda: state_of(remote, "lost"), "the hub hears of the end")
    remote.hops.login.stop()
    try:
        eventually(lambda: "error" in remote.ask("ps", specs=spec)[-1], "the node cannot be asked")
        assert stopped not in {row.get("id") for row in remote.ask("ps", specs=spec)}
    finally:
        remote.hops.login.start()
        manager.shutdown_kernel()


def test_poll_needs_nobody(remote: Remote, pair: Pair) -> None:
    """Neither the network nor the hub: it is asked every three seconds for every kernel."""
    manager, client = pair
    hub = remote.hub_pid()
    os.kill(hub, signal.SIGSTOP)
    try:
        for _ in range(100):
            assert asyncio.run(asyncio.wait_for(manager.provisioner.poll(), DEADLINE)) is None
    finally:
        os.kill(hub, signal.SIGCONT)
    assert value(client, "1") == "1"


def test_a_shutdown_while_the_link_is_down_reaches_the_node_later(remote: Remote) -> None:
    manager = KernelManager(kernel_name="cpu")
    manager.start_kernel()
    client = connect(manager)
    known = remote.kernels_on_node()
    remote.hops.login.stop()
    try:
        eventually(lambda: state_of(remote, "away"), "the hub notices")
        manager.shutdown_kernel()
        assert not manager.is_alive()
        assert remote.kernels_on_node() == known
    finally:
        client.stop_channels()
        remote.hops.login.start()
    eventually(lambda: len(remote.kernels_on_node()) == len(known) - 1, "it is gone from the node")


def test_a_restart_while_the_link_is_down_takes_place_when_it_is_back(remote: Remote) -> None:
    others = set(remote.kernels_on_node())
    with started(remote, "cpu") as (manager, client):
        before = int(value(client, "__import__('os').getpid()"))

        def start_again() -> None:
            try:
                eventually(
                    lambda: redial_failed(remote) and restarts(remote), "a failed attempt to reconnect"
                )
            finally:
                remote.hops.login.start()

        remote.hops.login.stop()
        with ThreadPoolExecutor() as pool:  # jupyter_client leaves an event loop in the thread that restarts
            started_again = pool.submit(start_again)
            manager.restart_kernel()
            started_again.result()
        client.wait_for_ready(timeout=DEADLINE)
        assert int(value(client, "__import__('os').getpid()")) != before
        assert not psutil.pid_exists(before) and len(set(remote.kernels_on_node()) - others) == 1


def redial_failed(remote: Remote) -> bool:
    """The node's address refuses connections, and the hub knows it."""
    return any("refused" in str(row["error"]) for row in remote.ask("kernels") if row["link"] == "away")


def restarts(remote: Remote) -> bool:
    return any(row["state"] == "starting" for row in remote.ask("kernels"))


@pytest.mark.full
@pytest.mark.parametrize("spec_name", ["cpu", "cpu-argv"])
def test_restarts_and_drops_at_any_moment_leave_one_kernel(remote: Remote, spec_name: str) -> None:
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    others = set(remote.kernels_on_node())
    with started(remote, spec_name) as (manager, client):
        for _ in range(6):
            drop = threading.Timer(rng.uniform(0, 0.25), remote.hops.login.drop)
            drop.start()
            manager.restart_kernel()
            client.wait_for_ready(timeout=DEADLINE)
            assert value(client, "1") == "1", f"seed {seed}"
            drop.join()
        assert len(set(remote.kernels_on_node()) - others) == 1, f"seed {seed}"


def keeper_of(remote: Remote, kernel_pid: int) -> psutil.Process:
    keeper = psutil.Process(kernel_pid).parent()
    assert keeper is not None and keeper in remote.processes()
    return keeper


def test_a_node_that_lost_the_kernel_starts_another_at_a_restart(remote: Remote) -> None:
    manager = KernelManager(kernel_name="cpu")
    manager.start_kernel()
    client = connect(manager)
    pid = int(value(client, "__import__('os').getpid()"))
    keeper = keeper_of(remote, pid)
    psutil.Process(pid).suspend()  # else it would have a successor of its keeper started
    keeper.kill()
    psutil.Process(pid).kill()
    eventually(lambda: not manager.is_alive(), "the manager knows")
    manager.restart_kernel(now=True)
    client.wait_for_ready(timeout=DEADLINE)
    assert int(value(client, "__import__('os').getpid()")) != pid
    client.stop_channels()
    manager.shutdown_kernel()
