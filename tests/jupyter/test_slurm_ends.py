"""How jobs of kernels end on a real Slurm, and what front ends are told; nothing of ours outlives a job."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fronts import Cell, Front
from launchers import Launcher
from remote import Remote
from servers import Server
from slurm import Slurm
from waiting import eventually

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("remote")]
WHERE = "import os; print(os.environ['SLURM_JOB_ID'])"
BUSY = "print('begun in', __import__('os').environ['SLURM_JOB_ID'], flush=True); import time; time.sleep(600)"
HOOK = "import gpu_kernel; gpu_kernel.on_sigterm(lambda: print('checkpoint saved', flush=True))\n"


class Kernel:
    """A kernel whose kernelspec leads to the login node, and a front end of it. `job`: that of its last busy cell."""

    def __init__(self, remote: Remote, slurm: Slurm, name: str, **settings: Any) -> None:
        remote.write(name, **{**slurm.settings, "slurm": True, **settings})
        self.launcher = Launcher(remote, name)
        self.launcher.client()
        self.front = Front({**self.launcher.connection, "key": self.launcher.key.encode()})
        self.job = ""

    def begin(self, code: str = BUSY) -> str:
        """Run a cell that works for long; return the request."""
        request = self.front.client.execute(code)
        text = "begun in "
        for message in self.front.iopub(request):
            if text in (output := message["content"].get("text", "")):
                self.job = output.split(text)[1].split()[0]
                return request
        raise AssertionError("the cell ended before it had begun")

    def error_of(self, request: str) -> str:
        """The message of the error that the cell ends with."""
        cell: Cell = self.front.finish(request)
        assert cell.reply["status"] == "error", cell
        return str(cell.reply["evalue"])

    def close(self) -> None:
        with self.front:
            self.front.ask("control", "shutdown_request", restart=False)
            self.launcher.end()
        self.launcher.close()


def ids(slurm: Slurm) -> set[str]:
    """The jobs that there are."""
    return {line.split("|")[0] for line in slurm.jobs()}


def nothing_left(slurm: Slurm, job: str) -> None:
    """No process of the job is left; Slurm knows of its end before they are gone."""
    eventually(lambda: slurm.processes(job) == [], f"nothing outlives job {job}", every=0.1)


@pytest.fixture(scope="module")
def ending(remote: Remote, slurm: Slurm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Any]]:
    """Two kernels on the second node, with their busy cells, whose jobs end at the time limit and by preemption. Slurm
    looks every half minute which jobs must end, so all tests wait together.

    ssh to the second one's node is refused: a step of the job carries its messages."""
    config = tmp_path_factory.mktemp("ending") / "config"
    closed = "".join(f"Host {node}\n  Port 1\n" for node in slurm.nodes)
    config.write_text(closed + Path(slurm.settings["config"]).read_text())
    place = [f"--nodelist={slurm.nodes[1]}"]
    limited = Kernel(remote, slurm, "limited", gpus=0, time="30", sbatch=place)
    preempted = Kernel(
        remote, slurm, "preempted", gpus=4, partition="preempt", sbatch=place, config=str(config)
    )
    try:
        requests = [one.begin() for one in (limited, preempted)]
        slurm.end_in(limited.job, 1)
        taker = slurm.submit("exec sleep 300", *place, "--gres=gpu:4", "--output=/dev/null")
        yield [limited, requests[0], preempted, requests[1]]
        slurm.run("scancel", taker)
    finally:
        limited.close()
        preempted.close()


@pytest.mark.usefixtures("ending")
def test_in_a_jupyter_server_a_hook_runs_the_node_is_lost_and_only_the_next_cell_submits_another_job(
    remote: Remote, slurm: Slurm, tmp_path: Path
) -> None:
    node, before = slurm.nodes[0], ids(slurm)
    settings = {"slurm": True, "gpus": 2, "time": "30", "sbatch": [f"--nodelist={node}"]}
    remote.write("server", provisioner=True, **{**slurm.settings, **settings})
    with Server(remote, tmp_path) as server:
        kernel_id = server.open("a.ipynb", "server")
        page = server.page(kernel_id)
        assert not ids(slurm) - before
        asked = page.execute(HOOK + BUSY)
        page.until(asked, "stream")
        (job,) = ids(slurm) - before
        assert any("agent-" in line for line in slurm.processes(job))
        slurm.run("scancel", "--batch", "--signal=USR1", job)  # as Slurm sends it for --signal=B:USR1@300
        while "checkpoint saved" not in page.printed(asked):
            page.until(asked, "stream")
        slurm.lose(node)
        assert f"a node of it has failed: {node}" in page.until(asked, "error")["content"]["evalue"]
        nothing_left(slurm, job)
        assert not ids(slurm) - before - {job}
        other = page.run(WHERE).split()[-1]
        assert other != job
        server.ask("DELETE", f"/api/kernels/{kernel_id}")
    slurm.wait_for(other, "COMPLETED")
    eventually(lambda: not ids(slurm) - before, "the job ends with its kernel", every=0.1)


def test_jobs_end_at_their_limit_and_by_preemption(ending: list[Any], slurm: Slurm) -> None:
    limited, limited_request, preempted, preempted_request = ending
    assert "it has reached its time limit" in limited.error_of(limited_request)
    assert "(preemption)" in preempted.error_of(preempted_request)
    nothing_left(slurm, limited.job)
    nothing_left(slurm, preempted.job)
