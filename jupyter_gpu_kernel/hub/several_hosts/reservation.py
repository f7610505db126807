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


class Reservation:
    """The keeper, which is an `Attachment` of the link to its host. `on_change()` is called when `status`, `up` or
    `error` have changed."""

    def __init__(
        self,
        runtime: Runtime,
        kernel_id: str,
        settings: KernelSettings,
        owner: dict[str, str],
        link: Link,
        on_change: Callable[[], None],
    ) -> None:
        """`settings`: the settings of the kernel for this host."""
        self.kernel_id = kernel_id
        self.link = link
        self.endpoint = new_endpoint(runtime, None)
        self.status: dict[str, Any] = {"id": kernel_id, "state": "starting", "gpus": []}
        self.up = False
        self.was_up = False
        """Whether the keeper was started."""
        self.error: GpuKernelError | None = None
        self._settings = settings
        self._owner = owner
        self._on_change = on_change
        link.attach(self)

    @property
    def granted(self) -> bool:
        """Whether the keeper has its GPUs, and can be used."""
        has_gpus = bool(self.status["gpus"]) or not self._settings.gpus
        return self.up and has_gpus and self.status["state"] == "idle"

    async def cancel(self, why: str) -> None:
        """End the keeper. If its node cannot be reached meanwhile, it ends by itself."""
        settled = asyncio.Event()
        self._on_change = settled.set
        if not self.was_up and self.error is None:  # a keeper that is starting cannot be asked yet
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(settled.wait(), _START_WITHIN)
        self.link.release(self)
        await end_kernel(self.link, self.kernel_id, why)

    async def keep(self, requests: list[Message], placement: str) -> None:
        """Let the keeper be that of the kernel, and execute these requests: their front ends have left, and the
        notebook can return. `placement`: why this host was chosen."""
        notebook = self._settings.notebook
        with contextlib.suppress(GpuKernelError, asyncio.TimeoutError):
            await self.link.request("confirm", kernel=self.kernel_id, notebook=notebook, placement=placement)
            for request in requests:
                self.endpoint.send(lane_of_request(request), request.encode())
            self.link.pump(self.endpoint)
            await asyncio.wait_for(self._sent(), _SENT_WITHIN)
        self.link.release(self)

    async def _sent(self) -> None:
        while self.up and self.endpoint.outbox.size:
            await asyncio.sleep(_LOOK_EVERY)

    # -------------------------------------------------------------------------------------- calls of the link

    def open_request(self) -> dict[str, Any]:
        """Return the arguments of `open`: the first time, to create the keeper."""
        if self.was_up:
            return dict(self._owner)
        return {**self._owner, "create": self._settings.replace(reservation=True).to_json()}

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
            self.status = {key: value for key, value in event.items() if key != "event"}
            self._on_change()

    def attached(self) -> None:
        """The stream to the keeper is open, for the first time or after an outage."""
        self.was_up = self.up = True
        self._on_change()

    def detached(self, reason: str) -> None:
        """The link is down, and reconnects by itself."""
        self.up = False
        self._on_change()

    def lost(self, error: GpuKernelError) -> None:
        """The keeper does not exist (any more), or could not be started."""
        self.up = False
        self.error = error
        self._on_change()


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
