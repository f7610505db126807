"""By which route a job's node is reached: connections that fail as a test says; the login node is a real sh."""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path
from typing import Any

import pytest
from login_nodes import AgentConnection, LoginNode
from played_agent import World
from runtimes import RUNTIME
from waiting import DEADLINE

from jupyter_gpu_kernel.errors import AuthError, ConnectError, GpuKernelError, HostKeyError, UnknownHost
from jupyter_gpu_kernel.hub.jobs import job_nodes
from jupyter_gpu_kernel.hub.jobs.job_nodes import JobNodes
from jupyter_gpu_kernel.hub.kernel_settings import KernelSettings
from jupyter_gpu_kernel.hub.node.nodes import Nodes
from jupyter_gpu_kernel.hub.node.shared_connection import RouteSettings
from jupyter_gpu_kernel.hub.slurm.dialect import JobState
from jupyter_gpu_kernel.hub.slurm.scheduler import Schedulers
from jupyter_gpu_kernel.hub.ssh import Attempt

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the scripts run on the login node's sh")
SETTINGS = KernelSettings(("login",), slurm=True, python="/usr/bin/python3")
JOB = JobState("7", "RUNNING", node="gpu1")


class Cluster(LoginNode):
    """A login node; connections to the job's node fail with `by_ssh`, and steps of the job with `by_srun`."""

    def __init__(self, folder: Path, by_ssh: GpuKernelError) -> None:
        super().__init__(folder)
        self.slurm("", "")
        self.by_ssh = by_ssh
        self.tried: list[str] = []

    def __call__(self, route: RouteSettings, attempt: Attempt) -> LoginNode:
        if route.via:
            self.tried.append("srun")
            raise ConnectError("srun was refused", hop="login")
        if route.route[-1].endswith("gpu1"):
            self.tried.append("ssh")
            raise self.by_ssh
        return super().__call__(route, attempt)


def reach(cluster: Cluster, **settings: Any) -> str:
    """Try to reach the job's node, until it fails or all ways have failed; return what was told last."""

    async def run() -> str:
        log = logging.getLogger("test")
        nodes = Nodes(RUNTIME, cluster, log)  # type: ignore[arg-type]
        schedulers, failed = Schedulers(RUNTIME, nodes, log), asyncio.get_running_loop().create_future()
        given = SETTINGS.replace(**settings)

        def tell(text: str) -> None:
            if "cannot be reached" in text and not failed.done():
                failed.set_result(text)

        reaching = asyncio.ensure_future(JobNodes(nodes, schedulers, log).reach(given, JOB, tell))
        try:
            await asyncio.wait([reaching, failed], timeout=DEADLINE, return_when=asyncio.FIRST_COMPLETED)
            return str(reaching.result() if reaching.done() else failed.result())
        finally:
            reaching.cancel()
            schedulers.close()
            await nodes.hang_up(unused_only=False)

    return asyncio.run(run())


def test_a_changed_host_key_of_a_jobs_node_is_final(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, HostKeyError("its host key has changed", hop="gpu1"))
    with pytest.raises(HostKeyError, match="has changed"):
        reach(cluster)
    assert cluster.tried == ["ssh"]


@pytest.mark.parametrize("error", [UnknownHost("not known", hop="gpu1"), AuthError("no job", hop="gpu1")])
def test_another_route_is_tried_where_ssh_to_nodes_is_not_set_up(
    tmp_path: Path, error: GpuKernelError
) -> None:
    cluster = Cluster(tmp_path, error)
    reported = reach(cluster)
    assert cluster.tried == ["ssh", "srun"]
    assert reported == f"it cannot be reached yet: by ssh: {error.cause}; by srun: srun was refused"


@pytest.mark.parametrize("way", ["ssh", "srun"])
def test_only_the_route_of_the_settings_is_tried(tmp_path: Path, way: str) -> None:
    cluster = Cluster(tmp_path, AuthError("no job", hop="gpu1"))
    assert f"by {way}: " in reach(cluster, way=way)
    assert cluster.tried == [way]


class Node(World):
    """A node as one way leads to it. The job's process is seen at the attempt of this number."""

    def __init__(self, seen_at: int) -> None:
        super().__init__()
        self.asked, self._seen_at = 0, seen_at

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        self.asked += 1
        if self.asked < self._seen_at:
            return {"error": {"code": "job", "text": "its process does not run here"}}
        return {"job": {"id": "7"}}


class Reachable(Cluster):
    """Both ways lead to the job's node."""

    def __init__(self, folder: Path, **seen_at: int) -> None:
        super().__init__(folder, ConnectError("never", hop="gpu1"))
        self.nodes = {way: Node(at) for way, at in seen_at.items()}
        self.connections: dict[str, AgentConnection] = {}

    def __call__(self, route: RouteSettings, attempt: Attempt) -> LoginNode:
        way = "srun" if route.via else "ssh" if route.route[-1].endswith("gpu1") else ""
        if not way:
            return super().__call__(route, attempt)
        self.connections[way] = AgentConnection(self.folder, self.nodes[way])
        return self.connections[way]


@pytest.mark.parametrize(("by_ssh", "way"), [(2, "ssh"), (99, "srun")], ids=["started late", "own /tmp"])
def test_a_step_is_taken_only_where_ssh_does_not_see_the_jobs_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_ssh: int, way: str
) -> None:
    """It may have been started when the step looks for it. The way that is not taken is closed."""
    monkeypatch.setattr(job_nodes, "_OTHERS_EVERY", 1)
    cluster = Reachable(tmp_path, ssh=by_ssh, srun=1)

    async def run() -> tuple[str, list[str]]:
        log = logging.getLogger("test")
        nodes = Nodes(RUNTIME, cluster, log)  # type: ignore[arg-type]
        schedulers = Schedulers(RUNTIME, nodes, log)
        jobs = JobNodes(nodes, schedulers, log)
        try:
            reaching = jobs.reach(SETTINGS, JOB, lambda text: None)
            await asyncio.wait_for(reaching, DEADLINE)
            left = [one for one, connection in cluster.connections.items() if not connection.closed]
            return jobs.route_of("7", "login"), left
        finally:
            schedulers.close()
            await nodes.hang_up(unused_only=False)

    try:
        assert asyncio.run(run()) == (way, [way])
        assert {one: node.asked for one, node in cluster.nodes.items()} == {"ssh": 2, "srun": 1}
    finally:
        for node in cluster.nodes.values():
            node.close()
