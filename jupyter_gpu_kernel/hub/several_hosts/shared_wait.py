"""One kernel waits for GPUs on several hosts at once: on its own, and by reservations on the others.

The host whose GPUs are granted first runs the cells: the kernel is confirmed there, or moves there. The hub alone
decides, so no cell can run twice: a keeper that was not confirmed runs none. What is not confirmed is ended, or ends by
itself where it cannot be reached.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from ...errors import AgentError, AgentRefusal, GpuKernelError
from ...wire.runtime import Runtime
from ...wire.texts import STOP_HINT
from .. import sanitize
from ..kernel.remote_kernel import RemoteKernel
from ..kernel.reservation import Reservation
from ..kernel.states import LinkState
from ..kernel_settings import KernelSettings
from ..node.link import Link
from ..node.node import Node
from ..node.node_link import NodeLink
from ..node.nodes import Nodes

OPEN_AFTER = 2.0
"""Seconds that a cell waits on its own host before GPUs are reserved on the others."""
RENEW_EVERY = 10.0
RETRY_AFTER = 30.0
"""Seconds until a host that could not be used is tried again."""
CONNECT_WITHIN = 30.0
END_ATTEMPTS = 20
_MAX_TEXT = 10_000
_LOST = "the kernel is gone, and its cells waited there for GPUs"
_LOST_REMEDY = "Restart the kernel: it then starts on the best host that can be reached."


class OtherHost:
    """One of the hosts that the kernel does not run on: its reservation, or why there is none."""

    def __init__(self, node: Node, settings: KernelSettings) -> None:
        self.node = node
        self.settings = settings
        self.reservation: Reservation | None = None
        self.opening = False
        self.problem = ""
        self.retry_at = 0.0

    def update(self, now: float) -> None:
        """Take note of a reservation that has ended."""
        if self.reservation is not None and self.reservation.error is not None:
            self.failed(self.reservation.error.cause, now)

    def failed(self, problem: str, now: float) -> None:
        """There is no reservation; another attempt follows later."""
        self.reservation, self.opening = None, False
        self.problem, self.retry_at = sanitize.one_line(problem), now + RETRY_AFTER

    @property
    def unable(self) -> bool:
        """Whether it cannot give GPUs now, as far as is known."""
        if self.reservation is None:
            return bool(self.problem) and not self.opening
        return bool(self.reservation.status.get("problem"))

    @property
    def text(self) -> str:
        """What the waiting cell shows of it."""
        name, status = self.node.name, self.reservation.status if self.reservation is not None else {}
        if status.get("problem"):
            return f"{name}: {status['problem']}"
        if self.reservation is not None and not self.reservation.up:
            return f"{name}: {'the connection is down' if self.reservation.was_up else 'a kernel is starting there'}"
        if status.get("waiting_text"):
            text = str(status["waiting_text"]).replace(STOP_HINT, "")
            return text[:1].lower() + text[1:]  # behind “Or”
        return f"{name}: {self.problem}; tried again later" if self.problem else f"{name}: asking"


class SharedWait:
    """Waits with one kernel, while front ends have it: `await run()`."""

    def __init__(
        self,
        runtime: Runtime,
        nodes: Nodes,
        owner: dict[str, str],
        remote: RemoteKernel,
        delivered: Callable[[KernelSettings, str], Path],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        log: logging.Logger,
    ) -> None:
        """`delivered(settings, kernel id)`: the file for the counts of a kernel; `spawn(coroutine)` starts a task."""
        self._runtime = runtime
        self._nodes = nodes
        self._owner = owner
        self._remote = remote
        self._delivered = delivered
        self._log = log
        self._others: dict[str, OtherHost] = {}
        self._since: float | None = None
        self._renewed = 0.0
        self._said = ""
        self._changed = asyncio.Event()
        self._spawn = spawn

    async def run(self) -> None:
        """Return when the hub does not have the kernel any more."""
        with self._remote.watched(self._changed.set):
            while not self._remote.closed:
                self._changed.clear()
                delay = self._look()
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), delay)
        self._cancel_all("the kernel does not wait any more")

    def _look(self) -> float | None:
        try:
            return self._step(asyncio.get_running_loop().time())
        except Exception:  # a bug of ours: the kernel waits on its own host, as any other
            self._log.exception("kernel %s: the wait on several hosts failed", self._remote.kernel_id)
            self._remote.standby.confirm()
            return RENEW_EVERY

    @property
    def reserved(self) -> dict[str, str]:
        """The kernel's id by those of its reservations."""
        ids = [one.reservation.kernel_id for one in self._others.values() if one.reservation is not None]
        return dict.fromkeys(ids, self._remote.kernel_id)

    def changed(self) -> None:
        """Look again at once, as the kernel has lost its host."""
        self._changed.set()

    def _step(self, now: float) -> float | None:
        """Do what is to be done now; return the seconds until the next look, None: only when something changes."""
        remote = self._remote
        if remote.standby.unconfirmed and remote.status["gpus"] and remote.link_state is LinkState.UP:
            remote.standby.confirm()
        if not remote.waits_for_host:
            self._since = None
            self._cancel_all("the kernel does not wait any more")
            return None
        self._since = now if self._since is None else self._since
        if now - self._since < OPEN_AFTER and remote.link_state is LinkState.UP:
            return OPEN_AFTER - (now - self._since)
        if not (remote.standby.can_move and len(remote.settings.each_host()) > 1):
            remote.standby.confirm()  # its cells are known only there
            self._cancel_all("the kernel does not wait any more")
            if remote.is_lost:
                remote.fail(AgentError(_LOST, hop=remote.link.name, remedy=_LOST_REMEDY))
            return None
        self._open_all(now)
        granted = [one for one in self._others.values() if one.reservation and one.reservation.granted]
        if granted:
            self._move(granted[0])
            return None
        if (
            remote.link_state is LinkState.UP
            and remote.status.get("problem")
            and all(o.unable for o in self._others.values())
        ):
            remote.standby.renew(self._text())
            remote.standby.confirm()  # its cells end with the reasons
            return None
        self._renew(now)
        return RENEW_EVERY / 2

    # -------------------------------------------------------------------------------------- the other hosts

    def _open_all(self, now: float) -> None:
        remote = self._remote
        for settings in remote.settings.as_given().each_host():
            node = self._nodes.of(settings)
            if not remote.is_lost and node.same_as(self._nodes.of(remote.settings)):
                continue
            other = self._others.setdefault(node.name, OtherHost(node, settings))
            other.update(now)
            if other.reservation is None and not other.opening and now >= other.retry_at:
                other.opening = True
                self._spawn(self._open(other))

    async def _open(self, other: OtherHost) -> None:
        """Start a keeper there, which waits for its GPUs."""
        loop = asyncio.get_running_loop()
        try:
            link = await asyncio.wait_for(self._link(other), CONNECT_WITHIN)
        except (GpuKernelError, asyncio.TimeoutError) as error:
            other.failed(error.cause if isinstance(error, GpuKernelError) else "no answer", loop.time())
            return self._changed.set()
        other.opening, other.problem = False, ""
        if not self._remote.waits_for_host or self._others.get(other.node.name) is not other:
            return
        kernel_id = self._runtime.new_id()[:12]
        self._nodes.record_start(kernel_id, other.node)
        text = f"waits here, too, for kernel {self._remote.kernel_id} on {self._remote.link.name}"
        settings = other.settings.placed(other.settings.python or other.node.python, text)
        priority = self._remote.status.get("priority")
        settings = settings if priority is None else settings.replace(priority=priority)
        other.reservation = Reservation(
            self._runtime, kernel_id, settings, self._owner, link, self._changed.set
        )

    async def _link(self, other: OtherHost) -> Link:
        node = other.node
        return await node.link(other.settings.python or node.python or await node.best_python(None), None)

    def _renew(self, now: float) -> None:
        """Tell all keepers that the hub is there, the kernel's own what the other hosts say, and these its priority."""
        text = self._text()
        due = now - self._renewed >= RENEW_EVERY
        if due or text != self._said:
            self._said = text
            self._remote.standby.renew(text)
        if due:
            self._renewed = now
        for reservation in (other.reservation for other in self._others.values()):
            if reservation is not None:
                if due:
                    reservation.renew()
                self._spawn(reservation.set_priority(self._remote.status.get("priority")))

    def _text(self) -> str:
        return "\n".join(f"Or {other.text}" for other in self._others.values())[:_MAX_TEXT]

    # -------------------------------------------------------------------------------------- the decision

    def _move(self, winner: OtherHost) -> None:
        remote, to = self._remote, winner.reservation
        assert to is not None
        link, kernel_id = remote.link, remote.kernel_id
        self._log.info("kernel %s moves from %s to %s", kernel_id, link.name, to.link.name)
        del self._others[winner.node.name]
        placement = f"{to.link.name} was chosen: its GPUs were free first"
        to.settings = to.settings.replace(placement=placement)
        remote.move(to, self._delivered(to.settings, to.kernel_id))
        why = f"its cells run on {to.link.name}, whose GPUs were free first"
        self._spawn(end_kernel(link, kernel_id, why))
        self._cancel_all(why)

    def _cancel_all(self, why: str) -> None:
        others, self._others = self._others, {}
        self._renewed, self._said = 0.0, ""
        for other in others.values():
            if other.reservation is not None:
                self._spawn(other.reservation.cancel(why))


async def end_kernel(link: NodeLink, kernel_id: str, why: str) -> None:
    """End a kernel that nobody uses, also on a host that can be reached again only later."""
    for _ in range(END_ATTEMPTS):
        try:
            await link.request("stop", kernel=kernel_id, why=why)
            return
        except AgentRefusal:  # it has ended
            return
        except GpuKernelError:
            await asyncio.sleep(RETRY_AFTER)
