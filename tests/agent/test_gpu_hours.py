"""GPU hours: what a keeper reports of them, and what is made of any story."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Dict, List, Optional

import pytest
from keepers import Place
from runtimes import RUNTIME, Clock

from jupyter_gpu_kernel.agent.gpus.hours import INTERVAL, GpuTime, KernelHours, rows, with_names
from jupyter_gpu_kernel.agent.mux import handlers
from jupyter_gpu_kernel.agent.story import Story, read_story
from jupyter_gpu_kernel.wire.fields import FieldError

H = 3600.0
NOW = 100 * H
A, B = "GPU-a", "GPU-b"


def at(hours: float, event: str, **more: Any) -> Dict[str, Any]:
    return dict({"time": hours * H, "event": event, "text": ""}, **more)


def took(hours: float, *gpus: str) -> Dict[str, Any]:
    names = ", ".join(f"GPU {index} (NVIDIA A100)" for index, _ in enumerate(gpus or (A,)))
    return at(hours, "gpu", text=f"took {names}, the nearest of 4", gpus=list(gpus or (A,)))


def usage(hours: float, held: float, busy: float, *gpus: str, **more: Any) -> Dict[str, Any]:
    return at(hours, "usage", gpus=list(gpus or (A,)), held=held * H, busy=busy * H, **more)


def last(hours: float, held: float, busy: float, *gpus: str) -> Dict[str, Any]:
    return usage(hours, held, busy, *gpus, released=True)


def end(hours: float, **more: Any) -> Dict[str, Any]:
    return at(hours, "end", **{"returncode": 0, "asked": "shutdown", **more})


START = at(1, "start", notebook="/home/a/b.ipynb", pid=7)
FOUND = at(90, "end", cause="the node was rebooted")


def reported(
    story: List[Any], live: Optional[Dict[str, Any]] = None, since: float = 0, now: float = 100
) -> List[Any]:
    """[from, to, held, busy, unknown] in hours, of each row."""
    kernel = KernelHours.read(story, now * H, live)
    found = rows("k", kernel, since * H, now * H)
    keys = ("from", "to", "seconds_held", "seconds_busy", "seconds_unknown")
    return [tuple(None if row[key] is None else round(row[key] / H, 3) for key in keys) for row in found]


LIVE = {"gpus": [A], "held": 0.25 * H, "busy": 0.2 * H}
CASES: Dict[str, Any] = {
    "no GPU": ([START, end(5)], None, []),
    "nothing": ([], None, []),
    "ended": ([START, took(2), usage(4, 2, 1), last(6, 2, 0.5), end(6)], None, [(2, 6, 4, 1.5, 0)]),
    "still running": ([START, took(2), usage(99.75, 97.75, 10)], LIVE, [(2, None, 98, 10.2, 0)]),
    "the keeper does not answer": ([took(2), usage(99, 97, 10)], {}, [(2, None, 98, 10, 1)]),
    "released, and taken again": (
        [took(2), last(4, 2, 1), took(10), last(11, 1, 1)], None, [(2, 4, 2, 1, 0), (10, 11, 1, 1, 0)],
    ),
    "released, since it was not used": (
        [took(2), last(4, 2, 1), at(4, "gpu", text="released GPU 0 (NVIDIA A100): not used")], {"gpus": []},
        [(2, 4, 2, 1, 0)],
    ),
    "released, and running without": ([took(2), last(4, 2, 1)], {"gpus": []}, [(2, 4, 2, 1, 0)]),
    "a keeper, killed": ([took(2), usage(3, 1, 1), at(3.1, "drop"), FOUND], None, [(2, 3.1, 1.1, 1, 0.1)]),
    "a keeper, killed at once": ([took(2), FOUND], None, [(2, 2, 0, None, 0)]),
    "a successor": (
        [took(2), usage(3, 1, 1), at(3.5, "succession"), last(6, 2.5, 0), end(6)], None, [(2, 6, 4, 1, 0.5)],
    ),
    "two successors, and the last one tells nothing": (
        [took(2), usage(3, 1, 1), at(3.5, "succession"), at(4, "succession")], {}, [(2, None, 98, 1, 97)],
    ),
    "a restart": ([took(2), end(3, asked="restart"), START, last(6, 4, 2), end(6)], None, [(2, 6, 4, 2, 0)]),
    "a restart that did not follow": ([took(2), end(3, asked="restart"), at(9, "x")], None, [(2, 3, 1, None, 1)]),
    "two GPUs": ([took(2, A, B), last(4, 2, 1, A, B)], None, [(2, 4, 2, 1, 0)] * 2),
    "an allocation, of which no story tells": ([START, last(4, 2, 1)], None, [(2, 4, 2, 1, 0)]),
    "a story whose beginning is lost": ([usage(4, 1, 1), last(5, 1, 0)], None, [(3, 5, 2, 1, 0)]),
    "a keeper that reported nothing": ([START, took(2), end(6)], None, [(2, 6, 4, None, 4)]),
    "a running keeper that reports nothing": ([START, took(2)], {"gpus": [A]}, [(2, None, 98, None, 98)]),
    "a crashed node": ([took(2), at(5, "drop"), FOUND], None, [(2, 5, 3, None, 3)]),
    "the clock was set forward": ([took(2), usage(3, 1, 1), last(33, 1, 0)], None, [(2, 33, 2, 1, 0)]),
    "the clock was set back": ([took(50), usage(51, 1, 1), last(12, 1, 0.5)], None, [(50, 50, 2, 1.5, 0)]),
    "no report, and the clock was set back": ([took(50), end(12)], None, [(50, 50, 0, None, 0)]),
    "more busy than held": ([took(2), last(4, 2, 9)], None, [(2, 4, 2, 2, 0)]),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_hours_of_a_story(case: str) -> None:
    story, live, expected = CASES[case]
    assert reported(story, live) == expected


@pytest.mark.parametrize(
    ("since", "now", "expected"),
    [
        (0, 100, [(2, 12, 10, 5, 0)]),
        (4, 100, [(2, 12, 8, 4, 0)]),
        (11, 100, [(2, 12, 1, 0.5, 0)]),
        (12.5, 100, []),
        (0, 1, []),
        (0, 4, [(2, 12, 2, 1, 0)]),
    ],
)
def test_only_the_hours_asked_for(since: float, now: float, expected: List[Any]) -> None:
    story = [took(2), usage(10, 8, 4), last(12, 2, 1)]
    assert reported(story, None, since, now) == expected


def test_a_row() -> None:
    kernel = KernelHours.read([START, took(2, A, B), last(4, 2, 1, A, B)], NOW, None)
    first, second = rows("k1", kernel, 0, NOW)
    assert first == {
        "uuid": A, "index": 0, "name": "NVIDIA A100", "kernel": "k1", "notebook": "/home/a/b.ipynb",
        "from": 2 * H, "to": 4 * H, "seconds_held": 2 * H, "seconds_busy": H, "seconds_unknown": 0.0,
    }  # fmt: skip
    assert (second["uuid"], second["index"]) == (B, 1)


def test_a_name_is_known_from_another_kernel() -> None:
    kernels = [
        KernelHours.read(story, NOW, None) for story in ([took(2), end(3)], [last(4, 2, 1), last(9, 1, 1, B)])
    ]
    found = with_names([row for kernel in kernels for row in rows("k", kernel, 0, NOW)])
    assert [(row["index"], row["name"]) for row in found] == [(0, "NVIDIA A100")] * 2 + [(None, "")]


def test_the_history_of_a_node(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = place.path / "stories"
    folder.mkdir(mode=0o700)
    now = RUNTIME.time()
    for name, ago in (("recent", 1000), ("k2", 3000), ("long-ago", 5000)):
        story = Story(folder / f"{name}.jsonl", lambda ago=ago: now - ago)  # type: ignore[misc]
        story.tell("gpu", "took GPU 3 (NVIDIA A100)", gpus=[A])
        story.tell("usage", "", gpus=[A], held=100, busy=40, released=True)
        os.utime(str(story.path), (now - ago, now - ago))
    (folder / "not a kernel.jsonl").write_text("{}")
    answer = place.handlers.handle({"do": "history", "seconds": 3600})
    assert [(row["kernel"], row["seconds_held"], row["index"]) for row in answer["history"]] == [
        ("k2", 100, 3), ("recent", 100, 3),
    ]  # fmt: skip
    assert answer["left_out"] == 0 and answer["history"][0]["node"]
    monkeypatch.setattr(handlers, "MAX_HOLDS", 1)
    answer = place.handlers.handle({"do": "history", "seconds": 3600})
    assert ([row["kernel"] for row in answer["history"]], answer["left_out"]) == (["recent"], 1)


@pytest.mark.parametrize("seconds", [None, -1, "9", 10**9, 1.5])
def test_a_history_of_no_time(place: Place, seconds: Any) -> None:
    with pytest.raises(FieldError):
        place.handlers.handle({"do": "history", "seconds": seconds})


# -------------------------------------------------------------------------------- what a keeper reports


class Reporter:
    """A kernel's GPU time, by a clock that the test moves."""

    def __init__(self, path: Path) -> None:
        self.clock = Clock()
        self.gpus: List[str] = []
        self.path = path
        self.story = Story(path, self.clock.time)
        self.time = GpuTime(self.clock.monotonic, self.story, lambda: self.gpus, lambda: [f"GPU 0 ({A})"])

    def after(self, seconds: float, state: str, *gpus: str) -> List[Any]:
        """What was reported by then: (held, busy, whether the GPUs were released)."""
        self.clock.seconds += seconds
        self.gpus = list(gpus)
        self.time.update(state)
        return [(one["held"], one["busy"], one.get("released", False)) for one in read_story(self.path)]


def test_a_keeper_reports_busy_time_at_intervals_and_at_the_end(tmp_path: Path) -> None:
    reporter = Reporter(tmp_path / "story")
    reporter.after(100, "waiting")
    reporter.after(5, "idle", A)
    reporter.after(10, "busy", A)
    reporter.after(20, "idle", A)
    assert reporter.after(30, "busy", A) == []
    assert reporter.time.unreported() == {"gpus": [A], "held": 60, "busy": 20}
    assert reporter.after(INTERVAL, "busy", A) == [(60 + INTERVAL, 20 + INTERVAL, False)]
    assert reporter.after(7, "busy") == [(60 + INTERVAL, 20 + INTERVAL, False), (7, 7, True)]
    reporter.after(50, "idle")
    reporter.after(1, "idle", B)
    assert reporter.after(2, "ended")[2:] == [(2, 0, True)]
    assert read_story(reporter.path)[1]["text"] == f"released GPU 0 ({A}): in 7 s, a cell ran for 7 s"


def test_what_a_full_disk_refuses_is_reported_with_the_next_entry(tmp_path: Path) -> None:
    reporter = Reporter(tmp_path / "later" / "story")
    reporter.after(0, "busy", A)
    assert reporter.after(INTERVAL, "busy", A) == []
    reporter.path.parent.mkdir()
    assert reporter.after(5, "busy", A) == [(INTERVAL + 5, INTERVAL + 5, False)]
