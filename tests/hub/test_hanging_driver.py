"""An nvidia-smi that hangs delays only its own answer."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from pathlib import Path

import pytest
from practice_gpus import *  # noqa: F403 (its fixtures)
from practice_gpus import VISIBLE, Gpus, open_front
from streams import LoopThread, until, wait_for
from waiting import DEADLINE

from jupyter_gpu_kernel.hub.node.link import Link

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="the agent needs a POSIX system"),
]


def running(log: Path) -> list[int]:
    """The processes of the practice nvidia-smi that have not ended."""
    pids = [json.loads(line)[0] for line in log.read_text().splitlines()] if log.exists() else []
    return [pid for pid in pids if Path(f"/proc/{pid}/exe").exists()]


def test_everything_else_is_answered_meanwhile(
    loop: LoopThread, link: Link, gpus: Gpus, stack: contextlib.ExitStack, tmp_path: Path
) -> None:
    """Other requests to the node, cells of a kernel that has its GPU, and all but the cells of one that waits."""
    gpus.report(2)
    log = tmp_path / "calls"
    served, remote = (loop.kernel(link, gpus=1) for _ in range(2))
    front, waiting = (open_front(loop, one, stack) for one in (served, remote))
    front.run("1")
    gpus.report(2, mode="wait", log=str(log))
    asked = asyncio.run_coroutine_threadsafe(link.request("gpus", timeout=DEADLINE), loop.loop)
    cell = waiting.client.execute(VISIBLE)
    until(remote, "waiting")
    wait_for(lambda: len(running(log)) >= 4, "both samples hang")

    states = {row["id"]: row["state"] for row in loop.run(link.request("list"))["kernels"]}
    assert states.items() >= {served.kernel_id: "idle", remote.kernel_id: "waiting"}.items()
    assert waiting.reply(waiting.client.kernel_info())["status"] == "ok"
    assert front.run(VISIBLE).text.strip() == gpus.uuids[0]
    assert loop.run(link.request("story", kernel=remote.kernel_id))["story"]
    assert not asked.done() and len(running(log)) >= 4, "it hangs still"

    gpus.report(2, log=str(log))
    assert [row["free"] for row in asked.result(DEADLINE)["gpus"]][:1] == [False]
    assert waiting.finish(cell).text.strip() == gpus.uuids[1]
    wait_for(lambda: not running(log), "the end of every nvidia-smi")
