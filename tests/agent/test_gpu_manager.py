"""GPUs for a kernel's cells: the kernel is told which, again after a while where it does not hear."""

from __future__ import annotations

from pathlib import Path
from typing import List

from contexts import Messages, context
from runtimes import RUNTIME, ManualLoop, make

from jupyter_gpu_kernel.agent.gpus.manager import RETRY_AFTER, GpuCallbacks, GpuManager
from jupyter_gpu_kernel.agent.relay.internal_requests import InternalRequests
from jupyter_gpu_kernel.wire.kernel_messages.compose import Parts
from jupyter_gpu_kernel.wire.messages import Channel, Message


def test_a_kernel_that_aborts_what_it_is_asked_is_asked_again_after_a_pause(tmp_path: Path) -> None:
    loop = ManualLoop()
    asked: List[Parts] = []

    def aborts(channel: Channel, client: int, parts: Parts) -> None:
        asked.append(parts)
        reply = Message(channel, client, make("execute_reply", {"status": "aborted"}, parts[0]))
        questions.handle(reply)

    questions = InternalRequests(RUNTIME, aborts)
    states: List[str] = []
    kernel = context(loop, tmp_path, id="k", gpus=0)
    manager = GpuManager(kernel, Messages(questions), GpuCallbacks(states.append, dict))
    manager._inform_kernel()
    for times in (1, 2, 3):
        loop.advance()
        assert len(asked) == times, "asked again at once"
        loop.advance(RETRY_AFTER)
    assert not states
    manager.kernel_started()  # another process, which is born with its GPUs
    loop.advance(RETRY_AFTER)
    assert len(asked) == 4
