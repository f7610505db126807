"""What becomes of jobs when kernels leave them: a table over a login node with programs in place of Slurm's."""

from __future__ import annotations

import asyncio
import getpass
import logging
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from login_nodes import LoginNode
from runtimes import RUNTIME
from waiting import DEADLINE

from jupyter_gpu_kernel.hub.background import DiskThread
from jupyter_gpu_kernel.hub.jobs import job_table
from jupyter_gpu_kernel.hub.jobs.job_files import JobFile, JobFiles
from jupyter_gpu_kernel.hub.jobs.job_nodes import JobNodes
from jupyter_gpu_kernel.hub.jobs.job_table import JobTable
from jupyter_gpu_kernel.hub.kernel.core.life import Phase
from jupyter_gpu_kernel.hub.kernel.kernel_state import KernelState
from jupyter_gpu_kernel.hub.kernel_settings import KernelSettings
from jupyter_gpu_kernel.hub.node.node_link import NoLink
from jupyter_gpu_kernel.hub.node.nodes import Nodes
from jupyter_gpu_kernel.hub.slurm import job_queue
from jupyter_gpu_kernel.hub.slurm.scheduler import Schedulers

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the scripts run on the login node's sh")
SETTINGS = KernelSettings(("login",), name="a100", slurm=True, notebook="/home/ada/a.ipynb")


class Cluster(LoginNode):
    """`jobs`: id → name and state, as squeue shows them."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.slurm("", "cat queue; exit $(cat away)")
        self.program("scancel", "exit $(cat away)")
        self.program("scontrol", 'echo "JobId=7 JobName=jgk-k1 UserId=ada($(id -u)) JobState=RUNNING"')
        self.away(False)

    def away(self, away: bool) -> None:
        """Whether Slurm's controller does not answer."""
        (self.folder / "away").write_text("1" if away else "0")

    def lists(self, **jobs: str) -> None:
        """Let squeue show these jobs: j7="RUNNING 0f3e"."""
        rows = [(job[1:], *text.split()) for job, text in jobs.items()]
        lines = [f"+{job}|{state}|None|1|1|gpu|gpu1|gpu1|jgk-{kernel}\n" for job, state, kernel in rows]
        (self.folder / "queue").write_text("".join(lines))

    def cancelled(self) -> list[str]:
        """What scancel was asked to cancel."""
        return [line.split()[-1] for line in self.calls("scancel")]


class Table:
    """The jobs of one hub. `leave` what is done with a kernel, `settled` when nothing more happens."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        log = logging.getLogger("test")
        self.nodes = Nodes(RUNTIME, cluster, log)  # type: ignore[arg-type]
        self.schedulers = Schedulers(RUNTIME, self.nodes, log)
        self.files = JobFiles(folder / "records", DiskThread())
        nodes = JobNodes(self.nodes, self.schedulers, log)
        self.jobs = JobTable(RUNTIME, self.schedulers, self.files, nodes, log)

    def kernel(self, kernel_id: str, **settings: Any) -> Any:
        """A kernel of the notebook, which has not been started."""
        return KernelState(kernel_id, SETTINGS.replace(**settings), NoLink("login"))

    def submitted(self, job_id: str, kernel: Any) -> Any:
        job = self.jobs.submitted(job_id, kernel, "login")
        self.jobs.enter(job, kernel)
        return job

    def shut_down(self, kernel: Any) -> None:
        kernel.life.set_phase(Phase.SHUT_DOWN)

    async def settled(self) -> None:
        async def wait() -> None:
            while self.jobs.in_use:
                await asyncio.sleep(0.01)

        await asyncio.wait_for(wait(), DEADLINE)


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


@pytest.fixture
def with_table(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Callable[[Table], Coroutine[Any, Any, None]]], None]:
    """Run a coroutine function with a table that does not wait long."""
    for name in ("_END_WITHIN", "_ASK_AFTER", "_RETRY"):
        monkeypatch.setattr(job_table, name, 0.01)
    monkeypatch.setattr(job_table, "_ATTEMPTS", 3)
    monkeypatch.setattr(job_queue, "INTERVAL", 0.0)

    async def run(test: Callable[[Table], Coroutine[Any, Any, None]]) -> None:
        table = Table(cluster, tmp_path)
        await table.files.loaded()
        try:
            await test(table)
        finally:
            table.schedulers.close()
            await table.nodes.hang_up(unused_only=False)

    return lambda test: asyncio.run(run(test))


def test_a_job_that_waits_is_kept_for_its_notebook(cluster: Cluster, with_table: Any) -> None:
    async def test(table: Table) -> None:
        cluster.lists(j7="PENDING k1")
        job = table.submitted("7", table.kernel("k1"))
        table.jobs.leave(job, job.kernels[0], started=False)
        timer = job.kept
        assert timer is not None and table.jobs.in_use
        returned = table.kernel("k2")
        assert await table.jobs.find(returned, "login") is job
        table.jobs.enter(job, returned)
        assert job.kept is None and timer.cancelled()
        table.shut_down(returned)
        table.jobs.leave(job, returned, started=False)
        assert await table.jobs.find(table.kernel("k3"), "login") is None, "it is being cancelled"
        await table.settled()
        assert cluster.cancelled() == ["7"]
        assert table.jobs.is_over("7", "login")

    with_table(test)


def test_a_job_is_cancelled_when_it_was_kept_long_enough(cluster: Cluster, with_table: Any) -> None:
    async def test(table: Table) -> None:
        for job_id, seconds in (("7", 0), ("8", 0.01)):
            kernel = table.kernel(f"k{job_id}", keep_job=seconds)
            table.jobs.leave(table.submitted(job_id, kernel), kernel, started=False)
        await table.settled()
        assert sorted(cluster.cancelled()) == ["7", "8"]

    with_table(test)


def test_a_job_that_cannot_be_cancelled_stays_known(cluster: Cluster, with_table: Any) -> None:
    async def test(table: Table) -> None:
        cluster.lists(j7="PENDING k1")
        kernel = table.kernel("k1", keep_job=0)
        job = table.submitted("7", kernel)
        cluster.away(True)
        table.jobs.leave(job, kernel, started=False)
        await table.settled()
        assert len(cluster.cancelled()) == 3 and not table.jobs.is_over("7", "login")
        assert "scancel 7" in table.files.get("k1").events[-1]["text"]
        cluster.away(False)
        found = await table.jobs.find(table.kernel("k2"), "login")
        assert found is not None and found.id == "7"

    with_table(test)


def test_the_job_of_a_notebook_is_not_used_while_another_kernel_of_it_has_it(
    cluster: Cluster, with_table: Any
) -> None:
    async def test(table: Table) -> None:
        cluster.lists(j7="RUNNING k1")
        first = table.kernel("k1")
        job = table.submitted("7", first)
        assert await table.jobs.find(table.kernel("k2"), "login") is None
        table.jobs.leave(job, first, started=True)
        assert cluster.cancelled() == []
        found = await table.jobs.find(table.kernel("k3"), "login")
        assert found is not None and found.id == "7", "a kernel without a front end has it"
        table.jobs.enter(found, first)
        table.shut_down(first)
        table.jobs.leave(found, first, started=True)
        assert await table.jobs.find(table.kernel("k4"), "login") is None, "it ends with its kernel"
        await table.settled()
        assert cluster.cancelled() == ["7"]

    with_table(test)


def test_a_kernel_that_replaces_another_one_gets_its_job(cluster: Cluster, with_table: Any) -> None:
    """Also without a notebook that is a file, and while the other one's front end is still there."""

    async def test(table: Table) -> None:
        cluster.lists(j7="PENDING k1")
        old, new = (table.kernel(name, notebook="") for name in ("k1", "k2"))
        job = table.submitted("7", old)
        assert await table.jobs.find(new, "login") is None
        assert await table.jobs.find(new, "login", "k1") is job
        table.jobs.enter(job, new)
        table.jobs.leave(job, old, started=False)
        assert job.kernels == [new] and job.kept is None
        table.shut_down(new)
        table.jobs.leave(job, new, started=False)
        assert await table.jobs.find(table.kernel("k3"), "login", "k2") is None, "it is being cancelled"
        await table.settled()

    with_table(test)


def test_a_shared_job_is_not_cancelled_while_a_kernel_without_front_end_is_in_it(
    cluster: Cluster, with_table: Any
) -> None:
    async def test(table: Table) -> None:
        cluster.lists(j7="RUNNING k1")
        settings = {"share_job": True}
        first, second = (table.kernel(name, **settings) for name in ("k1", "k2"))
        job = table.submitted("7", first)
        assert await table.jobs.shared(second.settings, "login") is job
        table.jobs.enter(job, second)
        table.jobs.leave(job, first, started=True)  # its notebook was closed, and it runs on
        table.jobs.dismiss(job, second, "the cell that waited was interrupted")
        await table.settled()
        assert cluster.cancelled() == []
        assert "is cancelled" not in str(table.files.get("k2").events)
        again = await table.jobs.shared(second.settings, "login")
        assert again is not None
        table.jobs.enter(again, second)
        table.shut_down(second)
        table.jobs.leave(again, second, started=True)
        assert again.ending, "no other kernel is started in it"
        await table.settled()
        assert cluster.cancelled() == [], "it is not known whether others are in it"

    with_table(test)


def test_a_shared_job_is_not_cancelled_when_a_notebook_that_waits_for_it_is_closed(
    cluster: Cluster, with_table: Any
) -> None:
    async def test(table: Table) -> None:
        cluster.lists(j7="RUNNING k1")
        first, second = (table.kernel(name, share_job=True) for name in ("k1", "k2"))
        job = table.submitted("7", first)
        table.jobs.enter(job, second)
        table.jobs.leave(job, first, started=True)  # its notebook was closed, and it runs on
        table.shut_down(second)
        table.jobs.leave(job, second, started=False)
        await table.settled()
        assert cluster.cancelled() == []

    with_table(test)


def test_the_job_of_a_kernel_that_another_computer_has_is_not_cancelled(
    cluster: Cluster, with_table: Any
) -> None:
    async def test(table: Table) -> None:
        cluster.lists(j7="RUNNING k1")
        kernel = table.kernel("k1")
        job = table.submitted("7", kernel)
        kernel.life.taken("alice@desk has this kernel now")
        table.shut_down(kernel)
        table.jobs.leave(job, kernel, started=True)
        await table.settled()
        assert cluster.cancelled() == []

    with_table(test)


def test_an_end_that_slurm_contradicts_is_not_recorded(cluster: Cluster, with_table: Any) -> None:
    async def test(table: Table) -> None:
        job = table.submitted("7", table.kernel("k1"))
        job.state = job.state._replace(state="TIMEOUT")
        assert await table.jobs.end(job, 0.0) is None, "scontrol says that it runs"
        assert not table.jobs.is_over("7", "login")
        cluster.program("scontrol", "exit 1")
        end = await table.jobs.end(job, 0.0)
        assert end is not None and end.state == "TIMEOUT" and "time limit" in end.cause

    with_table(test)


def test_a_job_of_which_no_answer_came_is_cancelled_by_its_name(cluster: Cluster, with_table: Any) -> None:
    async def test(table: Table) -> None:
        table.jobs.withdraw("jgk-k1", table.schedulers.of(SETTINGS), "login")
        await table.settled()
        assert cluster.calls("scancel") == [f"-u {getpass.getuser()} -n jgk-k1"]

    with_table(test)


def test_an_id_that_slurm_gives_again_is_another_job(cluster: Cluster, with_table: Any) -> None:
    async def test(table: Table) -> None:
        table.files.save(JobFile("k1", "7", "a100", "/home/ada/a.ipynb", "login"))
        table.submitted("7", table.kernel("k2"))
        assert [record.kernel for record in table.files.of_job("7", "login")] == ["k2"]

    with_table(test)


def test_a_kernel_in_a_new_job_is_not_over(cluster: Cluster, with_table: Any) -> None:
    async def test(table: Table) -> None:
        table.files.save(JobFile("k1", "6", "a100", "/home/ada/a.ipynb", "login", over=True))
        table.submitted("7", table.kernel("k1"))
        assert table.files.get("k1").over is False and table.files.get("k1").job == "7"

    with_table(test)


def test_a_job_is_killed_without_the_time_that_sigterm_leaves(cluster: Cluster, with_table: Any) -> None:
    async def test(table: Table) -> None:
        await table.schedulers.of(SETTINGS).cancel("7", kill=True)
        user = f"-u {getpass.getuser()}"
        assert cluster.calls("scancel") == [f"{user} --batch --signal=KILL 7", f"{user} 7"]

    with_table(test)
