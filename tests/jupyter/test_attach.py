"""`attach`: one more front end on a running kernel. One owns the kernel; the other sees its output, or takes over."""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import queue
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from cells import all_it_printed, run, wait_for
from jupyter_client.blocking.client import BlockingKernelClient
from launchers import Launcher, launched
from remote import Remote
from waiting import DEADLINE, eventually

from jupyter_gpu_kernel.client import HubClient
from jupyter_gpu_kernel.errors import HubError, KernelStartError

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("remote")]


class Attached:
    """The verb's process, and a client on the connection file that it prints."""

    def __init__(self, environment: dict[str, str], kernel: str) -> None:
        command = [sys.executable, "-m", "jupyter_gpu_kernel.cli", "attach", kernel, "--json"]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True)
        assert self.process.stdout is not None
        printed = ""
        while line := self.process.stdout.readline():
            printed += line
            if line == "}\n":
                break
        assert printed, self.process.communicate(timeout=DEADLINE)[1]
        self.reported: dict[str, Any] = json.loads(printed)
        self.file = Path(self.reported["connection_file"])
        self.client = BlockingKernelClient(connection_file=str(self.file))
        self.client.load_connection_file()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=DEADLINE)

    def leave(self) -> int:
        """Ctrl-C; the exit status."""
        self.client.stop_channels()
        self.process.send_signal(signal.SIGINT)
        return self.end()

    def end(self) -> int:
        self.process.communicate(timeout=DEADLINE)
        return int(self.process.returncode)


@contextlib.contextmanager
def attached(remote: Remote, kernel: str, **environment: str) -> Iterator[Attached]:
    front = Attached(remote.program_environment(**environment), kernel)
    try:
        yield front
    finally:
        front.client.stop_channels()
        front.client.context.destroy(linger=0)
        if front.process.poll() is None:
            front.process.kill()
        front.process.communicate()


@pytest.fixture
def launcher(remote: Remote) -> Iterator[Launcher]:
    with launched(remote) as launcher:
        yield launcher
        with contextlib.suppress(AssertionError):
            stop(remote, *remote.kernels_on_node())


def stop(remote: Remote, *kernels: str) -> None:
    words = ["stop", *kernels] if kernels else ["ps"]
    command = [sys.executable, "-m", "jupyter_gpu_kernel.cli", *words]
    subprocess.run(
        command, env=remote.program_environment(), capture_output=True, timeout=DEADLINE, check=True
    )


def ask(client: BlockingKernelClient, msg_type: str) -> dict[str, Any]:
    """A control request's reply."""
    message = client.session.msg(msg_type, {"restart": False} if msg_type == "shutdown_request" else {})
    client.control_channel.send(message)
    while True:
        reply = client.get_control_msg(timeout=DEADLINE)
        if reply["parent_header"].get("msg_id") == message["header"]["msg_id"]:
            return dict(reply["content"])


def answers(client: BlockingKernelClient) -> bool:
    """What is sent while there is no hub may be lost in the client's sockets."""
    asked = client.kernel_info()
    with contextlib.suppress(queue.Empty):
        while client.get_shell_msg(timeout=1)["parent_header"].get("msg_id") != asked:
            pass
        return True
    return False


def test_a_second_front_end_sees_the_output_and_the_variables(remote: Remote, launcher: Launcher) -> None:
    client = launcher.client()
    run(client, "treasure = 42")
    (kernel,) = remote.kernels_on_node()
    with attached(remote, kernel) as front:
        assert front.reported["id"] == kernel and stat.S_IMODE(front.file.stat().st_mode) == 0o600
        run(client, "print('to all')")
        assert wait_for(front.client, "stream")["content"]["text"] == "to all\n"
        assert front.leave() == 0 and not front.file.exists()
    assert run(client, "print(treasure)").text == "42\n", "the kernel stays as it is"


def test_who_runs_a_cell_owns_the_kernel_and_that_is_reported(remote: Remote, launcher: Launcher) -> None:
    client = launcher.client()
    assert "You have this kernel" not in str(run(client, "treasure = 42").messages)
    (kernel,) = remote.kernels_on_node()
    with attached(remote, kernel) as front:
        asked = client.execute("import time\nprint('runs', flush=True)\ntime.sleep(600)")
        wait_for(front.client, "stream", text="runs\n")
        assert ask(front.client, "interrupt_request")["status"] == "error", "it is not its to interrupt"
        assert ask(client, "interrupt_request")["status"] == "ok"
        while client.get_shell_msg(timeout=DEADLINE)["parent_header"]["msg_id"] != asked:
            pass
        mine = run(front.client, "print(treasure)")
        assert mine.text == "42\n" and "You have this kernel now" in str(mine.of("display_data"))
        assert ask(client, "interrupt_request")["status"] == "error"
        again = run(client, "1")
        assert "jupyter gpu-kernel attach still sees" in str(again.of("display_data")), "taken back"
        assert "You have" not in str(run(client, "2").messages)
    assert "taken over by jupyter gpu-kernel attach" in str(remote.story(kernel))


def test_a_front_end_that_does_not_own_the_kernel_leaves_it(remote: Remote, launcher: Launcher) -> None:
    client = launcher.client()
    run(client, "treasure = 42")
    (kernel,) = remote.kernels_on_node()
    with attached(remote, kernel) as front:
        assert ask(front.client, "shutdown_request")["status"] == "ok"
        assert front.end() == 0
    assert run(client, "print(treasure)").text == "42\n"


def test_the_owner_ends_the_kernel_for_all(remote: Remote, launcher: Launcher) -> None:
    client = launcher.client()
    run(client, "1")
    (kernel,) = remote.kernels_on_node()
    with attached(remote, kernel) as front:
        assert ask(client, "shutdown_request")["status"] == "ok"
        assert launcher.end() == (0, "")
        assert front.end() == 0
    remote.nothing_left()


def test_both_come_back_after_the_hub_was_killed(remote: Remote, launcher: Launcher) -> None:
    client = launcher.client()
    run(client, "treasure = 42")
    (kernel,) = remote.kernels_on_node()
    with attached(remote, kernel) as front:
        run(front.client, "treasure")
        os.kill(remote.hub_pid(), signal.SIGKILL)
        for one in (client, front.client):
            eventually(lambda one=one: answers(one), "another hub has the ports")  # type: ignore[misc]
        assert run(client, "print(treasure)").text == "42\n"
        assert run(front.client, "print(treasure + 1)").text == "43\n"


def test_one_that_comes_back_later_misses_nothing(remote: Remote, launcher: Launcher) -> None:
    """A cell of its own runs when the hub is killed, and the other front end asks for one before it is back."""
    client = launcher.client()
    (kernel,) = remote.kernels_on_node()
    with attached(remote, kernel) as front:
        own = front.client.execute("import time\nfor i in range(100): print(i, flush=True); time.sleep(0.01)")
        wait_for(front.client, "stream", text="0\n")
        front.process.send_signal(signal.SIGSTOP)
        os.kill(remote.hub_pid(), signal.SIGKILL)
        eventually(lambda: answers(client), "another hub has the ports")
        asked = client.execute("print('the end')")
        front.process.send_signal(signal.SIGCONT)
        assert all_it_printed(front.client, own).split() == [str(number) for number in range(1, 100)]
        assert all_it_printed(front.client, asked) == "the end\n"


@pytest.mark.parametrize("place", ["JUPYTER_DATA_DIR", "XDG_RUNTIME_DIR"])
def test_another_computer_takes_the_kernel_over_and_it_is_taken_back(
    remote: Remote, launcher: Launcher, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Another data folder is another computer: it has a hub of its own. So is another session, or one home of two."""
    client = launcher.client()
    run(client, "treasure = 42")
    (kernel,) = remote.kernels_on_node()
    other = remote.data.parent / "other"
    (other / "kernels").mkdir(parents=True, exist_ok=True)
    for spec in (remote.data / "kernels").glob("*-argv"):
        if not (other / "kernels" / spec.name).exists():
            (other / "kernels" / spec.name).symlink_to(spec)
    asked = client.execute("import time\nprint('runs', flush=True)\ntime.sleep(600)")
    wait_for(client, "stream", text="runs\n")
    with attached(remote, kernel, **{place: str(other)}) as front:
        reply = client.get_shell_msg(timeout=DEADLINE)
        assert reply["parent_header"]["msg_id"] == asked and "taken over by" in reply["content"]["evalue"]
        assert ask(front.client, "interrupt_request")["status"] == "ok", "it is the other one's now"
        assert run(front.client, "print(treasure)").text == "42\n"
        eventually(lambda: remote.ask("kernels")[0]["link"] == "taken", "this hub knows")
        assert ask(client, "interrupt_request")["status"] == "error"
        assert launcher.process.poll() is None
        back = run(client, "print(treasure + 1)")
        assert back.text == "43\n" and "Back on kernel" in str(back.of("display_data"))
        assert ask(front.client, "interrupt_request")["status"] == "error"
    assert "taken over by" in str(remote.story(kernel))
    monkeypatch.setenv(place, str(other))
    with HubClient(start=False) as hub, contextlib.suppress(HubError):  # it may hang up before it answers
        hub.call("shutdown", timeout=DEADLINE)


def test_a_kernel_that_another_computer_has_is_not_restarted(
    remote: Remote, spec: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And that is said at once: no word of its keeper would come."""
    connection = {"transport": "tcp", "ip": "127.0.0.1", "key": "key"}
    other = remote.folder / "other"
    other.mkdir(exist_ok=True)
    with HubClient() as hub:
        arguments = {"settings": {**spec[0]["settings"], "gpus": 0}, "name": "cpu", "connection": connection}
        kernel = hub.call("start", timeout=DEADLINE, **arguments)["id"]
        with attached(remote, kernel, XDG_RUNTIME_DIR=str(other)):
            eventually(lambda: remote.ask("kernels")[0]["link"] == "taken", "this hub knows")
            (row,) = remote.ask("ps", specs=spec)
            assert (row["state"], row["attached"]) == ("idle", False)
            assert row["attached_from"] == f"{getpass.getuser()}@{socket.gethostname()}"
            assert not row.keys() & {"owner", "by"}
            with pytest.raises(KernelStartError, match="taken over by"):
                hub.call("restart", kernel=kernel, timeout=DEADLINE)
        row = eventually(
            lambda: (now := remote.ask("ps", specs=spec)[0])["state"] == "detached" and now, "it left"
        )
        assert row["attached_from"] == ""
    stop(remote, kernel)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(other))
    with HubClient(start=False) as hub, contextlib.suppress(HubError):  # it may hang up before it answers
        hub.call("shutdown", timeout=DEADLINE)


def test_an_unknown_kernel_is_refused(remote: Remote) -> None:
    command = [sys.executable, "-m", "jupyter_gpu_kernel.cli", "attach", "nobody"]
    ran = subprocess.run(
        command, env=remote.program_environment(), capture_output=True, text=True, timeout=DEADLINE
    )
    assert (
        ran.returncode == 1 and "no node has a kernel nobody" in ran.stderr and "Traceback" not in ran.stderr
    )


def test_two_front_ends_may_come_to_one_kernel_at_once(remote: Remote, spec: list[dict[str, Any]]) -> None:
    """Neither takes it from the other."""
    connection = {"transport": "tcp", "ip": "127.0.0.1", "key": "key"}
    arguments = {"settings": {**spec[0]["settings"], "gpus": 0}, "name": "cpu", "connection": connection}
    with HubClient() as hub:
        kernel = hub.call("start", timeout=DEADLINE, **arguments)["id"]
        hub.call("release", kernel=kernel, timeout=DEADLINE)

    def come(hub: HubClient) -> str:
        came = {"kernel": kernel, "specs": spec, "connection": connection}
        return str(hub.call("attach", timeout=DEADLINE, **came)["id"])

    with HubClient() as one, HubClient() as two, ThreadPoolExecutor() as pool:
        assert list(pool.map(come, (one, two))) == [kernel, kernel]
        (row,) = remote.ask("kernels")
        assert row["link"] == "up"
        for hub in (one, two):
            hub.call("release", kernel=kernel, timeout=DEADLINE)
    stop(remote, kernel)
