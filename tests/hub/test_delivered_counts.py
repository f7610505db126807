"""The counts that a killed hub leaves: what its front ends received, not what it had received itself."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest
from edges import KEY
from runtimes import RUNTIME, make

from jupyter_gpu_kernel.hub.front_end.delivered import Delivered
from jupyter_gpu_kernel.hub.front_end.front_ends import FrontEndSpec
from jupyter_gpu_kernel.hub.kernel.core import pacing
from jupyter_gpu_kernel.hub.kernel.kernel_state import HubContext, Origin
from jupyter_gpu_kernel.hub.kernel.remote_kernel import RemoteKernel
from jupyter_gpu_kernel.hub.kernel_settings import KernelSettings
from jupyter_gpu_kernel.hub.node.node_link import NoLink
from jupyter_gpu_kernel.wire.messages import Channel, Lane, Message
from jupyter_gpu_kernel.wire.stream.endpoint import Endpoint

URGENT = Message(Channel.CONTROL, 0, make("interrupt_reply", {}))


def output(number: int) -> Message:
    return Message(Channel.IOPUB, 0, make("stream", {"name": "stdout", "text": str(number)}))


class Keeper:
    """Another end of a kernel's message stream, played by the test."""

    def __init__(self, remote: RemoteKernel) -> None:
        self._remote = remote
        self._endpoint = Endpoint(RUNTIME, first=False)
        remote.endpoint.opened(1)
        self._endpoint.opened(1)
        for frame in remote.endpoint.outgoing():
            self._endpoint.receive(frame)
        self.send()
        remote.attached()

    def send(self, *messages: Message) -> None:
        for message in messages:
            lane = Lane.URGENT if message.channel is Channel.CONTROL else Lane.ORDERED
            self._endpoint.send(lane, message.encode())
        for frame in self._endpoint.outgoing():
            for data in self._remote.endpoint.receive(frame):
                self._remote.deliver(data)


def test_a_message_that_waits_for_its_turn_is_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another hub's keeper sends it again. A reply that overtakes it is counted at once."""
    monkeypatch.setattr(pacing, "MAX_MESSAGES", 1)  # per second, in a replay: the second one waits

    async def main() -> None:
        settings = KernelSettings.from_json({"id": "k1", "gpus": 0, "python": "python3", "name": "test"})
        context = HubContext(RUNTIME, logging.getLogger("tests"))
        origin = Origin(delivered=Delivered(tmp_path / "k1"))
        remote = RemoteKernel(context, "k1", settings, FrontEndSpec(dict(KEY)), NoLink("gpu2"), origin)
        try:
            keeper = Keeper(remote)
            keeper.send(*map(output, range(10)))
            keeper.send(URGENT)
            successor = Delivered(tmp_path / "k1")
            assert successor.counts == [1, 0, 1]
            successor.close()
        finally:
            remote.close()

    asyncio.run(main())
