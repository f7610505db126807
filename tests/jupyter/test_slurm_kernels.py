"""Kernels in jobs of a real Slurm, as front ends see them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from cells import run, started, wait_for
from jupyter_client.blocking.client import BlockingKernelClient
from launchers import launched
from remote import Remote
from slurm import Slurm
from waiting import DEADLINE, eventually

JOB_ID = "import os; print(os.environ['SLURM_JOB_ID'])"


def ours(slurm: Slurm) -> list[str]:
    """The ids of jobs of kernels."""
    return [line.split("|")[0] for line in slurm.jobs() if "|jgk-" in line]


def error_of(client: BlockingKernelClient, asked: str) -> dict[str, Any]:
    """The error with which this cell ends."""
    while True:
        message = client.get_iopub_msg(timeout=DEADLINE)
        if message["parent_header"].get("msg_id") == asked and message["msg_type"] == "error":
            return dict(message["content"])


def reply_to(client: BlockingKernelClient, asked: str) -> dict[str, Any]:
    while True:
        message = client.get_shell_msg(timeout=DEADLINE)
        if message["parent_header"].get("msg_id") == asked:
            return dict(message["content"])


@pytest.fixture
def specs(remote: Remote, slurm: Slurm) -> Iterator[list[dict[str, Any]]]:
    remote.write("job", provisioner=True, slurm=True, gpus=4, gpu_type="rtx3090", **slurm.settings)
    remote.write("refused", provisioner=True, slurm=True, partition="nowhere", **slurm.settings)
    yield [{"name": "job", "settings": {**slurm.settings, "slurm": True, "gpus": 4}}]
    slurm.no_jobs()


def test_a_cell_submits_a_job_waits_runs_and_is_told_how_the_job_ended(
    remote: Remote, slurm: Slurm, specs: list[dict[str, Any]]
) -> None:
    other = slurm.submit("exec sleep 300", "--gres=gpu:4", "--output=/dev/null")
    slurm.wait_for(other, "RUNNING")
    with started(remote, "job") as (manager, client):
        assert remote.program("ps").returncode == 0
        known = {one["node"] for one in remote.ask("nodes")}  # those of all kernelspecs
        start_up = client.execute("x = 5", store_history=False)
        assert reply_to(client, start_up)["status"] == "ok"
        assert ours(slurm) == [], "nothing is submitted for code of front ends"

        asked = client.execute("print('never')")
        shown = wait_for(client, "update_display_data")["content"]["data"]["text/plain"]
        [waiting] = ours(slurm)
        assert f"job {waiting} is PENDING" in shown
        [kernel] = [one["id"] for one in remote.ask("kernels") if one["name"] == "job"]
        late = remote.program("ps", "--wait", kernel, "--timeout", "0.1")
        assert late.returncode == 124 and "still waiting" in late.stdout, late
        manager.interrupt_kernel()
        assert reply_to(client, asked)["ename"] == "KeyboardInterrupt"
        eventually(lambda: ours(slurm) == [], "the job is cancelled")

        slurm.run("scancel", other)
        slurm.wait_for(other, "CANCELLED")
        ran = run(client, f"{JOB_ID}; print(x)")
        [running] = ours(slurm)
        assert ran.text.split() == [running, "5"]
        [row] = remote.ask("ps", specs=specs)
        assert (row["state"], row["job"]["id"], row["job"]["state"]) == ("idle", running, "RUNNING")
        assert row["job"]["node"] == slurm.nodes[1] and row["job"]["end_time"] > time.time()
        done = remote.program("ps", "--wait", row["id"])
        assert done.returncode == 0 and done.stdout.endswith(": ok\n"), done

        asked = client.execute("import time; time.sleep(300)")
        wait_for(client, "execute_input")
        slurm.run("scancel", running)
        assert f"job {running} was cancelled" in error_of(client, asked)["evalue"]
        story = remote.ask("logs", kernel=row["id"], specs=specs)
        assert any(f"job {running} was cancelled" in line["text"] for line in story), story
        assert ours(slurm) == [], "no job is submitted unasked"
        eventually(
            lambda: {one["node"] for one in remote.ask("nodes")} <= known,
            "no connection to the job's node is left",
        )


def test_a_detached_kernel_in_a_job_is_attached_by_the_kernelspec_of_the_login_node(
    remote: Remote, slurm: Slurm, specs: list[dict[str, Any]]
) -> None:
    remote.write("argv", slurm=True, gpus=4, **slurm.settings)
    with launched(remote, "argv") as launcher:
        run(launcher.client(), "treasure = 42")
        [row] = remote.ask("ps", specs=specs)
        launcher.process.kill()
    eventually(lambda: not remote.ask("ps", specs=specs)[0]["attached"], "the kernel is detached")
    connection = {"transport": "tcp", "ip": "127.0.0.1", "key": "key", "signature_scheme": "hmac-sha256"}
    front = remote.ask("attach", kernel=row["id"], specs=specs, connection=connection)
    assert (front["id"], front["node"], front["link"]) == (row["id"], row["node"], "up")
    slurm.run("scancel", row["job"]["id"])


def test_a_refused_job_ends_the_cell_with_the_words_of_sbatch(
    remote: Remote, slurm: Slurm, specs: list[dict[str, Any]]
) -> None:
    with started(remote, "refused") as (_, client):
        asked = client.execute("1")
        error = error_of(client, asked)
        assert "invalid partition specified: nowhere" in error["evalue"]
        assert "--partition" in error["evalue"]
        assert ours(slurm) == []


def test_a_shutdown_cancels_the_job_that_waits(
    remote: Remote, slurm: Slurm, specs: list[dict[str, Any]]
) -> None:
    other = slurm.submit("exec sleep 300", "--gres=gpu:4", "--output=/dev/null")
    with started(remote, "job") as (_, client):
        client.execute("print('never')")
        wait_for(client, "update_display_data")
        assert len(ours(slurm)) == 1
        client.shutdown()
        eventually(
            lambda: ours(slurm) == [], "the job is cancelled, although its front end is there", every=0.1
        )
    slurm.run("scancel", other)
