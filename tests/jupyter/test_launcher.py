"""argv alone, as VS Code and others run it: a process with a connection file of its own, told by signals to go."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from cells import run, started, wait_for
from jupyter_client.blocking.client import BlockingKernelClient
from launchers import Launcher, launched
from remote import Remote
from waiting import DEADLINE, eventually

from jupyter_gpu_kernel.errors import NotAnswered
from jupyter_gpu_kernel.launcher import _fail

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("remote")]
GPU = "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])"


@pytest.fixture(autouse=True)
def stop_what_is_left(remote: Remote) -> Iterator[None]:
    """Whoever leaves detaches, and the kernel stays: as it should, but not beyond the test."""
    yield
    for kernel_id in remote.kernels_on_node():
        stop(remote, kernel_id)


def specs(remote: Remote) -> list[dict[str, Any]]:
    settings = json.loads((remote.data / "kernels" / "cpu-argv" / "kernel.json").read_text())
    return [{"settings": settings["metadata"]["jupyter_gpu_kernel"]}]


def stop(remote: Remote, kernel_id: str) -> None:
    with contextlib.suppress(Exception):  # it ended by itself meanwhile
        remote.ask("stop", kernel=kernel_id, specs=specs(remote))
    eventually(lambda: kernel_id not in remote.kernels_on_node(), f"kernel {kernel_id} is gone")


def shut_down(launcher: Launcher, client: BlockingKernelClient) -> None:
    client.shutdown()
    assert launcher.end() == (0, "")


START_UP = ("start_up = 1", "__vsc_ipynb_file__ = '/home/alice/a.ipynb'")


def test_a_notebook_in_vs_code(remote: Remote) -> None:
    """Start-up code, cells; restart: a new process with new ports and key beside the old one, which gets SIGTERM.

    The new kernel is a fresh one, and the old one ends when the new one runs its first cell.
    """
    with launched(remote, "gpu-argv") as old:
        client = old.client()
        for code in START_UP:
            assert run(client, code, store_history=False).reply["status"] == "ok"
        assert run(client, GPU).text.strip() in remote.free
        assert run(client, "x = start_up; print(x)").text == "1\n"
        (first,) = (kernel["id"] for kernel in remote.ask("kernels"))
        with launched(remote, "gpu-argv") as new:
            old.process.send_signal(signal.SIGTERM)
            assert old.end() == (0, "")
            assert first in remote.kernels_on_node()
            second = new.client()
            for code in START_UP:
                assert run(second, code, store_history=False).reply["status"] == "ok"
            assert run(second, "print('x' in globals())").text == "False\n"
            eventually(lambda: first not in remote.kernels_on_node(), "the old one is gone")
            assert run(second, GPU).text.strip() in remote.free
            shut_down(new, second)
    remote.nothing_left()


def test_leaving_during_the_start_leaves_nothing(remote: Remote) -> None:
    with launched(remote) as launcher:
        eventually(lambda: launcher.in_use(launcher.connection["shell_port"]), "it has begun")
        launcher.process.send_signal(signal.SIGTERM)
        assert launcher.end() == (0, "")
    remote.nothing_left()


def test_sigint_is_an_interrupt(remote: Remote) -> None:
    with launched(remote) as launcher:
        client = launcher.client()
        client.execute("import time\nprint('runs')\ntime.sleep(600)")
        wait_for(client, "stream", text="runs\n")
        launcher.process.send_signal(signal.SIGINT)
        assert wait_for(client, "error")["content"]["ename"] == "KeyboardInterrupt"
        client.get_shell_msg(timeout=DEADLINE)
        shut_down(launcher, client)
    remote.nothing_left()


def test_an_interrupt_request_is_answered_and_framed(remote: Remote) -> None:
    """VS Code waits for the reply, and for busy and idle."""
    with launched(remote) as launcher:
        client = launcher.client()
        message = client.session.msg("interrupt_request", {})
        client.control_channel.send(message)
        asked = message["header"]["msg_id"]
        assert client.get_control_msg(timeout=DEADLINE)["parent_header"]["msg_id"] == asked
        states: list[str] = []
        while states[-1:] != ["idle"]:
            status = client.get_iopub_msg(timeout=DEADLINE)
            if status["parent_header"].get("msg_id") == asked:
                states.append(status["content"]["execution_state"])
        assert states == ["busy", "idle"]
        shut_down(launcher, client)


def test_the_hub_is_nobody_s_child(remote: Remote) -> None:
    """VS Code kills every descendant of the launcher, and then the launcher."""
    with contextlib.suppress(Exception):  # there may be none
        remote.ask("shutdown")
    with launched(remote) as launcher:
        client = launcher.client()
        assert run(client, "x = 1").reply["status"] == "ok"
        hub = remote.hub_pid()
        family = psutil.Process(launcher.process.pid).children(recursive=True)
        assert hub not in {process.pid for process in family}
        assert launcher.process.pid not in {parent.pid for parent in psutil.Process(hub).parents()}
        for process in (*family, launcher.process):
            process.kill()
        launcher.process.wait(DEADLINE)
        (kernel,) = remote.kernels_on_node()
        assert remote.hub_pid() == hub
        stop(remote, kernel)


def test_a_vanished_parent_is_noticed(remote: Remote) -> None:
    with launched(remote) as plain:  # for its files; this one goes again
        argv, surroundings = plain.argv(), plain.surroundings()
        shut_down(plain, plain.client())
        parent = "import subprocess, sys; child = subprocess.Popen(sys.argv[1:])"
        parent += "; print(child.pid, flush=True); child.wait()"
        with subprocess.Popen([sys.executable, "-c", parent, *argv], **surroundings) as process:
            assert process.stdout is not None
            launcher = psutil.Process(int(process.stdout.readline()))
            assert run(plain.client(), "x = 1").reply["status"] == "ok"
            process.kill()
            launcher.wait(DEADLINE)
        assert len(remote.kernels_on_node()) == 1


def broken(launcher: Launcher) -> None:
    """Its reader has gone, and then it is told to go."""
    for pipe in (launcher.process.stdout, launcher.process.stderr):
        assert pipe is not None
        pipe.close()
    launcher.process.stdout = launcher.process.stderr = None
    launcher.process.terminate()


@pytest.mark.parametrize(
    "leave",
    [
        lambda launcher: launcher.process.kill(),  # as Zed does
        lambda launcher: launcher.process.terminate(),
        lambda launcher: launcher.process.send_signal(signal.SIGHUP),
        broken,
    ],
    ids=["SIGKILL", "SIGTERM", "SIGHUP", "broken pipes"],
)
def test_whoever_leaves_in_mid_cell_leaves_the_kernel_at_work(
    remote: Remote, leave: Callable[[Launcher], None]
) -> None:
    def kernel() -> dict[str, Any]:
        (only,) = remote.ask("ps", specs=specs(remote))
        return dict(only)

    end = remote.folder / "end-of-cell"
    with launched(remote) as launcher:
        client = launcher.client()
        for code in START_UP:
            run(client, code, store_history=False)
        wait = f"while not os.path.exists({str(end)!r}): time.sleep(0.01)"
        client.execute(f"import os, time\nprint('begun')\n{wait}")
        wait_for(client, "stream", text="begun\n")
        pid = kernel()["pid"]
        leave(launcher)
        launcher.process.wait(DEADLINE)
        eventually(lambda: not kernel()["attached"], "it is detached")
        assert (kernel()["state"], kernel()["pid"]) == ("busy", pid)
        end.touch()
        eventually(lambda: kernel()["state"] == "detached", "its cell ends")
    assert kernel()["pid"] == pid
    end.unlink()


def test_a_front_end_without_notebooks_ends_its_kernel_by_sigterm(remote: Remote) -> None:
    """As jupyverse does when its user deletes or restarts a kernel; nobody could come back to it."""
    with launched(remote) as launcher:
        client = launcher.client()
        client.execute("import time\nprint('begun')\ntime.sleep(600)")
        wait_for(client, "stream", text="begun\n")
        launcher.process.terminate()
        assert launcher.end() == (0, "")
    remote.nothing_left()


def test_a_shutdown_during_an_outage_is_not_forgotten_when_the_launcher_leaves(remote: Remote) -> None:
    """As when a server deletes the kernel: five seconds after its message it ends the launcher."""
    with launched(remote) as launcher:
        client = launcher.client()
        for code in START_UP:
            run(client, code, store_history=False)
        with remote.hops.login.silent():
            remote.hops.login.drop()
            eventually(lambda: remote.ask("kernels")[0]["link"] == "away", "the outage")
            client.shutdown()
            client.control_channel.send(client.session.msg("kernel_info_request", {}))
            client.get_control_msg(timeout=DEADLINE)  # so the hub has the message before it, too
            launcher.process.terminate()
            assert launcher.end() == (0, "")
    remote.nothing_left()


def test_its_pipes_may_be_broken(remote: Remote) -> None:
    with launched(remote) as launcher:
        client = launcher.client()
        assert launcher.process.stdout is not None and launcher.process.stderr is not None
        launcher.process.stdout.close()
        launcher.process.stderr.close()
        assert run(client, "import os; os._exit(3)").reply["status"] == "error"
        assert launcher.process.wait(DEADLINE) == 1
        launcher.process.stdout = launcher.process.stderr = None


def test_a_kernel_that_ends_by_itself_ends_its_launcher(remote: Remote) -> None:
    with launched(remote) as launcher:
        client = launcher.client()
        assert run(client, "import os; os._exit(3)").reply["status"] == "error"
        code, printed = launcher.end()
        assert code == 1 and "status 3" in printed and len(printed.splitlines()) <= 2
    remote.nothing_left()


def test_restart_by_a_manager_keeps_the_gpu(remote: Remote) -> None:
    """jupyter_client's own provisioner restarts by a new launcher with the same file; “now” kills the old one."""
    with started(remote, "gpu-argv") as (manager, client):
        gpu = run(client, GPU).text
        for now in (False, True):
            assert run(client, "x = 1").reply["status"] == "ok"
            launcher = manager.provisioner.process
            manager.restart_kernel(now=now)
            client.wait_for_ready(timeout=DEADLINE)
            assert launcher.returncode == (-signal.SIGKILL if now else 0)
            assert run(client, "print('x' in globals())").text == "False\n"
            assert run(client, GPU).text == gpu
            assert len(remote.kernels_on_node()) == 1
    remote.nothing_left()


def test_restart_by_a_manager_during_an_outage_keeps_the_gpu(remote: Remote) -> None:
    """As the kernel does not end within its time, the manager ends the launcher by SIGTERM, and starts another one."""
    with started(remote, "gpu-argv") as (manager, client):
        gpu, kernels = run(client, GPU).text, remote.kernels_on_node()
        with remote.hops.login.silent():
            remote.hops.login.drop()
            eventually(lambda: remote.ask("kernels")[0]["link"] == "away", "the outage")
            manager.restart_kernel()
        client.wait_for_ready(timeout=DEADLINE)
        assert run(client, "print('os' in globals())").text == "False\n"
        assert run(client, GPU).text == gpu
        assert remote.kernels_on_node() == kernels
    remote.nothing_left()


def test_one_message_says_why_it_cannot_start(remote: Remote) -> None:
    remote.write("spoilt", python="/nowhere/bin/python")
    with launched(remote, "spoilt") as launcher:
        code, printed = launcher.end()
        assert code == 1
        assert (
            printed.startswith("work: ") and "/nowhere/bin/python" in printed and "Traceback" not in printed
        )
        assert 2 <= len(printed.splitlines()) <= 3
        program = json.loads(launcher.spec.read_text())["argv"][0]
        assert program in printed and "jupyter gpu-kernel" not in printed
    path = remote.data / "kernels" / "spoilt" / "kernel.json"
    spec = json.loads(path.read_text())
    spec["metadata"]["jupyter_gpu_kernel"]["gpu"] = 2
    path.write_text(json.dumps(spec))
    with launched(remote, "spoilt") as launcher:
        code, printed = launcher.end()
        assert code == 1 and "“gpu”" in printed and "Did you mean “gpus”?" in printed
    remote.nothing_left()


def test_a_port_that_is_taken(remote: Remote) -> None:
    with launched(remote) as first:
        client = first.client()
        second = subprocess.Popen([*first.argv()[:-1], str(same_ports(first))], **first.surroundings())
        _, printed = second.communicate(timeout=DEADLINE)
        assert second.returncode == 1 and str(first.connection["shell_port"]) in printed
        assert run(client, "print(1)").text == "1\n"
        shut_down(first, client)


def same_ports(launcher: Launcher) -> Path:
    file = launcher.file.with_suffix(".other.json")
    file.write_text(json.dumps({**launcher.connection, "key": uuid.uuid4().hex}))
    return file


def test_a_message_for_vs_code_fits_into_its_lines(capfd: pytest.CaptureFixture[str]) -> None:
    """VS Code does not wrap them, or joins them, and appends a full stop. A command is not broken."""
    error = NotAnswered(
        "asks for a password or a code, which nobody could type here", hop="login.example.org"
    )
    error.fill_in("NAME", "n" * 20)
    _fail(str(error))
    lines = capfd.readouterr().err.splitlines()
    assert max(map(len, lines)) <= 100 and any(f"login {'n' * 20}”" in line for line in lines)
    assert "which nobody could type here. " in " ".join(lines) and not lines[-1].endswith("n")
