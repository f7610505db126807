"""What is told of jobs whose nodes cannot be asked: a login node with programs in place of Slurm's."""

from __future__ import annotations

import asyncio
import logging
import sys
from multiprocessing import Pipe
from pathlib import Path

import pytest
from login_nodes import LoginNode
from runtimes import RUNTIME

from jupyter_gpu_kernel.errors import ConnectError
from jupyter_gpu_kernel.hub.background import DiskThread
from jupyter_gpu_kernel.hub.client_connection import ClientConnection
from jupyter_gpu_kernel.hub.jobs.job_files import JobFile, JobFiles
from jupyter_gpu_kernel.hub.jobs.job_kernels import JobKernels
from jupyter_gpu_kernel.hub.kernel.kernel_state import KernelState
from jupyter_gpu_kernel.hub.kernel_settings import KernelSettings
from jupyter_gpu_kernel.hub.node.node_link import NoLink
from jupyter_gpu_kernel.hub.node.nodes import NodeRequest, Nodes
from jupyter_gpu_kernel.hub.node.shared_connection import RouteSettings
from jupyter_gpu_kernel.hub.rpc import Call
from jupyter_gpu_kernel.hub.slurm.dialect import JobState
from jupyter_gpu_kernel.hub.slurm.scheduler import Schedulers
from jupyter_gpu_kernel.hub.ssh import Attempt

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the scripts run on the login node's sh")
SETTINGS = KernelSettings(("login",), slurm=True, python="/usr/bin/python3")


class Cluster(LoginNode):
    """A login node; the nodes of jobs cannot be reached. Slurm lists job 7 as `listed`, and shows it in this state."""

    def __init__(self, folder: Path, state: str, listed: str = "RUNNING") -> None:
        super().__init__(folder)
        self.slurm("", f"echo '+7|{listed}|None|1|1|gpu|gpu1|gpu1|jgk-k1'")
        self.program("scancel", "")
        self.program("scontrol", f'echo "JobId=7 JobName=jgk-k1 UserId=ada($(id -u)) JobState={state}"')

    def __call__(self, route: RouteSettings, attempt: Attempt) -> LoginNode:
        if route.route[-1] == "gpu1":
            raise ConnectError("the connection was closed", hop="gpu1")
        return super().__call__(route, attempt)


class Started(KernelState):
    """A kernel that was started in its job."""

    not_started = must_be_found = False


@pytest.mark.parametrize(("state", "errors"), [("RUNNING", ["gpu1"]), ("TIMEOUT", [])])
def test_a_job_that_has_just_ended_is_no_error(tmp_path: Path, state: str, errors: list[str]) -> None:
    async def run() -> list[str]:
        log = logging.getLogger("test")
        nodes = Nodes(RUNTIME, Cluster(tmp_path, state), log)  # type: ignore[arg-type]
        schedulers = Schedulers(RUNTIME, nodes, log)
        records = JobFiles(tmp_path / "jobs", DiskThread())
        kernels = JobKernels(RUNTIME, nodes, schedulers, records, log)
        of_node = SETTINGS.replace(route=("gpu1",), slurm=False, login_route=("login",))
        job = kernels._table.get(JobState("7", "RUNNING", node="gpu1", name="jgk-k1"), SETTINGS, "login")
        job.kernels.append(Started("k1", of_node, NoLink("gpu1")))  # type: ignore[arg-type]
        specs = [{"name": "a100", "settings": SETTINGS.to_json()}]
        call = Call(ClientConnection(Pipe()[0]), {"id": 1, "op": "ps", "specs": specs})
        try:
            replies = await kernels.ask_each(call, NodeRequest("list"))
            return [one.node.name for one in replies if one.error is not None]
        finally:
            schedulers.close()
            await nodes.hang_up(unused_only=False)

    assert asyncio.run(run()) == errors


@pytest.mark.parametrize(
    ("state", "others", "share", "options", "cancelled"),
    [
        ("RUNNING", [], True, {"running": False}, False),
        ("RUNNING", [], True, {"running": True}, True),
        ("RUNNING", ["k2"], True, {"running": True}, False),
        ("RUNNING", ["restarted"], False, {"running": True}, True),
        ("RUNNING", ["k2"], True, {"running": True, "kill": True}, True),
        ("PENDING", [], True, {"running": False}, True),
        ("PENDING", ["k2"], True, {"running": False}, False),
        ("PENDING", ["k2"], True, {"running": True, "kill": True}, False),
    ],
)
def test_a_job_that_other_kernels_need_is_not_cancelled(
    tmp_path: Path, state: str, others: list[str], share: bool, options: dict[str, bool], cancelled: bool
) -> None:
    async def run() -> bool:
        log = logging.getLogger("test")
        cluster = Cluster(tmp_path, state, listed=state)
        nodes = Nodes(RUNTIME, cluster, log)  # type: ignore[arg-type]
        schedulers = Schedulers(RUNTIME, nodes, log)
        files = JobFiles(tmp_path / "jobs", DiskThread())
        kernels = JobKernels(RUNTIME, nodes, schedulers, files, log)
        await files.loaded()
        job = kernels._table.get(JobState("7", state, name="jgk-k1"), SETTINGS, "login")
        for one in ("k1", *others):
            files.save(JobFile(one, "7", "a100", login="login"))
        if state == "PENDING":
            waiting = (KernelState(one, SETTINGS, NoLink("login")) for one in others)
            job.kernels += waiting  # type: ignore[arg-type]
        specs = [{"name": "a100", "settings": SETTINGS.replace(share_job=share).to_json()}]
        call = Call(ClientConnection(Pipe()[0]), {"id": 1, "op": "stop", "specs": specs})
        try:
            done = await kernels.cancel("k1", call, **options)
            assert done is bool(cluster.calls("scancel"))
            return done
        finally:
            schedulers.close()
            await nodes.hang_up(unused_only=False)

    assert asyncio.run(run()) is cancelled
