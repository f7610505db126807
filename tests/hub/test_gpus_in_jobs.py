"""`gpus` of a machine that kernelspecs lead to directly and by Slurm: a job of the user's has GPUs of it."""

from __future__ import annotations

import sys
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import pytest
from login_nodes import AgentConnection, LoginNode
from played_agent import World
from practice_hosts import loop
from runtimes import RUNTIME
from streams import LoopThread, log

from jupyter_gpu_kernel.hub.client_connection import ClientConnection
from jupyter_gpu_kernel.hub.node.shared_connection import RouteSettings
from jupyter_gpu_kernel.hub.operations.commands import Operations
from jupyter_gpu_kernel.hub.rpc import Call
from jupyter_gpu_kernel.hub.ssh import Attempt

__all__ = ["loop"]

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the scripts run on the login node's sh")


class Machine(World):
    """A machine whose agent sees these GPUs, which nobody uses."""

    def __init__(self, name: str, *gpus: str) -> None:
        super().__init__()
        self.name = name
        rows = [{"uuid": uuid, "queue": [], "free": True, "reason": ""} for uuid in gpus]
        self._answers = {"gpus": {"gpus": rows}, "job": {"job": {"id": "7"}}}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        return {**self._answers[request["do"]], "root": self.name}


class Cluster(LoginNode):
    """A login node, and two machines. The user's job 7 runs on the first one, and has a GPU of it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.slurm("", "case \"$*\" in *%N*) echo '+7|RUNNING|None|1|1|gpu|gpu1|gpu1|jgk-k1' ;; esac")
        self.machines = [Machine("gpu1", "GPU-1", "GPU-2"), Machine("gpu2", "GPU-1", "GPU-2")]
        self.in_job = Machine("gpu1", "GPU-1")

    def __call__(self, route: RouteSettings, attempt: Attempt) -> LoginNode:
        name = route.route[-1].rpartition("@")[2]
        machine = next((one for one in self.machines if one.name == name), None)
        if machine is None:
            return super().__call__(route, attempt)
        machine = machine if len(route.route) == 1 else self.in_job
        connection = AgentConnection(self.folder, machine)
        connection.host_keys = [(machine.name, f"SHA256:{machine.name}")]
        return connection


def test_a_gpu_of_the_users_job_is_not_free_where_its_node_is_asked_directly(
    tmp_path: Path, loop: LoopThread
) -> None:
    """Another machine that reports a GPU of the same UUID has another one."""
    cluster, client = Cluster(tmp_path), ClientConnection(Pipe()[0])
    operations = loop.call(Operations, RUNTIME, cluster, log)
    specs = [
        {"name": name, "settings": {"route": [route], "slurm": route == "login", "way": way, "python": "/p"}}
        for name, route, way in (("a", "gpu1", ""), ("b", "gpu2", ""), ("c", "login", "ssh"))
    ]
    call = Call(client, {"id": 1, "op": "gpus", "specs": specs, "within": 10.0})
    try:
        rows = loop.run(operations.operation(call))
    finally:
        loop.run(operations.close())
        for machine in (*cluster.machines, cluster.in_job):
            machine.close()
    shown = {(row["hop"], row["uuid"]): (row["free"], row["reason"]) for row in rows if "uuid" in row}
    (of_job,) = {hop for hop, _ in shown} - {"gpu1", "gpu2"}
    assert shown == {
        (of_job, "GPU-1"): (False, "Slurm assigns the GPUs of this node"),
        **dict.fromkeys([("gpu1", "GPU-2"), ("gpu2", "GPU-1"), ("gpu2", "GPU-2")], (True, "")),
    }
