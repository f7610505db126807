"""The wait for GPUs on one of a kernel's hosts: the reservation there, or why there is no reservation at the moment."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from ...errors import AgentError, AuthError, ConnectError, GpuKernelError, HostKeyError
from ...wire.runtime import Runtime
from ...wire.texts import STOP_HINT
from .. import sanitize
from ..background import BackgroundTasks
from ..kernel.remote_kernel import RemoteKernel
from ..kernel.states import LinkState
from ..node.node import Node
from .placement import Offer
from .reservation import Reservation

RETRY_AFTER = 30.0
"""Seconds until a host that could not be used is tried again."""
RECONNECT_AFTER = 5.0
"""Seconds until a host is tried again that could not be reached, or that waits for its user."""
CONNECT_WITHIN = 30.0


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
