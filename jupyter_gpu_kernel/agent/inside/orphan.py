"""Inside the kernel: its keeper is gone (killed, or a fault of ours), so nobody can reach it any more.

The running cell may be a training that saves its result: it is let finish, then the kernel ends itself and all
that it started, so that no GPU stays taken. The keeper holds one end of a pipe; the other one ends with it.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

from ..end.processes import end_all, tagged
from ..story import Story
from .guard import Guard

_PAUSE = 0.1


def watch(keeper: int, guard: Guard, story_socket: str) -> None:
    """From now on. `keeper`: the pipe's descriptor. The story's file is found from the keeper's socket for it."""
    os.set_inheritable(keeper, False)
    place = Path(story_socket)
    story = Story(place.parents[2] / "stories" / (place.parent.name + ".jsonl"))
    work = threading.Thread(target=_outlive, args=(keeper, guard, story), name="keeper-watch", daemon=True)
    work.start()


def _outlive(keeper: int, guard: Guard, story: Story) -> None:
    while os.read(keeper, 1):
        pass  # it never says anything
    cells = guard.use.running()
    until = "when its running cell has ended" if cells else "now"
    story.tell("orphan", f"the kernel's keeper was killed; as nobody can reach the kernel, it ends {until}")
    while not cells.isdisjoint(guard.use.running()):
        time.sleep(_PAUSE)
    _end(guard, story)


def _end(guard: Guard, story: Story) -> None:
    guard.run_last_hooks()
    more: Any = {"cause": "its keeper was killed", "evidence": "the pipe to it closed"}
    story.tell("end", "the kernel ended after its keeper, which was killed", **more)
    end_all(tagged(os.environ.get("JUPYTER_GPU_KERNEL_ID", "") or "none"))
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)
