"""A kernel's context without a keeper."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from runtimes import RUNTIME

from jupyter_gpu_kernel.agent.kernel_context import KernelContext
from jupyter_gpu_kernel.agent.kernel_settings import CurrentSettings, KernelSettings
from jupyter_gpu_kernel.agent.paths import Root
from jupyter_gpu_kernel.agent.relay.internal_requests import InternalRequests
from jupyter_gpu_kernel.agent.relay.waiting import Reason
from jupyter_gpu_kernel.agent.story import Story
from jupyter_gpu_kernel.agent.system.loop import Loop
from jupyter_gpu_kernel.agent.system.process_control import ProcessControl
from jupyter_gpu_kernel.wire.messages import Channel


def context(loop: Loop, folder: Path, **settings: Any) -> KernelContext:
    """Of a kernel with these settings, whose files are in `folder`, with its story in the file `story`."""
    current, story = CurrentSettings(KernelSettings(**settings)), Story(folder / "story", RUNTIME.time)
    return KernelContext(loop, ProcessControl(), current, Root(folder), folder, story)


class Messages(NamedTuple):
    """What a GPU manager sends, to nobody."""

    internal_requests: InternalRequests

    def send(
        self, channel: Channel, client: int, msg_type: str, content: dict[str, Any], parent: bytes
    ) -> None:
        """Send nothing."""

    def resume(self, reason: Reason) -> None:
        """No cell waits."""

    def fail_cells(self, name: str, reason: str) -> None:
        """No cell waits."""
