"""Tasks that nobody waits for, attempts whose result nobody wants any more, and what the log has of their errors."""

from __future__ import annotations

import asyncio
import gc
import logging
from pathlib import Path
from typing import Any

import pytest
from login_nodes import LoginNode
from runtimes import RUNTIME
from waiting import DEADLINE

from jupyter_gpu_kernel.errors import ConnectError, HostKeyError
from jupyter_gpu_kernel.hub.background import BackgroundTasks, DiskThread
from jupyter_gpu_kernel.hub.jobs.job_files import JobFiles
from jupyter_gpu_kernel.hub.jobs.job_nodes import JobNodes, Reached
from jupyter_gpu_kernel.hub.jobs.job_starter import JobStarter
from jupyter_gpu_kernel.hub.jobs.job_table import JobTable
from jupyter_gpu_kernel.hub.kernel.core.life import Phase
from jupyter_gpu_kernel.hub.kernel.kernel_state import KernelState
from jupyter_gpu_kernel.hub.kernel_settings import KernelSettings
from jupyter_gpu_kernel.hub.node.node_link import NoLink
from jupyter_gpu_kernel.hub.node.nodes import Nodes
from jupyter_gpu_kernel.hub.slurm.dialect import JobState
from jupyter_gpu_kernel.hub.slurm.scheduler import Schedulers

SETTINGS = KernelSettings(("login",), slurm=True, python="/usr/bin/python3", way="ssh")
JOB = JobState("7", "RUNNING", node="gpu1", name="jgk-k1")


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was logged as an error, once all tasks have been collected."""
    gc.collect()
    return [record.message for record in caplog.records if record.levelno >= logging.ERROR]


async def failing(error: Exception) -> None:
    raise error


@pytest.mark.parametrize(
    ("error", "logged"),
    [
        (ConnectError("the connection was lost", hop="login"), []),
        (ValueError("a bug"), ["a task in the background failed"]),
    ],
)
def test_the_error_of_a_task_is_logged_once(
    caplog: pytest.LogCaptureFixture, error: Exception, logged: list[str]
) -> None:
    async def run() -> None:
        tasks = BackgroundTasks()
        tasks.spawn(failing(error))
        while tasks:
            await asyncio.sleep(0)

    asyncio.run(run())
    assert errors(caplog) == logged
    assert [record.message for record in caplog.records] == logged or ["login: the connection was lost"]


class Kernel(KernelState):
    """A kernel that waits for its job."""

    def report(self, event: object) -> None:
        """Nobody sees why it waits."""


class RefusedNodes(JobNodes):
    """The nodes of jobs: the refusal of one comes at the moment when the attempt to reach the node is given up."""

    async def reach(self, *_: Any) -> Reached:
        try:
            return await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            raise HostKeyError("its host key has changed", hop="gpu1") from None


def test_a_users_cancel_while_the_jobs_node_refuses_is_no_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kernel = Kernel("k1", SETTINGS, NoLink("login"))

    async def run() -> None:
        log, login = logging.getLogger("test"), LoginNode(tmp_path)
        nodes = Nodes(RUNTIME, login, log)  # type: ignore[arg-type]
        schedulers = Schedulers(RUNTIME, nodes, log)
        job_nodes = RefusedNodes(nodes, schedulers, log)
        files = JobFiles(tmp_path / "jobs", DiskThread())
        table = JobTable(RUNTIME, schedulers, files, job_nodes, log)
        starter = JobStarter(RUNTIME, nodes, table, schedulers.of(SETTINGS), job_nodes, log)
        job = table.get(JOB, SETTINGS, "login")
        reaching = asyncio.ensure_future(starter._reach(kernel, job))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        kernel.life.set_phase(Phase.SHUT_DOWN)
        kernel.wake()
        assert await asyncio.wait_for(reaching, DEADLINE) is None

    asyncio.run(run())
    assert errors(caplog) == []
