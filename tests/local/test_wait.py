"""What `ps --wait` makes of the rows of `ps`."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_gpu_kernel.cli.running.wait import Outcome, WaitedKernel, exit_status
from jupyter_gpu_kernel.errors import AgentError, ConnectError
from jupyter_gpu_kernel.wire.texts import duration

CELL = {"msg_id": "a", "status": "ok", "execution_count": 7, "started": 100.0, "finished": 223.0, "error": ""}
ERROR = {"node": "gpu2", "error": ConnectError("no route", hop="gpu2").to_json()}


def row(state: str, **more: Any) -> dict[str, Any]:
    known = {"id": "k", "name": "lab", "hop": "gpu2", "state": state, "pid": 5}
    return {**known, "cells": 0, "last_cell": CELL, **more}


class Log:
    """A kernel's log that has these rows; None: no node has it."""

    def __init__(self, *rows: dict[str, Any] | None) -> None:
        self.rows = rows
        self.read = 0
        self.specs: set[str] = set()

    def __call__(self, kernel: WaitedKernel) -> list[dict[str, Any]]:
        self.read += 1
        self.specs.add(kernel.name)
        if None in self.rows:
            raise AgentError("no node has a kernel k")
        return [row for row in self.rows if row is not None]


def outcome(*rows: dict[str, Any]) -> Outcome | None:
    """After these answers."""
    kernel = WaitedKernel("k", Log())
    for one in rows:
        kernel.take([one])
    return kernel.outcome


def test_a_kernel_is_done_when_two_answers_show_no_cell() -> None:
    assert outcome(row("busy", cells=1), row("idle")) is None
    assert outcome(row("idle"), row("busy"), row("idle")) is None
    assert outcome(row("idle"), row("idle", last_cell={**CELL, "msg_id": "b"})) is None, "it ran between them"
    assert outcome(row("idle", cells=1), row("idle", cells=1)) is None, "the next cell is on its way"
    done = outcome(row("waiting"), row("detached"), row("detached"))
    assert done is not None and (done.status, done.seconds, done.execution_count) == ("ok", 123.0, 7)
    assert done.text == "Kernel k on gpu2: the last cell [7] ended after 2 min 3 s: ok"


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"last_cell": {**CELL, "status": "error", "error": "ValueError: x"}}, "error"),
        ({"last_cell": {**CELL, "status": "error", "error": "KeyboardInterrupt: "}}, "interrupted"),
        ({"last_cell": {**CELL, "status": "error", "error": "KeyboardInterrupt"}}, "interrupted"),
        ({"last_cell": None}, "unknown"),
    ],
)
def test_how_the_last_cell_ended(changes: dict[str, Any], status: str) -> None:
    done = outcome(row("busy"), row("idle", **changes), row("idle", **changes))
    assert done is not None and done.status == status and exit_status([done]) == 1


def test_a_kernel_without_cells() -> None:
    none = outcome(*[row("idle", last_cell=None)] * 2)
    assert none is not None and none.status == "none" and exit_status([none]) == 0


def test_an_unreachable_node_is_waited_for_and_a_missing_kernel_is_looked_for() -> None:
    with pytest.raises(ConnectError, match="no route"):
        WaitedKernel("k", Log()).take([ERROR])
    for log in (Log(), Log(None)):
        with pytest.raises(AgentError, match="no node has a kernel k"):
            WaitedKernel("k", log).take([])
    log = Log(None)
    kernel = WaitedKernel("k", log)
    kernel.take([row("busy")])
    kernel.take([ERROR])
    assert "no route" in kernel.line and kernel.outcome is None
    kernel.take([row("away"), ERROR])
    assert log.read == 0
    for looks in range(1, 6):
        kernel.take([{**ERROR, "node": "gpu3"}])
        assert log.read == looks, "its log may tell more"
        assert kernel.outcome is None, "gpu3 may be another name of gpu2"
    for _ in range(2):
        kernel.take([])
        assert kernel.outcome is None and "not listed" in kernel.line
    kernel.take([])
    assert kernel.outcome is not None and kernel.outcome.status == "ended"


def test_a_kernel_in_a_job_is_not_missing_while_its_login_node_is_away() -> None:
    away = {"node": "login", "error": ConnectError("no route", hop="login").to_json()}
    log = Log()
    in_job, other = WaitedKernel("k", log), WaitedKernel("k", log)
    in_job.take([row("busy", node="gpu2", job={"id": "12"})])
    other.take([row("busy", node="gpu2")])
    in_job.take([away])
    assert in_job.outcome is None and log.read == 0
    other.take([away])
    assert log.read == 1, "the node of this one has answered"
    assert log.specs == {"lab"}, "no other node is asked for its log"


def test_the_log_tells_of_the_end() -> None:
    start, end = {"event": "start", "text": "started"}, {"event": "end", "text": "stopped: by hand"}
    runs = WaitedKernel("k", Log(end, start))
    runs.take([row("busy")])
    runs.take([])
    assert runs.outcome is None
    kernel = WaitedKernel("k", Log(start, end, {"event": "usage", "text": ""}))
    kernel.take([])
    ended = kernel.outcome
    assert ended is not None and ended.text == "Kernel k: the kernel has ended: stopped: by hand"
    assert exit_status([ended, kernel.timed_out(5)]) == 1 and exit_status([kernel.timed_out(5)]) == 124


def test_times_for_people() -> None:
    assert [duration(one) for one in (0.1234, 59.9, 723, 18120)] == [
        "0.123 s",
        "59.9 s",
        "12 min 3 s",
        "5 h 2 min",
    ]
