"""Kernels in jobs of a real Slurm, as front ends see them."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
from cells import run, started, wait_for
from jupyter_client.blocking.client import BlockingKernelClient
from launchers import Launcher, launched
from remote import Remote
from slurm import Slurm
from waiting import DEADLINE, eventually

pytestmark = pytest.mark.full

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


def test_a_cell_submits_a_job_waits_runs_and_is_reported_how_the_job_ended(
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
        [kernel] = [one for one in remote.ask("kernels") if one["name"] == "job"]
        assert kernel["state"] == "waiting", kernel
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
        by_ssh = row["job"]["way"] == "ssh"  # else srun, as when the node's sshd was slow
        assert by_ssh or row["job"]["way"] == "srun"
        assert (row["cells"], row["last_cell"]["status"]) == (0, "ok"), row

        asked = client.execute("import time; time.sleep(300)")
        wait_for(client, "execute_input")
        slurm.run("scancel", running)
        error = error_of(client, asked)
        assert f"job {running} was cancelled" in error["evalue"]
        assert "Restart the kernel to start a new job" in "".join(error["traceback"]), error
        story = remote.ask("logs", kernel=row["id"], specs=specs)
        assert any(f"job {running} was cancelled" in line["text"] for line in story), story
        [way] = [line["text"] for line in story if line["event"] == "connection"]
        last = rf", of \S*{slurm.nodes[1]}: SHA256:\S+$" if by_ssh else "; then by srun"
        assert re.search(rf"; host key of .*{last}", way), way
        assert ours(slurm) == [], "no job is submitted unasked"
        hours = remote.program("gpus", "job", "--history")
        assert "only nodes are asked on which a job with your kernel runs now" in hours.stderr, hours
        eventually(
            lambda: {one["node"] for one in remote.ask("nodes")} <= known,
            "no connection to the job's node is left",
        )


def test_cells_in_a_job_get_one_reply_whose_hub_is_killed(
    remote: Remote, slurm: Slurm, specs: list[dict[str, Any]]
) -> None:
    """The next hub finds the kernel; or the job has ended before."""
    with started(remote, "job") as (_, client):
        run(client, "import time; x = 5")
        [job] = ours(slurm)
        asked = client.execute("time.sleep(5); print(x)")
        wait_for(client, "execute_input")
        psutil.Process(remote.hub_pid()).kill()
        assert reply_to(client, asked)["status"] == "ok"
        asked = client.execute("time.sleep(600)")
        wait_for(client, "execute_input")
        psutil.Process(remote.hub_pid()).kill()
        slurm.run("scancel", job)
        error = reply_to(client, asked)
        assert error["ename"] == "DeadKernelError" and f"job {job}" in error["evalue"], error


def test_kernels_share_a_job_that_ends_with_the_last_of_them(
    remote: Remote, slurm: Slurm, specs: list[dict[str, Any]]
) -> None:
    remote.write("shared", provisioner=True, slurm=True, gpus=4, share_job=True, **slurm.settings)
    with started(remote, "shared") as (_, last):
        with started(remote, "shared") as (_, first):
            [job] = {run(client, JOB_ID).text.strip() for client in (first, last)}
            assert ours(slurm) == [job]
        assert run(last, "print(1)").text == "1\n"
        assert ours(slurm) == [job]
    eventually(lambda: ours(slurm) == [], "the job has ended")


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


def visit(launcher: Launcher, notebook: str = "Untitled-1.ipynb") -> BlockingKernelClient:
    """A notebook's client, with what VS Code runs before any cell."""
    client = launcher.client()
    run(client, f'__vsc_ipynb_file__ = "{notebook}"', store_history=False)
    return client


@pytest.mark.parametrize("notebook", ["Untitled-1.ipynb", "/home/me/saved.ipynb"])
def test_a_restart_in_vs_code_keeps_the_job(
    remote: Remote, slurm: Slurm, specs: list[dict[str, Any]], notebook: str
) -> None:
    """VS Code restarts by a new launcher, with a key of its own: while the job waits, and when it runs."""
    remote.write("argv", slurm=True, gpus=4, gpu_type="rtx3090", **slurm.settings)
    other = slurm.submit("exec sleep 300", "--gres=gpu:4", "--output=/dev/null")
    slurm.wait_for(other, "RUNNING")
    with contextlib.ExitStack() as launchers:
        old = launchers.enter_context(launched(remote, "argv"))
        visit(old, notebook).execute("x = 1")
        [job] = eventually(lambda: ours(slurm), "a job is submitted", every=0.1)
        for waits, overlaps in ((True, True), (False, True), (False, False)):
            new = launchers.enter_context(launched(remote, "argv"))
            if overlaps:
                visit(new, notebook)
            old.dispose()
            assert old.end() == (0, "")
            client = visit(new, notebook)
            if waits:
                slurm.run("scancel", other)
            assert run(client, f"{JOB_ID}; print('x' in globals()); x = 1").text.split() == [job, "False"]
            eventually(lambda: len(remote.ask("ps", specs=specs)) == 1, "the old kernel has ended")
            assert ours(slurm) == [job]
            old = new
        slurm.run("scancel", job)


def test_a_refused_job_ends_the_cell_with_the_words_of_sbatch(
    remote: Remote, slurm: Slurm, specs: list[dict[str, Any]]
) -> None:
    with started(remote, "refused") as (_, client):
        asked = client.execute("1")
        error = error_of(client, asked)
        assert "invalid partition specified: nowhere" in error["evalue"]
        assert "--partition" in error["evalue"]
        assert ours(slurm) == []


def test_a_job_that_waits_outlives_a_restart_and_a_shutdown_cancels_it(
    remote: Remote, slurm: Slurm, specs: list[dict[str, Any]]
) -> None:
    remote.write("argv", slurm=True, gpus=4, gpu_type="rtx3090", **slurm.settings)
    other = slurm.submit("exec sleep 300", "--gres=gpu:4", "--output=/dev/null")
    with started(remote, "argv") as (manager, client):
        client.execute("print('never')")
        wait_for(client, "update_display_data")
        [job] = ours(slurm)
        manager.restart_kernel()
        client.wait_for_ready(timeout=DEADLINE)
        client.execute("print('never')")
        assert f"job {job} is PENDING" in str(wait_for(client, "display_data")["content"])
        assert ours(slurm) == [job]
        [row] = eventually(lambda: remote.ask("kernels"), "the new launcher has the kernel", every=0.1)
        assert remote.ask("journal", kernel=row["id"])["cells"] == []
        assert row["link"] == "up", "the kernel needs no link yet"
        rows = remote.ask("ps", specs=specs)
        [row] = [one for one in rows if one.get("id") == row["id"]]
        assert (row["cells"], row["last_cell"], row["priority"]) == (1, None, 0)
        assert row["place"] == (row["job"]["place"] or None)
        client.shutdown()
        eventually(
            lambda: ours(slurm) == [], "the job is cancelled, although its front end is there", every=0.1
        )
    with started(remote, "job") as (_, client):
        asked = client.execute("print('never')")
        wait_for(client, "update_display_data")
        [kernel] = [one["id"] for one in remote.ask("kernels")]
        remote.ask("stop", kernel=kernel, specs=specs)
        assert kernel not in {one.get("id") for one in remote.ask("ps", specs=specs)}
        assert "stopped before it was started" in error_of(client, asked)["evalue"]
        eventually(lambda: ours(slurm) == [], "the job is cancelled", every=0.1)
    slurm.run("scancel", other)
