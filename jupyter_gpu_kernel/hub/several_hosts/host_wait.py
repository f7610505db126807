"""The wait for GPUs on one of a kernel's hosts: its reservation there, or why there is none at the moment."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from ...errors import AgentError, AuthError, ConnectError, GpuKernelError, HostKeyError
from ...wire.runtime import Runtime
from ...wire.texts import STOP_HINT
from .. import sanitize
from ..background import BackgroundTasks
from ..kernel_settings import KernelSettings
from .placement import Offer
from .reservation import Reservation

RETRY_AFTER = 30.0
"""Seconds until a host that could not be used is tried again."""
RECONNECT_AFTER = 5.0
"""The same for a host that could not be reached."""
CONNECT_WITHIN = 30.0


class HostWait:
    """Call `update` to begin the wait, and to try again what has failed; then read `granted` and `text`.

    `error`: why the kernel cannot get GPUs there now, as far as is known.
    """

    def __init__(
        self,
        runtime: Runtime,
        kernel_id: str,
        owner: dict[str, str],
        offer: Offer,
        on_change: Callable[[], None],
    ) -> None:
        """`kernel_id`: the id of the first reservation. `offer`: what the host has offered before, or why it made no
        offer."""
        self.node = offer.node
        self.settings = offer.settings
        self.reservation: Reservation | None = None
        self.error = offer.error
        self._runtime = runtime
        self._kernel_id = kernel_id
        self._owner = owner
        self._on_change = on_change
        self._opening = self._withdrawn = False
        self._retry_at = 0.0
        self._tasks = BackgroundTasks()

    @property
    def granted(self) -> bool:
        """Whether the kernel has its GPUs there."""
        return self.reservation is not None and self.reservation.granted

    @property
    def unable(self) -> bool:
        """Whether the kernel cannot get GPUs there now."""
        return self.error is not None and not self._opening

    @property
    def waits_for_network(self) -> bool:
        """Whether the host can be used as soon as it can be reached again."""
        return isinstance(self.error, ConnectError) and not isinstance(self.error, AuthError | HostKeyError)

    @property
    def text(self) -> str:
        """What the waiting cell shows of the host."""
        name, reservation = self.node.name, self.reservation
        if self.error is not None:
            return f"{name}: {sanitize.one_line(self.error.cause)}; tried again later"
        if reservation is None:
            return f"{name}: asking"
        if not reservation.up:
            return (
                f"{name}: {'the connection is down' if reservation.was_up else 'a kernel is starting there'}"
            )
        return str(reservation.status.get("waiting_text") or f"{name}: looking for GPUs")

    @property
    def other_text(self) -> str:
        """What the waiting cell shows of the host behind another host."""
        text = self.text.replace(STOP_HINT, "")
        return f"Or {text if text.startswith(self.node.name) else text[:1].lower() + text[1:]}"

    def update(self, settings: KernelSettings) -> None:
        """Take note of a reservation that has failed, and open one if there is none. `settings`: the settings of the
        kernel, which has not been started."""
        if self.reservation is not None:
            self._look_at(self.reservation)
        due = asyncio.get_running_loop().time() >= self._retry_at
        needs_user = isinstance(self.error, AuthError | HostKeyError) and not self.node.alive
        if self.reservation is None and not self._opening and due and not needs_user:
            self._opening = True
            self._tasks.spawn(self._open(settings))

    def _look_at(self, reservation: Reservation) -> None:
        problem = reservation.status.get("problem")
        if reservation.error is not None:
            self._fail(None if reservation.was_up else reservation.error)
        elif problem:
            self._tasks.spawn(reservation.cancel(str(problem)))
            self._fail(AgentError(str(problem), hop=self.node.name))

    def _fail(self, error: GpuKernelError | None) -> None:
        """There is no reservation; another attempt follows later. `error`: why; None if the host may be usable now."""
        self.reservation, self.error, self._opening = None, error, False
        self._kernel_id = self._runtime.new_id()[:12]
        pause = RECONNECT_AFTER if error is None or self.waits_for_network else RETRY_AFTER
        self._retry_at = asyncio.get_running_loop().time() + pause

    async def _open(self, given: KernelSettings) -> None:
        """Start a keeper there, which waits for its GPUs."""
        node, link = self.node, None
        try:
            python = self.settings.python or node.python or await node.best_python(None)
            link = await asyncio.wait_for(node.link(python, None), CONNECT_WITHIN)
        except GpuKernelError as error:
            self._fail(error)
        except asyncio.TimeoutError:
            self._fail(ConnectError("no answer", hop=node.name))
        if link is not None and not self._withdrawn:
            self.settings = given.replace(route=self.settings.route).placed(python, "waits here for its GPUs")
            self.error, self._opening = None, False
            self.reservation = Reservation(
                self._runtime, self._kernel_id, self.settings, self._owner, link, self._on_change
            )
        self._on_change()

    async def set_priority(self, priority: int) -> None:
        """Change the place in the queue there."""
        reservation = self.reservation
        if reservation is not None and reservation.up:
            with contextlib.suppress(GpuKernelError):
                await reservation.link.request("priority", kernel=reservation.kernel_id, priority=priority)

    def take(self) -> Reservation | None:
        """End the wait on this host, and return the reservation."""
        self._withdrawn = True
        reservation, self.reservation = self.reservation, None
        return reservation
