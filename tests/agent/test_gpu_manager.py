"""GPUs for a kernel's cells: the kernel is told which, again after a while where it does not hear."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import List

from contexts import NO_CALLBACKS, context
from runtimes import ManualLoop, make

from jupyter_gpu_kernel.agent.gpus.manager import GpuManager
from jupyter_gpu_kernel.agent.process.kernel_requests import RETRY_AFTER, KernelRequests
from jupyter_gpu_kernel.wire.messages import Message


def test_a_kernel_that_aborts_what_it_is_asked_is_asked_again_after_a_pause(tmp_path: Path) -> None:
    loop = ManualLoop()
    asked: List[Message] = []

    def aborts(request: Message) -> None:
        asked.append(request)
        requests.handle(
            Message(request.channel, 0, make("execute_reply", {"status": "aborted"}, request.parts[0]))
        )

    requests = KernelRequests(loop, lambda request: loop.later(0, partial(aborts, request)), lambda: None)
    states: List[str] = []
    kernel = context(loop, tmp_path, id="k", gpus=0)
    manager = GpuManager(kernel, NO_CALLBACKS._replace(evaluate=requests.evaluate, on_state=states.append))
    manager._acquired()
    for times in (1, 2, 3):
        loop.advance()
        assert len(asked) == times, "asked again at once"
        loop.advance(RETRY_AFTER)
    assert not states
    loop.advance()
    requests.reset()  # another process, which is born with its GPUs
    loop.advance(RETRY_AFTER)
    assert len(asked) == 4
