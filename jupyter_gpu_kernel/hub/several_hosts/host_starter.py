"""Starts one kernel on one of several hosts, when a cell of its user waits.

The kernel waits for its GPUs by reservations: on the best host first, and a moment later on all of them. The first
reservation that has its GPUs becomes the kernel, and the others are withdrawn. The kernel stays on its host as long as
it exists; a restart chooses anew if the host or its GPUs are lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from ...errors import GpuKernelError
from ...wire.runtime import Runtime
from ..kernel.core.events import StatusKnown, WaitExplained
from ..kernel.core.life import LinkState
from ..kernel.remote_kernel import RemoteKernel
from ..kernel.starter import LeftKernel, Starter
from ..kernel_settings import KernelSettings
from ..node.node import Node
from ..node.node_link import NodeLink, NoLink
from ..node.nodes import Nodes, none_usable, not_found
from ..rpc import Call
from .host_wait import HostWait, Reservation, end_kernel
from .placement import Offer, Placement, left_out

OPEN_AFTER = 2.0
"""Seconds that a cell waits on the best host before GPUs are reserved on the others, and before the cell shows
why it waits."""
OFFERS_KEEP = 30.0
"""Seconds for which the offers of the hosts are believed."""
LOOK_EVERY = 5.0
ASK_WITHIN = 10.0
"""Seconds for a host to answer whether a kernel's GPUs can still be used."""
DROP_WITHIN = 5.0
"""Seconds in which a link may come back before a restart chooses another host."""
START_WITHIN = 30.0
"""Seconds for a reservation to become the kernel, before the kernel waits on all hosts again."""
_MAX_TEXT = 10_000
_FIRST = "its GPUs were free first"


class HostStarter(Starter):
    """Starts one kernel on the best of its hosts."""

    def __init__(self, runtime: Runtime, nodes: Nodes, placement: Placement, log: logging.Logger) -> None:
        super().__init__(runtime, nodes.no_link, log)
        self._nodes = nodes
        self._placement = placement
        self._offers: list[Offer] = []
        self._known_host: KernelSettings | None = None  # where the kernel is to start without a reservation
        self._waits: list[HostWait] = []

    async def prepare(self, settings: KernelSettings, call: Call, restarted_on: str) -> KernelSettings:
        """Ask all hosts what they offer. Return settings that lead to a host if the kernel is there that the notebook
        has left, or that is restarted. Raises the error if no host can be used."""
        offers = self._offers = await self._placement.ask(settings, call, restarted_on)
        best, errors = offers[0], {one.node.name: one.error for one in offers if one.error is not None}
        if best.error is not None:
            raise none_usable(errors)
        if best.node.name == restarted_on:
            return self._placed(settings, best, f"the kernel was restarted there{left_out(offers)}")
        if best.detached_since:
            return self._placed(settings, best, best.reason)
        call.progress("", f"{best.node.name} is the best host now: {best.reason}{left_out(offers)}")
        return settings

    def _placed(self, settings: KernelSettings, offer: Offer, reason: str) -> KernelSettings:
        """Return settings that lead to this host."""
        text = f"{offer.node.name} was chosen: {reason}"
        settings = settings.replace(route=offer.settings.route).placed(offer.python, text)
        self._placement.remember(settings)
        return settings

    # -------------------------------------------------------------------------------------- calls of the kernel

    def restart(self, remote: RemoteKernel) -> None:
        """Prepare for another kernel. The present one may still exist on a lost host, and must not be found there."""
        if remote.link_state is not LinkState.LOST:
            self._tasks.spawn(end_kernel(remote.link, remote.kernel_id, "restarted on another host"))
        self._offers = []
        self._undo(remote)
        remote.settings = remote.settings.replace(fresh=True)

    def replace(self, remote: RemoteKernel, left: LeftKernel, stop: Callable[[], Awaitable[None]]) -> bool:
        """Start the kernel `remote` on the host of the kernel `left`, which the front end restarts by that, and then
        call `stop`. Return False if that host cannot be reached, or the kernel `left` was not started: then it must not
        wait on for GPUs on one of the hosts."""
        settings = left.settings
        if isinstance(left.link, NoLink):
            remote.settings = remote.settings.replace(fresh=True)
            for node in filter(lambda one: one.linked, map(self._nodes.of, settings.each_host())):
                link = node.begin_link(node.python, None)
                self._tasks.spawn(
                    end_kernel(link, left.kernel_id, "restarted by its front end, with a new kernel")
                )
        linked = settings.given_python is not None and self._nodes.of(settings).linked
        if not (remote.not_started and linked):
            return False
        known = remote.settings.replace(route=settings.route, fresh=True)
        self._known_host = known.placed(settings.python, settings.placement)
        self._stop_replaced = stop
        remote.wake()
        return True

    async def find_left(self, remote: RemoteKernel, notebook: str) -> bool:
        """Find the kernel that the notebook, which is known now, has left on a host; return True when it is used."""
        settings = remote.settings.before_start().replace(notebook=notebook, gpus=0)
        best = (await self._placement.ask(settings, None))[0]
        if not best.detached_since or not len(remote.front_ends):
            return False
        remote.settings = remote.settings.replace(notebook=notebook)
        if not remote.not_started:
            self._undo(remote)
        self._known_host = self._placed(remote.settings, best, best.reason)
        remote.wake()
        await remote.until(lambda: not remote.not_started or self._known_host is None)
        return not remote.not_started

    async def host_lost(self, remote: RemoteKernel) -> bool:
        """Return whether the kernel's host cannot be reached, or one of its GPUs cannot be used any more."""
        if remote.not_started:
            return False
        if remote.link_state is LinkState.AWAY:  # perhaps for a moment only
            with contextlib.suppress(GpuKernelError, asyncio.TimeoutError):
                await asyncio.wait_for(remote.link.up(), DROP_WITHIN)
        if remote.link_state is LinkState.LOST or remote.link.state != "up":
            return True
        gpus = remote.status["gpus"]
        if not gpus:
            return False
        try:
            answer = await remote.link.request("offer", ASK_WITHIN, gpus=remote.settings.gpus)
        except GpuKernelError:
            return remote.link.state != "up"
        usable = answer.get("usable") or []
        return bool(usable or answer.get("problem")) and not set(gpus) <= set(usable)

    async def set_priority(self, remote: RemoteKernel, priority: int) -> None:
        """Change the priority of all reservations."""
        await super().set_priority(remote, priority)
        await asyncio.gather(*(one.set_priority(priority) for one in self._waits))

    # -------------------------------------------------------------------------------------- one start

    @property
    def _knows_place(self) -> bool:
        return self._known_host is not None

    async def _start(self, remote: RemoteKernel) -> None:
        """Start the kernel at the known host, or on the first host that grants its GPUs."""
        while remote.must_be_found and not self._knows_place:
            await self._find(remote)
        settings = self._known_host
        if settings is None:
            return await self._wait_for_gpus(remote)
        link = self._nodes.of(settings).begin_link(settings.python, None)
        try:
            await self._start_at(remote, link, settings)
        finally:
            self._known_host = None
            remote.wake()

    async def _find(self, remote: RemoteKernel) -> None:
        """Look on all hosts for the kernel that a killed hub has used, or for its notebook's. Raise an error if no host
        has it; if one of them has not answered, wait until they may be asked again."""
        best, *others = await self._placement.ask(remote.settings.replace(id=remote.kernel_id), None)
        if best.detached_since:
            self._known_host = self._placed(remote.settings, best, best.reason)
        elif not any(one.error for one in (best, *others)):
            raise not_found(remote.kernel_id, [])
        else:
            await asyncio.sleep(LOOK_EVERY)

    async def _start_at(
        self, remote: RemoteKernel, link: NodeLink, settings: KernelSettings, within: float | None = None
    ) -> None:
        """Start the kernel on the host of the link. Raises the reason if that fails. `within`: the seconds in which the
        kernel must have been started; None: as many as it takes, also until the host can be reached."""
        kernel_id = remote.kernel_id
        self._nodes.record_start(kernel_id, self._nodes.of(settings))
        if await self._start_on(remote, link, settings, within):
            return
        self._tasks.spawn(end_kernel(link, kernel_id, "it is not needed any more"))
        if self._lost is not None:
            raise self._lost
        if not remote.closed:
            await self._give_up(remote)

    async def _wait_for_gpus(self, remote: RemoteKernel) -> None:
        """Wait on all hosts, and start the kernel on the first one that grants its GPUs."""
        offers, self._offers = self._offers, []
        now = asyncio.get_running_loop().time()
        if not offers or now > max(one.at for one in offers) + OFFERS_KEEP:
            offers = await self._placement.ask(remote.settings, None)
        best = offers[0]
        if best.detached_since:
            self._known_host = self._placed(remote.settings, best, best.reason)
            return
        self._show_waiting(remote)
        self._waits = [
            HostWait(self._runtime, remote, self._placement.owner, offer, self._waits_on_machine)
            for offer in offers
        ]
        try:
            winner = await self._first_granted(remote)
            granted = winner.take() if winner is not None else None
        finally:
            self._withdraw(remote)
        if winner is not None and granted is not None:
            as_offered = winner.node is best.node and best.enough
            reason = best.reason + left_out(offers) if as_offered else _FIRST
            return await self._start_granted(remote, winner.settings, granted, reason)
        # No cell waits any more. The kernel gets another id before the next wait, as reservations with this id may
        # still be ending. (Within one wait the id stays: each `HostWait` lets a reservation end before the next.)
        if not remote.closed and remote.status["state"] == "waiting":
            remote.report(StatusKnown({"state": "idle", "place": None}, wanted=True))
        await self._give_up(remote)

    async def _first_granted(self, remote: RemoteKernel) -> HostWait | None:
        """Return the first host that grants the GPUs; None if no cell waits any more."""
        loop, first = asyncio.get_running_loop(), self._waits[0]
        begun = loop.time()
        while remote.waiting_cells and not (remote.closed or remote.end_wanted or self._known_host):
            is_over = loop.time() >= begun + OPEN_AFTER
            for wait in self._waits if is_over or first.unable else [first]:
                wait.begin()
            granted = next((one for one in self._waits if one.granted), None)
            if granted is not None and not remote.core.held:
                return granted
            self._raise_if_unable()
            if is_over:
                self._show(remote)
            await remote.change(LOOK_EVERY if is_over else max(0.0, begun + OPEN_AFTER - loop.time()))
        return None

    def _waits_on_machine(self, node: Node) -> bool:
        """Return whether there is a reservation on the machine of this node, perhaps under another name, or ending."""
        return any(one.occupies and one.node.same_as(node) for one in self._waits)

    def _raise_if_unable(self) -> None:
        """Raise the reasons if no host can give GPUs, unless that may be different when the network is back."""
        errors = {one.node.name: one.error for one in self._waits if one.unable and one.error is not None}
        if len(errors) == len(self._waits) and not all(one.waits_for_network for one in self._waits):
            raise none_usable(errors)

    def _show(self, remote: RemoteKernel) -> None:
        first, *others = self._waits
        text = "\n".join([first.text, *(one.other_text for one in others)])
        remote.report(WaitExplained(text[:_MAX_TEXT]))
        statuses = [one.reservation.status for one in self._waits if one.reservation is not None]
        place = min((int(one["place"]) for one in statuses if one.get("place")), default=None)
        if place != remote.status.get("place"):
            remote.report(StatusKnown({"place": place}))

    async def _start_granted(
        self, remote: RemoteKernel, settings: KernelSettings, granted: Reservation, reason: str
    ) -> None:
        """The reservation becomes the kernel. `settings`: those of the reservation."""
        link, known = granted.link, remote.settings
        placement = f"{link.name} was chosen: {reason}"
        settings = settings.replace(notebook=known.notebook, priority=known.priority, placement=placement)
        self._placement.remember(settings)
        link.release(granted)
        await self._start_at(remote, link, settings, START_WITHIN)

    # -------------------------------------------------------------------------------------- the end of the wait

    def _withdraw(self, remote: RemoteKernel) -> None:
        """End the wait on the hosts that have not been chosen. If the front ends have left, and cells wait, one host is
        chosen on which they go on waiting."""
        waits, self._waits = self._waits, []
        reservations = [one for one in (wait.take() for wait in waits) if one is not None]
        if remote.closed and not remote.end_wanted and remote.waiting_cells:
            kept = next((one for one in reservations if one.link_state is LinkState.UP), None)
            if kept is not None:
                reservations.remove(kept)
                placement = f"{kept.link.name} was chosen: the notebook was closed while its cell waited"
                self._tasks.spawn(kept.keep(remote.core.relay.table.waiting, placement))
        for one in reservations:
            self._tasks.spawn(one.cancel("its kernel does not wait for GPUs on this host any more"))
