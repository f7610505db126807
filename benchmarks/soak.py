"""Soaks the promise “exactly once and in order”: cuts, stalls and tears by the seed; prints what was lost or doubled.

    python benchmarks/soak.py [--seeds N] [--first N] [--json]

Each seed is the script of tests/exchange.py, by two front ends at once, on this machine as the work node. A kernel
that a seed brought out of step is left, and the next seed begins with a new one. Exit 1 if a seed failed;
`--first SEED --seeds 1` repeats it. At the end: how long 10 MB take that were printed while the link was away.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import random
import statistics
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))  # the tests' kit: a node, streams that break

from exchange import Bystander, Outcome, Tally, script
from fronts import Front
from streams import Breakable, Faults, LoopThread, Node, wait_for

from jupyter_gpu_kernel.hub.front_end.front_ends import FrontEndSpec

LINES = 100_000
PRINT = f"""
import os, time
print('begin', flush=True)
while not os.path.exists({{go!r}}): time.sleep(0.01)
for i in range({LINES}): print('%08d' % i, '.' * 90)
open({{done!r}}, 'w').close()
"""


class Clocked(Node):
    """Remembers when it was dialled last."""

    dialled = 0.0

    def dial(self, again: bool = False) -> Breakable:
        self.dialled = time.perf_counter()
        return super().dial(again)


class Kit:
    """A node, a link, a kernel, a front end; `frames`: seconds from each dial that worked to its first frame."""

    def __init__(self, exits: contextlib.ExitStack) -> None:
        self.node = exits.enter_context(Clocked())
        loop = exits.enter_context(LoopThread())
        self.link = loop.link(self.node)
        self.loop, self.remote = loop, loop.kernel(self.link)
        self.tally = Tally()
        self.front = exits.enter_context(Front(self.remote.edge.connection, self.tally))
        self.frames: list[float] = []
        self._measured = 0.0
        exits.enter_context(self.remote.watched(self._reported))
        self.undisturbed = script(self.front)

    def _reported(self) -> None:
        """The kernel's state is the first that a keeper says; the link's own state comes just before it."""
        if self.remote.link_state == "up" and self._measured != self.node.dialled:
            if self._measured == -self.node.dialled:
                self.frames.append(time.perf_counter() - self.node.dialled)
                self._measured = self.node.dialled
            else:
                self._measured = -self.node.dialled

    def soak(self, seed: int) -> dict[str, Any]:
        """What became of one seed."""
        rng = random.Random(seed)
        self._limit_rate(rng.random() < 0.5)
        before, messages, began = len(self.node.streams), self.tally.messages, time.perf_counter()
        self.node.faults = lambda: Faults.drawn(rng)
        self.node.streams[-1].cut()
        try:
            with Bystander(self.remote.edge.connection) as bystander:
                seen = script(self.front)
        finally:
            self.node.faults = lambda: None
            self.node.streams[-1].cut()
        self.front.run("'in step'")
        wrong = self.tally.wrong(self.front.client.session.session) + bystander.wrong
        return {
            "seed": seed,
            **Outcome.of(seen, self.undisturbed)._asdict(),
            "wrong": wrong,
            "messages": self.tally.messages - messages,
            "cuts": len(self.node.streams) - before,
            "seconds": time.perf_counter() - began,
        }

    def replay(self, folder: Path, paced: bool) -> float:
        """Seconds from the link's return until 10 MB that waited, and the cell's end, are there."""
        self._limit_rate(paced)
        go, done = folder / f"go{paced}", folder / f"done{paced}"
        request = self.front.client.execute(PRINT.format(go=str(go), done=str(done)))
        self.front.until_text(request, "begin")
        self.node.pull()
        wait_for(lambda: self.remote.link_state == "away", "the end of the link")
        go.touch()
        wait_for(done.exists, "the end of the cell")
        self.node.plugged = True
        wait_for(lambda: self.remote.link_state == "up", "the link")
        began = time.perf_counter()
        text = self.front.finish(request).text
        assert text.count("\n") == LINES, f"{LINES - text.count(chr(10))} lines are missing"
        return time.perf_counter() - began

    def _limit_rate(self, limited: bool) -> None:
        """Whether the front end counts as one that drops messages above a rate."""
        (shown,) = self.remote.front_ends
        spec = FrontEndSpec(shown.edge.connection, rate_limited=limited)
        self.loop.call(self.remote.front_ends.reconnect, shown, spec)

    def state(self) -> str:
        """For whoever looks for the cause."""
        return "\n".join(map(str, (self.remote, self.link, self.node.story(self.remote.kernel_id))))


def soaked(seeds: range) -> Iterator[tuple[dict[str, Any], list[float]]]:
    """Each seed's result, and the reconnect times meanwhile; a new kit after every failure."""
    left = list(seeds)
    while left:
        with contextlib.ExitStack() as exits:
            kit = Kit(exits)
            while left:
                try:
                    result = kit.soak(left.pop(0))
                except Exception:  # the seed failed: what the soak is for
                    threads = [thread.name for thread in threading.enumerate()]
                    result = {"fault": traceback.format_exc(), "state": kit.state(), "threads": threads}
                frames, kit.frames = kit.frames, []
                yield result, frames
                if failed(result):
                    break


def failed(result: dict[str, Any]) -> bool:
    """Whether a seed broke the promise."""
    return "fault" in result or bool(
        result["lost"] or result["doubled"] or result["disordered"] or result["wrong"]
    )


def replays() -> dict[str, float]:
    """Seconds for 10 MB, for a front end with jupyter_server's limit and for one without."""
    with contextlib.ExitStack() as exits:
        folder = Path(exits.enter_context(tempfile.TemporaryDirectory()))
        kit = Kit(exits)
        return {"paced": kit.replay(folder, paced=True), "unpaced": kit.replay(folder, paced=False)}


def main() -> int:
    """Soaks, prints; 1 if a seed failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20, help="how many (default 20)")
    parser.add_argument("--first", type=int, default=0, help="the first (default 0)")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    options = parser.parse_args()
    logging.disable(logging.WARNING)  # each of many cuts has one
    results, frames = [], []
    seeds = range(options.first, options.first + options.seeds)
    for seed, (result, seconds) in zip(seeds, soaked(seeds), strict=True):
        results.append({**result, "seed": seed})
        frames += seconds
        reported = {key: what for key, what in results[-1].items() if what or key == "seed"}
        print("FAILED" if failed(result) else "ok", reported, file=sys.stderr, flush=True)
    summary = summed_up(results, sorted(frames))
    print(json.dumps({**summary, "seeds": results}) if options.json else _table(summary))
    return int(bool(summary["failed"]))


def summed_up(results: list[dict[str, Any]], frames: list[float]) -> dict[str, Any]:
    """Over all seeds."""
    counted = ("messages", "cuts", "lost", "doubled", "disordered")
    return {
        "failed": [result["seed"] for result in results if failed(result)],
        **{key: sum(result.get(key, 0) for result in results) for key in counted},
        "wrong": sum(len(result.get("wrong", ())) for result in results),
        "reconnects": len(frames),
        "first_frame_median": statistics.median(frames) if frames else None,
        "first_frame_p99": frames[int(len(frames) * 0.99)] if frames else None,
        **{f"replay_10mb_{way}": seconds for way, seconds in replays().items()},
    }


def _table(summary: dict[str, Any]) -> str:
    return "\n".join(f"{key:22}{value}" for key, value in summary.items())


if __name__ == "__main__":
    sys.exit(main())
