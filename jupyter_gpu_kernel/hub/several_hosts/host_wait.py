"""The wait for GPUs on one of a kernel's hosts: the reservation there, or why there is no reservation at the moment.

A reservation is a keeper that only waits for its GPUs, of a kernel which has not been started. If this keeper gets its
GPUs first, it becomes the kernel's keeper: it is opened again, with settings that are not those of a reservation. Else
the hub ends it. It ends by itself when no hub is attached for a while.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from ...errors import AgentError, AuthError, ConnectError, GpuKernelError, HostKeyError
from ...wire.messages import Channel, Data, Message, MessageError
from ...wire.runtime import Runtime
from ...wire.texts import STOP_HINT
from .. import sanitize, validate
from ..background import BackgroundTasks
from ..front_end.requests import lane_of_request
from ..kernel.core.life import LinkState
from ..kernel.kernel_state import KernelState
from ..kernel.remote_kernel import RemoteKernel
from ..kernel_settings import KernelSettings
from ..node.attachments import new_endpoint
from ..node.link import Link
from ..node.node import Node
from ..node.node_link import NodeLink, stop_kernel
from .placement import Offer

_START_WITHIN = 30.0
"""Seconds for a keeper to start."""
_SENT_WITHIN = 10.0
"""Seconds for the last requests to reach the keeper."""
_LOOK_EVERY = 0.05
_END_WITHIN = 600.0
"""Seconds in which a host can be reached again, for the end of a kernel there."""
RETRY_AFTER = 30.0
"""Seconds until a host that could not be used is tried again."""
RECONNECT_AFTER = 5.0
"""Seconds until a host is tried again that could not be reached, or that waits for its user."""
CONNECT_WITHIN = 30.0


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
        await link.until_up()
        while not await stop_kernel(link, kernel_id, why):
            await link.until_up()

    with contextlib.suppress(GpuKernelError, asyncio.TimeoutError):
        await asyncio.wait_for(end(), _END_WITHIN)


class HostWait:
    """Call `begin` to wait on the host, and to try again what has failed; then read `granted` and `text`.

    `error`: why the kernel cannot get GPUs there now, as far as is known.
    """

    def __init__(
        self,
        runtime: Runtime,
        remote: RemoteKernel,
        owner: dict[str, str],
        offer: Offer,
        is_reserved: Callable[[Node], bool],
    ) -> None:
        """`remote`: the kernel, which has not been started. `offer`: what the host has offered before, or why the host
        made no offer. `is_reserved(node)`: whether the kernel has a reservation on that machine."""
        self.node = offer.node
        self.settings = offer.settings
        self.reservation: Reservation | None = None
        self.error = offer.error
        self._runtime = runtime
        self._remote = remote
        self._owner = owner
        self._is_reserved = is_reserved
        self._is_trying = False
        self._task: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None  # the end of the last reservation
        self._tasks = BackgroundTasks()

    @property
    def granted(self) -> bool:
        """Whether the kernel has its GPUs on this host."""
        return self.reservation is not None and self.reservation.granted

    @property
    def occupies(self) -> bool:
        """Whether the host may have a reservation, which waits or is ending."""
        return self.reservation is not None or (self._ending is not None and not self._ending.done())

    @property
    def unable(self) -> bool:
        """Whether the kernel cannot get GPUs on this host now."""
        return self.error is not None and not self._is_trying

    @property
    def _needs_user(self) -> bool:
        """Whether the host can be used only when the user has signed in."""
        return isinstance(self.error, AuthError | HostKeyError) and not self.node.alive

    @property
    def waits_for_network(self) -> bool:
        """Whether the host can be used as soon as it can be reached again."""
        return self.error is not None and self.error.is_transient

    @property
    def text(self) -> str:
        """What the waiting cell shows of the host."""
        name, reservation = self.node.name, self.reservation
        if self.error is not None:
            return f"{name}: {sanitize.one_line(self.error.cause)}; tried again later"
        if reservation is None:
            return f"{name}: asking"
        if reservation.link_state is not LinkState.UP:
            is_down = reservation.was_attached
            return f"{name}: {'the connection is down' if is_down else 'a kernel is starting there'}"
        return str(reservation.status.get("waiting_text") or f"{name}: looking for GPUs")

    @property
    def other_text(self) -> str:
        """What the waiting cell shows of the host behind another host."""
        text = self.text.replace(STOP_HINT, "")
        return f"Or {text if text.startswith(self.node.name) else text[:1].lower() + text[1:]}"

    def begin(self) -> None:
        """Begin to wait for GPUs on this host, until `take` is called. Does nothing if the wait has begun."""
        if self._task is None:
            self._is_trying = not self._needs_user
            self._task = self._tasks.spawn(self._run())

    async def _run(self) -> None:
        while True:
            self._is_trying = not self._needs_user
            if self._is_trying:
                self.error = await self._reserve()
                self.reservation, self._is_trying = None, False
                self._remote.wake()
            soon = self._needs_user or self.error is None or self.waits_for_network
            await asyncio.sleep(RECONNECT_AFTER if soon else RETRY_AFTER)
            if self._ending is not None:  # its late `stop` would end the next one, which has the same id
                await asyncio.wait({self._ending})

    async def _reserve(self) -> GpuKernelError | None:
        """Start a keeper with the kernel's id on the host, which waits for its GPUs. Return when that has failed: the
        reason, or None if the host may be usable now."""
        node = self.node
        try:
            python = self.settings.python or node.python or await node.best_python(None)
            link = await asyncio.wait_for(node.link(python, None), CONNECT_WITHIN)
        except GpuKernelError as error:
            return error
        except asyncio.TimeoutError:
            return ConnectError("no answer", hop=node.name)
        if self._is_reserved(node):
            return AgentError("another one of the hosts is the same machine", hop=node.name)
        given = self._remote.settings.replace(route=self.settings.route)
        self.settings, self.error = given.placed(python, "waits here for its GPUs"), None
        reservation = self.reservation = Reservation(
            self._runtime, self._remote.kernel_id, self.settings, self._owner, link, self._remote.wake
        )
        await reservation.until(lambda: bool(reservation.error or reservation.status.get("problem")))
        if reservation.error is not None:
            return None if reservation.was_attached else reservation.error
        problem = str(reservation.status["problem"])
        self._ending = self._tasks.spawn(reservation.cancel(problem))
        return AgentError(problem, hop=node.name)

    async def set_priority(self, priority: int) -> None:
        """Change the place of the reservation in the host's queue."""
        reservation = self.reservation
        if reservation is not None and reservation.link_state is LinkState.UP:
            with contextlib.suppress(GpuKernelError):
                await reservation.link.request("priority", kernel=reservation.kernel_id, priority=priority)

    def take(self) -> Reservation | None:
        """End the wait on this host, and return the reservation."""
        if self._task is not None:
            self._task.cancel()
        reservation, self.reservation = self.reservation, None
        return reservation
