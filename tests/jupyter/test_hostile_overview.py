"""What the panel gets while one of the nodes means harm."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hostile import Hostile, hostile
from remote import Remote
from servers import Server
from waiting import eventually

from jupyter_gpu_kernel.server.running.gpu_use import GpuHistory
from jupyter_gpu_kernel.server.running.overview import node_rows

pytestmark = pytest.mark.full

__all__ = ["hostile"]
OVERVIEW = "/jupyter-gpu-kernel/api/overview"
WAITER = {"user": "eve", "gpus": 1, "since": 1, "yours": False, "priority": None, "notebook": ""}


@pytest.fixture(scope="module")
def server(remote: Remote, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(remote, tmp_path_factory.mktemp("root")) as server:
        yield server


def test_what_only_the_hub_says_of_a_node_is_dropped(hostile: Hostile, server: Server) -> None:
    forged_gpu = {"slurm": {"partitions": 5}, "late": 0, "error": {"cause": "x"}, "hop": "work"}
    gpu = {"uuid": "u", "queue": [], **forged_gpu}
    forged = {"node": "work", "away_since": "never", "kernel_id": "x", "link": "up", "path": "/x"}
    kernel = {"id": "bare", "state": "idle", **forged}
    hostile.sends(gpus={"gpus": [gpu]}, list={"kernels": [kernel]})
    shown = eventually(lambda: _shown(server, "u"), "the hostile node has answered")
    (node,) = [one for one in shown["nodes"] if one["node"] == "hostile"]
    assert (node["cluster"], node["problem"]) == (None, None)
    (row,) = [one for one in shown["kernels"] if one["id"] == "bare"]
    known = {"gpus": [], "name": "", "hop": "hostile", "kernel_id": None, "link": None, "path": None}
    assert known.items() <= row.items() and row["away_since"] is None
    assert row["node"] == "hostile (work)", "it has not taken the name of the other node"


def _shown(server: Server, uuid: str) -> dict[str, Any] | None:
    """The overview, once this GPU is in it."""
    shown: dict[str, Any] = server.ask("GET", OVERVIEW)
    return shown if any(gpu["uuid"] == uuid for node in shown["nodes"] for gpu in node["gpus"]) else None


def test_long_queues_are_merged_in_time() -> None:
    """As long ones as a node may send: each row once."""
    queue = [{**WAITER, "id": str(place), "place": place} for place in range(1000)]
    rows = [{"hop": "n", "node": "n", "uuid": str(index), "queue": queue} for index in range(256)]
    (node,) = node_rows([], {"nodes": [], "gpus": rows, "ps": []}, [], GpuHistory())
    assert len(node["gpus"]) == 256 and [one["place"] for one in node["queue"]] == list(range(1000))


def test_a_colleague_on_the_gpu_of_my_kernel_is_shown_as_such() -> None:
    bob, mine = {"pid": 1, "user": "bob", "memory_mib": 12000}, {"pid": 2, "user": "al", "yours": True}
    row = {"node": "n", "uuid": "u", "queue": [], "processes": [{**bob, "yours": "x", "mine": True}, mine]}
    kernel = {"id": "k", "gpus": ["u"]}
    (node,) = node_rows([], {"nodes": [], "gpus": [row], "ps": []}, [kernel], GpuHistory())
    (gpu,) = node["gpus"]
    assert gpu["kernel"] == "k" and [one["mine"] for one in gpu["processes"]] == [False, True]
    assert bob.items() <= gpu["processes"][0].items()


TWO_NODES = [{"id": "k1", "hop": "work", "gpus": ["GPU-1"]}, {"id": "a", "hop": "evil", "gpus": ["GPU-1"]}]
JOB = [{"id": "k1", "hop": "alice@work", "gpus": ["GPU-1"], "job": {"id": "7"}}]
"""A kernel in a job, to whose machine another name leads: the hub knows the machine, and reports that the GPU is not
free."""


@pytest.mark.parametrize(
    ("kernels", "row", "owner"),
    [
        (TWO_NODES, {"lease": None}, "k1"),
        (TWO_NODES, {"lease": {"id": "k1"}}, "k1"),
        (TWO_NODES, {"lease": {"id": "a"}}, "a"),
        (TWO_NODES, {"lease": {"id": "b"}}, "k1"),
        (JOB, {"free": False, "reason": "your job 7 has it"}, "k1"),
        (JOB, {"free": True}, None),
        (JOB, {"free": False, "lease": {"id": "k2"}}, None),
    ],
)
def test_a_kernel_has_a_gpu_of_its_own_node_or_one_whose_node_says_so(
    kernels: list[dict[str, Any]], row: dict[str, Any], owner: str | None
) -> None:
    gpu = {"hop": "work", "node": "work", "uuid": "GPU-1", "queue": [], **row}
    (node,) = node_rows([], {"nodes": [], "gpus": [gpu], "ps": []}, kernels, GpuHistory())
    assert node["gpus"][0]["kernel"] == owner


def test_a_node_hides_no_gpu_of_the_node_of_a_job_by_naming_its_uuid() -> None:
    known = [{"node": "evil", "names": ["evil"], "connected": True, "state": "up"}]
    rows = [{"hop": hop, "node": hop, "uuid": "GPU-1", "queue": []} for hop in ("evil", "gpu7")]
    shown = node_rows([], {"nodes": known, "gpus": rows, "ps": []}, [], GpuHistory())
    assert [(node["node"], len(node["gpus"])) for node in shown] == [("evil", 1), ("gpu7", 1)]


def test_a_node_that_always_reports_other_gpus_takes_no_place_of_others() -> None:
    history = GpuHistory()
    for number in range(300):
        history.add(1.0, [{"hop": "evil", "index": 0, "uuid": f"GPU-{number}", "utilization": 5}])
    other = {"hop": "work", "index": 0, "uuid": "GPU-0", "memory_used_mib": 1, "utilization": 7}
    history.add(1.0, [other])
    assert history.of(other) == [[1, 1, 7]]
    assert history.of({"hop": "evil", "uuid": "GPU-255"}) and not history.of(
        {"hop": "evil", "uuid": "GPU-256"}
    )
