"""Tables of what nodes say: after the hub's check each row is one inert line of bounded length, whatever it was."""

from __future__ import annotations

import contextlib
import math
import re
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpu_kernel.cli.show import tables
from jupyter_gpu_kernel.hub import validate

KEYS = [
    *(
        "id",
        "name",
        "node",
        "hop",
        "state",
        "since",
        "gpus",
        "pid",
        "attached",
        "attached_from",
        "notebook",
        "cause",
        "time",
        "event",
        "priority",
        "place",
        "queue",
        "yours",
    ),
    *(
        "text",
        "index",
        "memory_used_mib",
        "memory_total_mib",
        "utilization",
        "processes",
        "lease",
        "idle_since",
        "free",
        "reason",
    ),
    *("leftovers", "user", "memory_mib", "kernel", "command"),
]
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(
        [10**300, -(10**300), "x" * 5000, "a\nb\x1b[2J\u202ec", "waiting", math.nan, "me@gpu2:22"]
    )
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=8,
)
ROWS = st.lists(st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=8), max_size=3)
Table = Callable[[Sequence[dict[str, Any]]], str]
CHECKED: list[tuple[Table, str, str]] = [
    (tables.kernels, "list", "kernels"),
    (tables.gpus, "gpus", "gpus"),
    (tables.queue, "gpus", "gpus"),
    (tables.leftovers, "leftovers", "leftovers"),
    (tables.pinned_code, "leftovers", "code"),
    (tables.story, "story", "story"),
]
REQUIRED = {
    "id": "k1",
    "state": "idle",
    "uuid": "GPU-1",
    "queue": [],
    "pid": 7,
    "folder": "/code",
    "kernels": [],
}


def checked(request: str, key: str, sent: dict[str, Any]) -> dict[str, Any]:
    """The row that a hub makes of what a node says, without the values for which it would refuse the whole answer."""
    row = REQUIRED
    for name, value in sent.items():
        with contextlib.suppress(validate.Malformed):
            answer = {"leftovers": [], "code": [], key: [{**row, name: value}]}
            row = validate.answer(request, answer)[key][0]
    return {**row, "hop": "gpu2"}


@settings(max_examples=120, deadline=None)
@given(st.sampled_from(CHECKED), ROWS)
def test_whatever_a_node_says(kind: tuple[Table, str, str], sent: list[dict[str, Any]]) -> None:
    table, request, key = kind
    rows = [checked(request, key, one) for one in sent]
    lines = table(rows).split("\n")
    assert table is tables.queue or len(lines) == len(rows) + 1 or not rows
    assert all(line.isprintable() and len(line) < 4000 for line in lines)


def test_a_time_that_is_unknown() -> None:
    row = {"id": "k1", "state": "waiting", "since": None, "time": None}
    assert tables.ago(None) == "" and "  ?  " in tables.queue([{"queue": [row]}])
    assert tables.story([row]).splitlines()[1][0] == "?"


@pytest.mark.parametrize(
    ("row", "shown"),
    [
        ({"attached": True, "attached_from": "alice@desk"}, "yes"),
        ({"attached": False, "attached_from": "alice@desk"}, "from alice@desk"),
        ({"attached": False, "attached_from": ""}, "no"),
        ({}, "no"),
    ],
)
def test_who_is_attached(row: dict[str, Any], shown: str) -> None:
    cells = re.split(r"  +", tables.kernels([row]).splitlines()[1])
    assert cells[-2:] == [shown, "-"]


@pytest.mark.parametrize(
    ("row", "shown"),
    [
        ({"state": "waiting", "place": 1, "priority": 0}, "waiting (1st)"),
        ({"state": "waiting", "place": 22, "priority": -5}, "waiting (22nd, priority -5)"),
        ({"state": "busy", "place": None, "priority": 5}, "busy (priority 5)"),
        ({"state": "idle", "place": None, "priority": 0}, "idle"),
        ({"state": "waiting", "place": None, "priority": None}, "waiting"),
    ],
)
def test_the_place_in_the_queue(row: dict[str, Any], shown: str) -> None:
    assert re.split(r"  +", tables.kernels([row]).splitlines()[1])[3] == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(12_030.0, "3 h 20 min"), (3590.0, r"59 min \d+ s"), (50.0, r"[1-5]\d s"), (-5.0, "0 s")],
)
def test_the_time_that_is_left_of_a_job(seconds: float, shown: str) -> None:
    job = {"id": "17", "end_time": time.time() + seconds}
    table = tables.kernels([{"id": "k", "state": "busy", "job": job}])
    assert re.search(rf"\(job 17, {shown} left\)", table)


def test_kernels_that_wait_are_listed_in_their_order() -> None:
    places = {"a": 3, "b": None, "c": 1, "d": None, "e": 2}
    rows = [{"id": one, "node": "gpu2", "hop": "gpu2", "place": place} for one, place in places.items()]
    rows.insert(1, {"id": "x", "node": "gpu1", "hop": "gpu1", "place": 1})
    lines = tables.kernels(rows).splitlines()[1:]
    assert "".join(line[0] for line in lines) == "bdceax", "each node's together"


def test_a_gpu_is_named_without_its_maker() -> None:
    assert "  RTX 3090  " in tables.gpus([{"name": "NVIDIA GeForce RTX 3090", "node": "gpu2", "hop": "gpu2"}])


def test_a_gpu_that_is_held_and_does_no_work() -> None:
    now = time.time()
    row = {"lease": {"user": "bob", "since": now - 3 * 3600 - 9}, "idle_since": now - 2 * 3600 - 9}
    assert "leased by bob 3 h ago, idle for 2 h" in tables.gpus([row])
    used = {"processes": [{"user": "bob", "memory_mib": 7}], "idle_since": now - 2 * 3600 - 9}
    assert "bob (7 MiB), idle for 2 h" in tables.gpus([used])


def test_everybody_on_a_gpu_is_named() -> None:
    processes = [
        {"user": "bob", "memory_mib": 12000},
        {"user": "al", "memory_mib": 300, "yours": True},
        {"user": "bob", "memory_mib": 7, "yours": False},
    ]
    row = {"processes": processes, "lease": {"user": "al", "yours": True}}
    assert "bob (12000 MiB), you (300 MiB), bob (7 MiB), leased by you" in tables.gpus([row])


def test_ordinal_numbers() -> None:
    numbers = (1, 2, 3, 4, 11, 12, 13, 21, 102, 111, 1003)
    shown = ["1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "102nd", "111th", "1003rd"]
    assert [tables.ordinal(one) for one in numbers] == shown


def test_a_row_cannot_forge_another() -> None:
    row = {"id": "k1", "name": "n\nk2  gpu  gpu2  idle", "notebook": "a.ipynb\nk3  gpu  gpu2  idle", "pid": 5}
    assert len(tables.kernels([row]).splitlines()) == 2


@pytest.mark.parametrize(
    "node, hop, shown",
    [
        ("gpu2", "alice@gpu2", "gpu2"),
        ("gpu2.cluster", "gpu2:7092", "gpu2.cluster"),
        ("gpu2", "alice@gpu1", "gpu1 (gpu2)"),
        ("alice@gpu2", "alice@gpu2", "alice@gpu2"),
        ("gpu2", None, "gpu2"),
        (None, "gpu2", "gpu2 (?)"),
    ],
)
def test_a_node_cannot_take_the_name_of_another(node: Any, hop: Any, shown: str) -> None:
    assert shown in tables.kernels([{"node": node, "hop": hop}])
