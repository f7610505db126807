"""GPUs for a kernel's cells: the kernel is told which, again after a while where it does not hear."""

from __future__ import annotations

from pathlib import Path
from typing import List

from runtimes import RUNTIME, make

from jupyter_gpu_kernel.agent.gpus.manager import GpuManager
from jupyter_gpu_kernel.agent.loop import Loop
from jupyter_gpu_kernel.agent.relay.requests import InternalRequests
from jupyter_gpu_kernel.agent.story import Story
from jupyter_gpu_kernel.wire.answers import Answers
from jupyter_gpu_kernel.wire.compose import Parts
from jupyter_gpu_kernel.wire.messages import Channel, Message


def test_a_kernel_that_aborts_what_it_is_asked_is_asked_again_after_a_pause(tmp_path: Path) -> None:
    loop = Loop(RUNTIME)
    asked: List[Parts] = []

    def aborts(channel: Channel, client: int, parts: Parts) -> None:
        asked.append(parts)
        reply = Message(channel, client, make("execute_reply", {"status": "aborted"}, parts[0]))
        questions.handle(reply)

    def look() -> None:
        loop.stop() if len(asked) == 3 else loop.later(0.01, look)

    questions = InternalRequests(RUNTIME, aborts)
    states: List[str] = []
    manager = GpuManager(
        loop, {"id": "k", "gpus": 0}, tmp_path, lambda *said: None, Answers(lambda *said: None),
        lambda cell: None, questions, Story(tmp_path / "story", RUNTIME.time), states.append, dict,
    )  # fmt: skip
    manager._tell_kernel()
    assert len(asked) == 1, "asked again at once"
    look()
    loop.run()
    assert not states
    manager.kernel_started()  # another process, which is born with its GPUs
    loop.later(0.3, loop.stop)
    loop.run()
    assert len(asked) == 3
