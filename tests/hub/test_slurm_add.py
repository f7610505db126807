"""`add --slurm`, `check` and `gpus` on the login node of a real Slurm: no job and no agent is left there."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import pytest
from runtimes import RUNTIME
from slurm import Slurm

from jupyter_gpu_kernel.cli.show import slurm as slurm_tables
from jupyter_gpu_kernel.errors import GpuKernelError, SettingsError
from jupyter_gpu_kernel.hub.client_connection import ClientConnection
from jupyter_gpu_kernel.hub.connections.connect import Connections
from jupyter_gpu_kernel.hub.operations.commands import Operations
from jupyter_gpu_kernel.hub.rpc import Call
from jupyter_gpu_kernel.settings import parse

pytestmark = pytest.mark.full

Ask = Callable[..., Coroutine[Any, Any, Any]]


@pytest.fixture
def operations(tmp_path: Path) -> Callable[[Callable[[Ask], Coroutine[Any, Any, None]]], None]:
    """Run a coroutine function with `ask(op, **arguments)`, which calls an operation of a hub."""

    async def run(test: Callable[[Ask], Coroutine[Any, Any, None]]) -> None:
        hub = Operations(RUNTIME, Connections(tmp_path / "trusted").connect, logging.getLogger("test"))

        async def ask(op: str, **arguments: Any) -> Any:
            return await hub.operation(Call(ClientConnection(Pipe()[0]), {"id": 1, "op": op, **arguments}))

        try:
            await test(ask)
        finally:
            await hub.close()

    return lambda test: asyncio.run(run(test))


def settings(slurm: Slurm, **more: Any) -> dict[str, Any]:
    return {**slurm.settings, "slurm": True, "gpus": 1, **more}


def test_add_reads_the_partitions_and_chooses(slurm: Slurm, operations: Any) -> None:
    async def test(ask: Ask) -> None:
        probe = await ask("probe", settings=settings(slurm, gpu_type="3090"))
        found = probe["slurm"]
        assert found["chosen"] == {"partition": "gpu", "time": "4:00:00", "gpu_type": "rtx3090"}
        assert [one["name"] for one in found["partitions"]] == ["gpu", "preempt"]
        assert {one["type"]: one["total"] for one in found["partitions"][0]["gpus"]} == {
            "a100": 2,
            "rtx3090": 4,
        }
        assert "it would start at" in found["test"] and probe["python"]["path"].startswith("/")
        text = "\n".join(slurm_tables.probe_result(found, parse({**settings(slurm), **found["chosen"]})))
        assert "1 rtx3090, partition gpu, time limit 4:00:00" in text and "gpu (default)  1-00:00:00" in text

    before = slurm.jobs()
    operations(test)
    assert slurm.jobs() == before


@pytest.mark.parametrize(
    ("more", "cause", "remedy"),
    [
        ({"partition": "nosuch"}, "no partition nosuch", "gpu (the default), preempt"),
        ({"time": "30-0"}, "its time limit is 1-00:00:00", "--time"),
        ({"gpu_type": "h100"}, "no type of GPU h100", "a100, rtx3090"),
        ({"mem": "9000G"}, "Requested node configuration is not available", "--mem"),
        ({"sbatch": ["--nosuch=1"]}, "unrecognized option '--nosuch=1'", "--sbatch"),
    ],
)
def test_add_refuses_what_can_never_run(
    slurm: Slurm, operations: Any, more: Any, cause: str, remedy: str
) -> None:
    async def test(ask: Ask) -> None:
        with pytest.raises(SettingsError) as caught:
            await ask("probe", settings=settings(slurm, **more))
        assert cause in caught.value.cause and remedy in caught.value.remedy and caught.value.hop == "login"

    operations(test)


def test_add_warns_of_what_fails_on_the_login_node(slurm: Slurm, operations: Any) -> None:
    async def test(ask: Ask) -> None:
        bad = settings(slurm, cwd="/nonexist", setup=["exit 3"])
        notes = (await ask("probe", settings=bad))["slurm"]["notes"]
        assert ["exit status 3" in note for note in notes[-2:]] == [True, False]
        assert "/nonexist (--cwd) cannot be entered" in notes[-1]

    operations(test)


def test_check_ends_with_the_verdict_of_sbatch(slurm: Slurm, operations: Any) -> None:
    async def test(ask: Ask) -> None:
        rows = await ask("check", settings=settings(slurm, partition="gpu", time="1:00:00"), gpu=True)
        assert [row["step"] for row in rows][-6:] == ["python", "slurm", "partition", "sbatch", "way", "gpu"]
        assert all(row["ok"] for row in rows) and not rows[-1]["checked"]
        assert "of 2 a100" in rows[-4]["message"] and "it would start at" in rows[-3]["message"]
        assert rows[-2]["message"].startswith("kernels are reached by ssh, else by srun")
        rows = await ask("check", settings=settings(slurm, partition="gone"))
        assert (
            rows[-1]["step"] == "partition"
            and not rows[-1]["ok"]
            and "gpu (the default)" in rows[-1]["remedy"]
        )

    before = slurm.jobs()
    operations(test)
    assert slurm.jobs() == before


def test_gpus_shows_partitions_nodes_and_the_users_jobs(slurm: Slurm, operations: Any) -> None:
    runs = slurm.submit("exec sleep 300", "--gres=gpu:a100:2", "--time=5", "--output=/dev/null")
    waits = slurm.submit("exec sleep 300", "--gres=gpu:a100:2", "--time=5", "--output=/dev/null")
    slurm.wait_for(runs, "RUNNING")

    async def test(ask: Ask) -> None:
        [row] = await ask("gpus", specs=[{"name": "a100", "settings": settings(slurm)}])
        found = row["slurm"]
        nodes = {node["name"]: node["gpus"] for node in found["nodes"]}
        assert nodes[slurm.nodes[0]] == [{"type": "a100", "total": 2, "used": 2, "free": 0}]
        assert nodes[slurm.nodes[1]] == [{"type": "rtx3090", "total": 4, "used": 0, "free": 4}]
        jobs = {job["id"]: job for job in found["jobs"]}
        assert jobs[runs]["state"] == "RUNNING" and jobs[runs]["nodes"] == [slurm.nodes[0]]
        assert jobs[waits]["state"] == "PENDING"
        [again] = await ask("gpus", specs=[{"name": "a100", "settings": settings(slurm)}], patience=30)
        assert again == row  # Slurm is not asked again within 10 s
        text = slurm_tables.clusters([row])
        assert "YOUR JOB" in text and "2 a100" in text and "until " in text

    operations(test)


def test_errors_of_a_login_node_are_rows(operations: Any) -> None:
    async def test(ask: Ask) -> None:
        spec = {"name": "x", "settings": {"route": ["alice@127.0.0.1:1"], "slurm": True}}
        [row] = await ask("gpus", specs=[spec])
        assert isinstance(GpuKernelError.from_json(row["error"]), GpuKernelError) and row["node"]

    operations(test)
