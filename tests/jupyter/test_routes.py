"""Kernels behind a command and on this machine: GPUs, drops, and what `ps` and `gpus` show of them."""

from __future__ import annotations

import contextlib
import shlex
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
from cells import run, started
from launchers import launched
from remote import Remote
from waiting import eventually

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("remote")]
GPU = "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])"
COUNT = """
import pathlib, time
for number in range(300):
    print(number, flush=True)
    if number in (100, 200):
        while not pathlib.Path({go!r} + str(number)).exists(): time.sleep(0.01)
"""


@pytest.fixture
def behind_login(remote: Remote) -> dict[str, Any]:
    """The settings of the work node behind a command that runs on the login node."""
    config = str(remote.hops.ssh_config)
    return {"route": ["login"], "via": [f"ssh -F {config} -o ProxyJump=none work"]}


def ssh_processes(settings: dict[str, Any]) -> list[psutil.Process]:
    """Those that the login node runs for the command."""
    words = [*shlex.split(settings["via"][0]), "/bin/sh"]
    return [one for one in psutil.process_iter(["cmdline"]) if one.info["cmdline"] == words]


def test_a_kernel_behind_a_command_takes_a_gpu_and_loses_nothing_in_drops(
    remote: Remote, behind_login: dict[str, Any], tmp_path: Path
) -> None:
    remote.write("behind", provisioner=True, gpus=1, **behind_login)
    with started(remote, "behind") as (_, client):
        assert run(client, GPU).text.strip() in remote.free

        def drop() -> None:
            before = ssh_processes(behind_login)
            for process in before:
                with contextlib.suppress(psutil.NoSuchProcess):  # a short command's, which has ended
                    process.kill()
            (tmp_path / "go100").touch()
            eventually(lambda: set(ssh_processes(behind_login)) - set(before), "another ssh")
            remote.hops.login.drop()
            (tmp_path / "go200").touch()

        with ThreadPoolExecutor(1) as thread:
            dropping = thread.submit(drop)
            try:
                text = run(client, COUNT.format(go=str(tmp_path / "go"))).text
            finally:
                dropping.result()
        assert text.split() == [str(number) for number in range(300)]


def test_two_routes_to_one_node_show_its_kernels_and_gpus_once(
    remote: Remote, behind_login: dict[str, Any]
) -> None:
    behind = remote.write("behind", provisioner=True, **behind_login)
    direct = remote.write("cpu", provisioner=True)
    specs = [one.for_hub for one in (behind, direct)]
    with started(remote, "behind") as (_, client):
        run(client, "1")
        for order in (specs, specs[::-1]):
            (kernel,) = remote.ask("ps", specs=order)
            assert kernel["state"] == "idle"
            gpus = remote.ask("gpus", specs=order)
            assert sorted(gpu["uuid"] for gpu in gpus) == sorted([remote.busy, *remote.free])


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the agent needs Linux")
def test_a_gpu_of_this_machine_is_taken_and_the_notebook_returns_to_its_kernel(
    remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JPY_SESSION_NAME", "/home/alice/here.ipynb")
    variables = [f"{name}={value}" for name, value in remote.hops.work.environment.items() if name != "HOME"]
    way = {"route": ["localhost"], "via": ["env " + " ".join(variables)]}
    spec = remote.write("here-argv", gpus=1, **way)
    specs = [spec.for_hub]
    with launched(remote, "here-argv", file_name="kernel-here.json") as launcher:
        client = launcher.client()
        gpu = run(client, "mine = 42; " + GPU).text.strip()
        assert gpu in remote.free
        (kernel,) = remote.ask("kernels")
        launcher.dispose()
        launcher.end()
        eventually(lambda: not remote.ask("kernels"), "nobody is attached")
        (row,) = remote.ask("ps", specs=specs)
        assert (row["id"], row["state"]) == (kernel["id"], "detached")
    with launched(remote, "here-argv", file_name="kernel-here-again.json") as launcher:
        terminated = "import os, subprocess; subprocess.run(['kill', str(os.getpid())], check=True)\n"
        ran = run(launcher.client(), f"{terminated}{GPU}; print('still', mine)")
        assert f"{gpu}\nstill 42\n" in ran.text and ran.reply["status"] == "ok"
        eventually(
            lambda: [
                one
                for one in remote.ask("logs", kernel=kernel["id"], specs=specs)
                if one["event"] == "sigterm"
            ],
            "the log tells the SIGTERM, which the kernel survived",
        )
        assert remote.kernels_on_node() == [kernel["id"]], "no other kernel was started"
        remote.ask("stop", kernel=kernel["id"], specs=specs)
        eventually(lambda: not remote.kernels_on_node(), "the kernel has ended")
