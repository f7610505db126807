"""What `ps --wait` makes of the rows of `ps`."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_gpu_kernel.cli.running.wait import WaitedKernel
from jupyter_gpu_kernel.errors import AgentError, ConnectError
from jupyter_gpu_kernel.wire.texts import duration

CELL = {"msg_id": "a", "status": "ok", "execution_count": 7, "started": 100.0, "finished": 223.0, "error": ""}
ERROR = {"node": "gpu2", "error": ConnectError("no route", hop="gpu2").to_json()}


def row(state: str, **more: Any) -> dict[str, Any]:
    known = {"id": "k", "name": "lab", "hop": "gpu2", "state": state, "pid": 5}
    return {**known, "cells": 0, "last_cell": CELL, **more}


def after(*rows: dict[str, Any]) -> WaitedKernel:
    """The kernel after these answers."""
    kernel = WaitedKernel("k")
    for one in rows:
        kernel.take([one])
    return kernel


def test_a_kernel_is_done_when_two_answers_show_no_cell() -> None:
    assert not after(row("busy", cells=1), row("idle")).is_done
    assert not after(row("idle"), row("busy"), row("idle")).is_done
    assert not after(row("idle"), row("idle", last_cell={**CELL, "msg_id": "b"})).is_done, (
        "it ran between them"
    )
    assert not after(row("idle", cells=1), row("idle", cells=1)).is_done, "the next cell is on its way"
    done = after(row("waiting"), row("detached"), row("detached"))
    assert done.is_done and done.fault is None


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"last_cell": {**CELL, "status": "error", "error": "ValueError: x"}}, "failed: ValueError: x"),
        ({"last_cell": {**CELL, "status": "error", "error": ""}}, "failed: ?"),
        ({"last_cell": None}, "is unknown"),
    ],
)
def test_how_the_last_cell_ended(changes: dict[str, Any], fault: str) -> None:
    done = after(row("busy"), row("idle", **changes), row("idle", **changes))
    assert done.is_done and done.fault is not None
    assert done.fault.hop == "gpu2" and fault in done.fault.cause


def test_a_kernel_without_cells() -> None:
    none = after(*[row("idle", last_cell=None)] * 2)
    assert none.is_done and none.fault is None


def test_an_unreachable_node_is_waited_for_and_a_missing_kernel_is_looked_for() -> None:
    kernel = WaitedKernel("k")
    with pytest.raises(ConnectError, match="no route"):
        kernel.take([ERROR])
    with pytest.raises(AgentError, match="no node has a kernel k\n“jupyter gpu-kernel logs k”"):
        kernel.take([])
    kernel.take([row("busy")])
    for _ in range(5):
        kernel.take([{**ERROR, "node": "gpu3"}])
        assert "no route" in kernel.line and not kernel.is_done, "gpu3 may be another name of gpu2"
    for answer in ([], [], [row("away")], [], []):
        kernel.take(answer)
        assert not kernel.is_done
    assert "no node has a kernel k" in kernel.line
    kernel.take([])
    assert kernel.is_done and kernel.row["state"] == "ended"
    assert kernel.fault is not None and "logs k" in kernel.fault.cause


def test_a_kernel_that_has_ended() -> None:
    ended = after(row("busy"), row("ended", cause="it was killed"))
    assert ended.is_done and ended.fault is not None
    assert ended.fault.cause == "kernel k has ended: it was killed"


def test_times_for_people() -> None:
    assert [duration(one) for one in (0.1234, 59.9, 723, 18120)] == [
        "0.123 s",
        "59.9 s",
        "12 min 3 s",
        "5 h 2 min",
    ]
