"""A second keeper of a kernel that waits for GPUs on several hosts. It waits on another host, and runs no cell.

If this keeper gets its GPUs first, `RemoteKernel.move` takes over its endpoint and its place on the link. The keeper
ends by itself when the hub does not renew the reservation.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from ...errors import GpuKernelError
from ...wire.messages import Channel, Data, Lane, MessageError, keeper_message
from ...wire.runtime import Runtime
from .. import validate
from ..kernel_settings import KernelSettings
from ..node.attachments import new_endpoint
from ..node.link import Link

_START_WITHIN = 30.0
"""Seconds for a keeper to start."""


class Reservation:
    """The second keeper, which is an `Attachment` of the link to its host. `on_change()` is called when `status`, `up`
    or `error` have changed."""

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
        self.settings = settings
        self.link = link
        self.endpoint = new_endpoint(runtime, None)
        self.status: dict[str, Any] = {"id": kernel_id, "state": "starting", "gpus": []}
        self.up = False
        self.error: GpuKernelError | None = None
        self._owner = owner
        self._created = False
        self._on_change = on_change
        link.attach(self)

    @property
    def was_up(self) -> bool:
        """Whether the keeper was started."""
        return self._created

    @property
    def granted(self) -> bool:
        """Whether the keeper has its GPUs, and can be used. A keeper that got its GPUs in an outage calls itself
        idle."""
        return self.up and bool(self.status["gpus"]) and self.status["state"] in ("waiting", "idle")

    def renew(self) -> None:
        """Let the keeper wait on."""
        if self.up:
            self.endpoint.send(Lane.URGENT, keeper_message(do="standby").encode())
            self.link.pump(self.endpoint)

    async def set_priority(self, priority: int | None) -> None:
        """Give the keeper the priority that the kernel has by now."""
        if self.up and priority is not None and priority != self.status.get("priority"):
            with contextlib.suppress(GpuKernelError):
                await self.link.request("priority", kernel=self.kernel_id, priority=priority)

    async def cancel(self, why: str) -> None:
        """End the keeper; a keeper whose node cannot be reached ends by itself."""
        settled = asyncio.Event()
        self._on_change = settled.set
        if not self._created and self.error is None:  # a keeper that is starting cannot be asked yet
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(settled.wait(), _START_WITHIN)
        self.link.release(self)
        with contextlib.suppress(GpuKernelError):
            await self.link.request("stop", kernel=self.kernel_id, why=why)

    # -------------------------------------------------------------------------------------- calls of the link

    def open_request(self) -> dict[str, Any]:
        """Return the arguments of `open`: the first time, to create the keeper."""
        if self._created:
            return dict(self._owner)
        # Its notebook must not find it, but is shown in the queue.
        notebook = self.settings.notebook
        settings = self.settings.replace(notebook="", reserved_for=notebook, standby="now")
        return {**self._owner, "create": settings.to_json()}

    def opened(self, kernel_id: str) -> None:
        """The agent has opened a stream to the keeper."""
        self.kernel_id = kernel_id

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
        self._created = self.up = True
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
