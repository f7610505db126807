"""Inside the kernel: its keeper is gone (killed, or a fault of ours). Another one is started in its place; where that
cannot be, nobody can reach the kernel any more, and it must not hold its GPU for ever.

The keeper holds one end of a pipe, the lifeline, and has written its will into it: how to start a successor, which
gets an end of a new lifeline and says there when it hears the kernel. Without a successor the running cell, perhaps a
training that saves its result, has some minutes to finish; then the kernel ends itself and all that it started.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

from ..exit.processes import ROOT, TAG, end_all, tagged
from ..story import Story
from .guard import Guard

LIMIT = 600.0
"""Seconds that a cell nobody can reach may still run."""
MOST, WITHIN = 5, 600.0
"""So many successors within so many seconds: then something ends every one of them."""
START = 60.0
Gpus = Callable[[], List[str]]
_PAUSE = 0.1
_RETRY = 0.2


def watch(lifeline: int, guard: Guard, story_socket: str, gpus: Gpus, limit: float = LIMIT) -> None:
    """From now on. `lifeline`: the pipe's descriptor. The story's file is found from the keeper's socket for it."""
    os.set_inheritable(lifeline, False)
    place = Path(story_socket)
    story = Story(place.parents[2] / "stories" / (place.parent.name + ".jsonl"))
    keeper_watch = KeeperWatch(guard, story, gpus, limit)
    threading.Thread(target=keeper_watch.watch, args=(lifeline,), name="keeper-watch", daemon=True).start()


class KeeperWatch:
    """A kernel, as it stands without a keeper."""

    def __init__(self, guard: Guard, story: Story, gpus: Gpus, limit: float) -> None:
        self._guard = guard
        self._gpus = gpus
        self._story = story
        self._limit = limit
        self._will: Dict[str, Any] = {}
        self._died = 0.0
        self._starts: List[float] = []
        self._theirs = -1  # the successor's end of the new lifeline, as long as it is open here, too
        self._pipes = threading.Lock()
        os.register_at_fork(
            before=self._pipes.acquire, after_in_parent=self._pipes.release, after_in_child=self._forked
        )

    def watch(self, lifeline: int) -> None:
        """Until no keeper is to be had any more; then the kernel's end."""
        while lifeline >= 0:
            self._listen(lifeline)
            self._died = time.monotonic()
            lifeline = self._succeeded()
        self._outlive()

    def _listen(self, lifeline: int) -> None:
        """Until the keeper is gone."""
        with os.fdopen(lifeline, "rb") as words:
            for line in words:
                try:
                    word: Dict[str, Any] = json.loads(line.decode())
                except ValueError:  # cut off by its death
                    continue
                if "command" in word:
                    self._will = word
                else:
                    self._hears_us()

    def _hears_us(self) -> None:
        gap = time.monotonic() - self._died
        self._guard.say(
            f"[This kernel's keeper was killed, and another one took over. What this cell printed in the {gap:.1f} s "
            "between may be lost; the cell goes on.]"
        )

    # -------------------------------------------------------------------------------------- a successor

    def _succeeded(self) -> int:
        """The lifeline to the next keeper; -1: there is none."""
        problem = f"the last {MOST} ended, too" if self._will else "it left no word how"
        while self._will and self._may_start():
            lifeline, problem = self._start()
            if lifeline >= 0:
                return lifeline
            time.sleep(_RETRY)
        self._story.tell("fault", f"no other keeper could be started: {problem}")
        return -1

    def _may_start(self) -> bool:
        now = time.monotonic()
        self._starts = [start for start in self._starts if now - start < WITHIN]
        self._starts.append(now)
        return len(self._starts) <= MOST

    def _start(self) -> Tuple[int, str]:
        """(lifeline, "") once it has begun, or (-1, why it did not)."""
        will = self._will
        with self._pipes:
            lifeline, self._theirs = os.pipe()
        theirs = self._theirs
        try:
            with subprocess.Popen(
                will["command"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                cwd=will["cwd"], env=will["environ"], pass_fds=[theirs], start_new_session=True,
            ) as process:  # fmt: skip
                try:
                    said = process.communicate(self._heritage(theirs), START)[1]
                except subprocess.TimeoutExpired:
                    process.kill()
                    said = b"it does not begin"
        except OSError as error:
            os.close(lifeline)
            return -1, str(error)
        finally:
            self._close_theirs()
        if process.returncode == 0:
            return lifeline, ""
        os.close(lifeline)
        return -1, said.decode("utf-8", "replace").strip()[-500:]

    def _close_theirs(self) -> None:
        with self._pipes:
            os.close(self._theirs)
            self._theirs = -1

    def _forked(self) -> None:
        """In a process that a cell forked: it must not hold the pipe open when the successor has died."""
        if self._theirs >= 0:
            os.close(self._theirs)
            self._theirs = -1
        self._pipes.release()

    def _heritage(self, lifeline: int) -> bytes:
        """See `succession.Heritage`."""
        heritage = {"kernel": os.getpid(), "lifeline": lifeline, "gpus": self._gpus()}
        return json.dumps(dict(heritage, settings=self._will["settings"])).encode() + b"\n"

    # -------------------------------------------------------------------------------------- no successor

    def _outlive(self) -> None:
        cells, deadline = self._guard.use.running(), time.monotonic() + self._limit
        until = f"when its running cell has ended, in {self._limit:.0f} s at the latest" if cells else "now"
        self._story.tell(
            "orphan", f"the kernel's keeper was killed; as nobody can reach the kernel, it ends {until}"
        )
        while not cells.isdisjoint(self._guard.use.running()) and time.monotonic() < deadline:
            time.sleep(_PAUSE)
        self._end()

    def _end(self) -> None:
        self._guard.run_last_hooks()
        more: Any = {"cause": "its keeper was killed", "evidence": "the pipe to it closed"}
        self._story.tell("end", "the kernel ended after its keeper, which was killed", **more)
        end_all(tagged(os.environ.get(TAG, "") or "none", root=os.environ.get(ROOT, "")))
        if os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)
        os._exit(1)
