"""A keeper that only waits for its GPUs, on one of the hosts of a kernel which has not been started.

If this keeper gets its GPUs first, it becomes the kernel's keeper: it is opened again, with settings that are not those
of a reservation. Else the hub ends it. It ends by itself when no hub is attached for a while.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from ...errors import ConnectError, GpuKernelError
from ...wire.messages import Channel, Data, Message, MessageError
from ...wire.runtime import Runtime
from .. import validate
from ..front_end.requests import lane_of_request
from ..kernel.kernel_state import KernelState
from ..kernel.states import LinkState
from ..kernel_settings import KernelSettings
from ..node.attachments import new_endpoint
from ..node.link import Link
from ..node.node_link import NodeLink

_START_WITHIN = 30.0
"""Seconds for a keeper to start."""
_SENT_WITHIN = 10.0
"""Seconds for the last requests to reach the keeper."""
_LOOK_EVERY = 0.05
_END_WITHIN = 600.0
"""Seconds in which a host can be reached again, for the end of a kernel there."""


class Reservation(KernelState):
    """The keeper, without front ends. For the link to its host it is an `Attachment`."""

    def __init__(
        self,
        runtime: Runtime,
        kernel_id: str,
        settings: KernelSettings,
        owner: dict[str, str],
        link: Link,
        on_change: Callable[[], None],
    ) -> None:
        """`settings`: the settings of the kernel for this host. `on_change()` is called after each change."""
        super().__init__(kernel_id, settings.replace(reservation=True), link)
        self.endpoint = new_endpoint(runtime, None)
        self._owner = owner
        self._on_change = on_change
        link.attach(self)

    def wake(self) -> None:
        """Tell the caller, too, that something has changed."""
        super().wake()
        self._on_change()

    @property
    def granted(self) -> bool:
        """Whether the keeper has its GPUs, and can be used."""
        has_gpus = bool(self.status["gpus"]) or not self.settings.gpus
        return self.link_state is LinkState.UP and has_gpus and self.status["state"] == "idle"

    async def cancel(self, why: str) -> None:
        """End the keeper, which ends by itself if its node cannot be reached."""
        self._on_change = lambda: None
        # A keeper that is starting cannot be asked yet.
        await self.until(lambda: self.was_attached or self.error is not None, _START_WITHIN)
        self.link.release(self)
        await end_kernel(self.link, self.kernel_id, why)

    async def keep(self, requests: list[Message], placement: str) -> None:
        """Let the keeper be that of the kernel, and execute these requests: their front ends have left, and the
        notebook can return. `placement`: why this host was chosen."""
        notebook = self.settings.notebook
        with contextlib.suppress(GpuKernelError, asyncio.TimeoutError):
            await self.link.request("confirm", kernel=self.kernel_id, notebook=notebook, placement=placement)
            for request in requests:
                self.endpoint.send(lane_of_request(request), request.encode())
            self.link.pump(self.endpoint)
            await asyncio.wait_for(self._sent(), _SENT_WITHIN)
        self.link.release(self)

    async def _sent(self) -> None:
        while self.link_state is LinkState.UP and self.endpoint.outbox.size:
            await asyncio.sleep(_LOOK_EVERY)

    # -------------------------------------------------------------------------------------- calls of the link

    def open_request(self) -> dict[str, Any]:
        """Return the arguments of `open`: the first time, to create the keeper."""
        return {**self._owner, **self.open_arguments}

    def opened(self, kernel_id: str) -> None:
        """The agent has opened a stream to the keeper."""

    def deliver(self, data: Data) -> None:
        """Take a message of the keeper, of which only the status matters."""
        message = validate.message(data)
        if message.channel is not Channel.KEEPER:
            return
        try:
            event = validate.keeper_event(message.content())
        except (validate.Malformed, MessageError):
            return
        if event.get("event") == "state" and event["state"]:
            self.life.status = {key: value for key, value in event.items() if key != "event"}
            self.notify()

    def attached(self) -> None:
        """The stream to the keeper is open, for the first time or after an outage."""
        self.open_arguments = {}
        self.set_link_state(LinkState.UP)

    def detached(self, reason: str) -> None:
        """The link is down, and reconnects by itself."""
        self.set_link_state(LinkState.AWAY if self.was_attached else LinkState.CONNECTING)

    def lost(self, error: GpuKernelError) -> None:
        """The keeper does not exist (any more), or could not be started."""
        self.life.error = error
        self.set_link_state(LinkState.LOST)


async def end_kernel(link: NodeLink, kernel_id: str, why: str) -> None:
    """End a kernel that nobody uses, also on a host that can be reached again only later."""

    async def end() -> None:
        while True:
            await link.until_up()
            with contextlib.suppress(ConnectError):  # the link went down again
                await link.request("stop", kernel=kernel_id, why=why)
                return

    with contextlib.suppress(GpuKernelError, asyncio.TimeoutError):
        await asyncio.wait_for(end(), _END_WITHIN)
