"""What `ps --wait` makes of the rows of `ps`."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_gpu_kernel.cli.running.wait import exit_status
from jupyter_gpu_kernel.cli.running.waited_kernel import Outcome, WaitedKernel, WaitStatus, outcome_of_story
from jupyter_gpu_kernel.errors import AgentError, ConnectError
from jupyter_gpu_kernel.wire.texts import duration

CELL = {"msg_id": "a", "status": "ok", "execution_count": 7, "started": 100.0, "finished": 223.0, "error": ""}
ERROR = {"node": "gpu2", "error": ConnectError("no route", hop="gpu2").to_json()}


def row(state: str, **more: Any) -> dict[str, Any]:
    known = {"id": "k", "name": "lab", "hop": "gpu2", "state": state, "pid": 5}
    return {**known, "cells": 0, "last_cell": CELL, **more}


def outcome(*rows: dict[str, Any]) -> Outcome | None:
    """After these answers."""
    kernel = WaitedKernel("k")
    for one in rows:
        assert not kernel.take([one])
    return kernel.outcome


def test_a_kernel_is_done_when_two_answers_show_no_cell() -> None:
    assert outcome(row("busy", cells=1), row("idle")) is None
    assert outcome(row("idle"), row("busy"), row("idle")) is None
    assert outcome(row("idle"), row("idle", last_cell={**CELL, "msg_id": "b"})) is None, "it ran between them"
    assert outcome(row("idle", cells=1), row("idle", cells=1)) is None, "the next cell is on its way"
    done = outcome(row("waiting"), row("detached"), row("detached"))
    assert done is not None and (done.status, done.seconds, done.execution_count) == (WaitStatus.OK, 123.0, 7)
    assert done.text == "Kernel k on gpu2: the last cell [7] ended after 2 min 3 s: ok"


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"last_cell": {**CELL, "status": "error", "error": "ValueError: x"}}, WaitStatus.ERROR),
        ({"last_cell": {**CELL, "status": "error", "error": "KeyboardInterrupt: "}}, WaitStatus.INTERRUPTED),
        ({"last_cell": {**CELL, "status": "error", "error": "KeyboardInterrupt"}}, WaitStatus.INTERRUPTED),
        ({"last_cell": None}, WaitStatus.UNKNOWN),
    ],
)
def test_how_the_last_cell_ended(changes: dict[str, Any], status: WaitStatus) -> None:
    done = outcome(row("busy"), row("idle", **changes), row("idle", **changes))
    assert done is not None and done.status is status and exit_status([done]) == 1
    assert done.to_json()["status"] == status.value


def test_a_kernel_without_cells() -> None:
    none = outcome(*[row("idle", last_cell=None)] * 2)
    assert none is not None and none.status is WaitStatus.NONE and exit_status([none]) == 0


def test_an_unreachable_node_is_waited_for_and_a_missing_kernel_is_looked_for() -> None:
    kernel = WaitedKernel("k")
    with pytest.raises(ConnectError, match="no route"):
        kernel.take([ERROR])
    with pytest.raises(AgentError, match="no node has a kernel k"):
        kernel.not_listed(None)
    kernel.take([row("busy")])
    assert not kernel.take([ERROR]) and "no route" in kernel.line and kernel.outcome is None
    assert not kernel.take([row("away"), ERROR])
    for _ in range(5):
        assert kernel.take([{**ERROR, "node": "gpu3"}]), "its log may tell more"
        assert kernel.not_listed(None) is None, "gpu3 may be another name of gpu2"
    assert kernel.take([])
    looks = [kernel.not_listed(None) for _ in range(3)]
    assert looks[:2] == [None, None] and looks[2] is not None and looks[2].status is WaitStatus.ENDED


def test_a_kernel_in_a_job_is_not_missing_while_its_login_node_is_away() -> None:
    away = {"node": "login", "error": ConnectError("no route", hop="login").to_json()}
    in_job, other = WaitedKernel("k"), WaitedKernel("k")
    assert not in_job.take([row("busy", node="gpu2", job={"id": "12"})])
    assert not other.take([row("busy", node="gpu2")])
    assert not in_job.take([away]) and in_job.outcome is None
    assert other.take([away]), "the node of this one has answered"


def test_the_log_tells_of_the_end() -> None:
    kernel = WaitedKernel("k")
    start, end = {"event": "start", "text": "started"}, {"event": "end", "text": "stopped: by hand"}
    assert outcome_of_story(kernel, [start]) is None and outcome_of_story(kernel, [end, start]) is None
    ended = outcome_of_story(kernel, [start, end, {"event": "usage", "text": ""}])
    assert ended is not None and ended.text == "Kernel k: the kernel has ended: stopped: by hand"
    assert exit_status([ended, kernel.timed_out(5)]) == 1 and exit_status([kernel.timed_out(5)]) == 124


def test_times_for_people() -> None:
    assert [duration(one) for one in (0.1234, 59.9, 723, 18120)] == [
        "0.123 s",
        "59.9 s",
        "12 min 3 s",
        "5 h 2 min",
    ]
