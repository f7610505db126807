"""What the panel gets while one of the nodes means harm."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest
from hostile import Hostile, hostile
from remote import Remote
from servers import Server
from waiting import eventually

from jupyter_gpu_kernel.server.running.gpu_history import GpuHistory
from jupyter_gpu_kernel.server.running.overview_rows import node_rows

pytestmark = pytest.mark.full

__all__ = ["hostile"]
OVERVIEW = "/jupyter-gpu-kernel/api/overview"
WAITER = {"user": "eve", "gpus": 1, "since": 1, "yours": False, "priority": None, "notebook": ""}


@pytest.fixture(scope="module")
def server(remote: Remote, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(remote, tmp_path_factory.mktemp("root")) as server:
        yield server


def test_what_only_the_hub_says_of_a_node_is_dropped(hostile: Hostile, server: Server) -> None:
    gpu = {
        "uuid": "u",
        "queue": [],
        "slurm": {"partitions": 5},
        "late": 0,
        "error": {"cause": "x"},
        "hop": "work",
    }
    kernel = {
        "id": "bare",
        "state": "idle",
        "node": "work",
        "away_since": "never",
        "kernel_id": "x",
        "link": "up",
        "path": "/x",
    }
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


def test_a_kernel_of_one_node_has_no_gpu_of_another_unless_that_says_so() -> None:
    def kernel(lease: str = "") -> str | None:
        gpu = {
            "hop": "work",
            "node": "n",
            "uuid": "GPU-1",
            "queue": [],
            "lease": {"id": lease} if lease else None,
        }
        held = [{"id": one, "hop": hop, "gpus": ["GPU-1"]} for one, hop in (("k1", "work"), ("a", "evil"))]
        (node,) = node_rows([], {"nodes": [], "gpus": [gpu], "ps": []}, held, GpuHistory())
        return cast("str | None", node["gpus"][0]["kernel"])

    assert (kernel(), kernel(lease="k1"), kernel(lease="a"), kernel(lease="b")) == ("k1", "k1", "a", "k1")


def test_a_kernel_in_a_job_has_the_gpu_of_its_machine_that_another_name_leads_to() -> None:
    """The hub knows the machine, and reports that the GPU is not free."""

    def kernel(**row: Any) -> str | None:
        gpu = {"hop": "gpu1", "node": "gpu1", "uuid": "GPU-1", "queue": [], **row}
        held = [{"id": "k1", "hop": "alice@gpu1", "gpus": ["GPU-1"], "job": {"id": "7"}}]
        (node,) = node_rows([], {"nodes": [], "gpus": [gpu], "ps": []}, held, GpuHistory())
        return cast("str | None", node["gpus"][0]["kernel"])

    assert kernel(free=False, reason="your job 7 has it") == "k1"
    assert kernel(free=True) is None
    assert kernel(free=False, lease={"id": "k2"}) is None


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
