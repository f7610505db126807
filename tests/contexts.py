"""A kernel's context without a keeper."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from runtimes import RUNTIME

from jupyter_gpu_kernel.agent.kernel_context import KernelContext
from jupyter_gpu_kernel.agent.kernel_settings import CurrentSettings, KernelSettings
from jupyter_gpu_kernel.agent.loop import Loop
from jupyter_gpu_kernel.agent.process_control import ProcessControl
from jupyter_gpu_kernel.agent.relay.requests import InternalRequests
from jupyter_gpu_kernel.agent.story import Story
from jupyter_gpu_kernel.wire.kernel_messages.answers import Answers
from jupyter_gpu_kernel.wire.messages import Channel, Message


def context(loop: Loop, folder: Path, **settings: Any) -> KernelContext:
    """Of a kernel with these settings, whose story is in `folder`."""
    current = CurrentSettings(KernelSettings(**settings))
    return KernelContext(loop, ProcessControl(), current, folder, Story(folder / "story", RUNTIME.time))


class Messages(NamedTuple):
    """What a GPU manager sends, to nobody."""

    internal_requests: InternalRequests
    answers: Answers = Answers(lambda *message: None)

    def send(
        self, channel: Channel, client: int, msg_type: str, content: dict[str, Any], parent: bytes
    ) -> None:
        """Send nothing."""

    def release(self, cell: Message) -> None:
        """Send nothing."""
