"""A kernel's context without a keeper."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

from runtimes import RUNTIME

from jupyter_gpu_kernel.agent.gpus.manager import GpuCallbacks
from jupyter_gpu_kernel.agent.gpus.sharing.lease_transfer import new_queue
from jupyter_gpu_kernel.agent.kernel_context import KernelContext
from jupyter_gpu_kernel.agent.kernel_settings import CurrentSettings, KernelSettings
from jupyter_gpu_kernel.agent.paths import Root
from jupyter_gpu_kernel.agent.story import Story
from jupyter_gpu_kernel.agent.system.loop import Loop

_queues: list[socket.socket] = []
"""As long as the tests run: a keeper has its own until it ends."""


def context(loop: Loop, folder: Path, **settings: Any) -> KernelContext:
    """Of a kernel with these settings, whose files are in `folder`, with its story in the file `story`."""
    current, story = CurrentSettings(KernelSettings(**settings)), Story(folder / "story", RUNTIME.time)
    _queues.append(new_queue(loop.runtime, folder))
    return KernelContext(loop, current, Root(folder), folder, story, _queues[-1])


NO_CALLBACKS = GpuCallbacks(lambda expression, on_result: None, lambda event: None, lambda state: None, dict)
"""For a GPU manager without a kernel and without a hub."""
