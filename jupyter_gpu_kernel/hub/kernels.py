"""One remote kernel as the hub sees it: an edge for front ends, an attachment for the link, and what the
keeper told last.

Messages pass through; while the link is down they wait in the connection, and what a front end must hear
meanwhile the stand-in says. This file knows no SSH.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from ..errors import AgentError, GpuKernelError, KernelStartError
from ..wire.connection import Connection, State
from ..wire.messages import Channel, Lane, Message, word
from .delivered import Delivered
from .edge import Edge
from .link import Link
from .memory import KernelInfos
from .pacing import Pacer
from .standin import StandIn
from .visits import Visit

SUBSCRIBE_WITHIN = 15.0
"""Seconds a front end of a killed hub has to subscribe again; it may be one that never does."""
SUBSCRIBE_TOGETHER = 0.3
"""Seconds after the first of several clients of a front end until the others are there too."""

Watcher = Callable[[dict[str, Any]], None]


class RemoteKernel:
    """`state` is the keeper's last word (see `ps`), `link_state` ours: connecting, up, away, lost."""

    def __init__(
        self,
        kernel_id: str,
        settings: dict[str, Any],
        connection: dict[str, Any],
        link: Link,
        log: logging.Logger,
        infos: KernelInfos | None = None,
        delivered: Delivered | None = None,
        adopted: bool = False,
    ) -> None:
        """`adopted`: its keeper is there; a hub before us had it, and its front end still knows the ports."""
        self.kernel_id = kernel_id
        self.settings = settings
        self.link = link
        self.link_state = "connecting"
        self.state: dict[str, Any] = {"id": kernel_id, "state": "starting", "gpus": [], "pid": 0}
        self.error: GpuKernelError | None = None
        self.connection = Connection(first=True, delivered=delivered.counts if delivered else None)
        self.watchers: list[Watcher] = []
        self._closed = self._stopping = False
        self._held: list[Message] | None = None
        self.visit: Visit | None = None
        self._log = log
        self._create: dict[str, Any] | None = None if adopted else settings
        self._delivered = delivered
        self._standin = self._make_standin(infos)
        self.pacer = Pacer(self._pass_on, self._passed, log)
        self.edge = self._make_edge(connection)
        self._attached_to_link = False
        if not adopted:
            self._attach()
        else:  # what we pass on before the front end has subscribed again would be lost
            asyncio.get_running_loop().call_later(SUBSCRIBE_WITHIN, self._attach)

    def __repr__(self) -> str:
        state = self.state["state"]
        return f"<RemoteKernel {self.kernel_id} {state} link={self.link_state} {self.connection!r}>"

    @property
    def ended(self) -> bool:
        """Whether the kernel process is gone, as far as we know."""
        return self.state["state"] == "ended" or self.link_state == "lost"

    def describe(self) -> dict[str, Any]:
        """{…the keeper's status, "kernel_id" (Jupyter's), "link", "hop", "error"}: JSON for faces."""
        error = self.error.to_json() if self.error else None
        state = dict(self.state)
        if state["state"] in ("idle", "busy"):
            state["state"] = self._standin.state
        known = {key: self.settings.get(key, "") for key in ("name", "kernel_id")}
        link = {"link": self.link_state, "hop": self.link.name, "error": error}
        return {"node": self.link.name, **known, **state, **link}

    def command(self, do: str, **more: Any) -> None:
        """A word to the keeper: interrupt, restart, kill, signal, stop."""
        if do == "restart":
            self.state = dict(self.state, state="starting")
        if do != "interrupt":
            self.pacer.end()  # the kernel's end is what one waits for now, not what it said
        self._send(Lane.URGENT, word(do=do, **more))

    def hold(self) -> None:
        """What clients ask from now on waits for `go_on`: it is for a kernel that is still to come, or to be found."""
        self._held = [] if self._held is None else self._held

    def go_on(self) -> None:
        """Requests go to the kernel, those that waited first."""
        held, self._held = self._held or [], None
        for message in held:
            self._forward(message)

    def restart(self) -> None:
        """A fresh kernel process behind the same ports, with the same GPUs."""
        self.command("restart")
        self.go_on()

    def stop(self, why: str) -> None:
        """Ends a kernel without a front end: its ports are free at once, the rest when the keeper has gone."""
        self.edge.close()
        self._stopping = True
        self.watchers[:] = [lambda _: self._close_if_lost()]
        self.command("stop", why=why)
        self._attach()
        self._close_if_lost()

    def close(self) -> None:
        """Lets go of the kernel: ports and attachment. The keeper is not told anything."""
        self._closed = True
        self.pacer.close()
        self.link.release(self)
        self.edge.close()
        if self._delivered is not None:
            self._delivered.forget()

    # -------------------------------------------------------------------------------------- the link's calls

    def open_request(self) -> dict[str, Any]:
        """The settings, as long as the keeper has never been there."""
        return {"create": self._create} if self._create is not None and not self._stopping else {}

    def attached(self) -> None:
        """The keeper is there (again)."""
        self._create = None
        self.pacer.begin()
        self._link_is("up")

    def detached(self, reason: str) -> None:
        """The link is down for a while."""
        self._link_is("away" if self._create is None else "connecting")

    def lost(self, error: GpuKernelError) -> None:
        """The keeper is gone for good, or never came up."""
        if not self.ended:
            kind = KernelStartError if self._create else AgentError
            self.error = kind(error.cause, hop=error.hop, remedy=error.remedy)
            self.state = dict(self.state, state="ended", cause=error.cause, remedy=error.remedy)
        self._link_is("lost")

    def deliver(self, data: bytes) -> None:
        """A message from the keeper."""
        self.pacer.take(Message.decode(data), self.connection.received)
        self.connection.held = self.pacer.held

    def _passed(self) -> None:
        """There is room for more of a replay: the keeper sends what is acknowledged no longer."""
        self.connection.held = self.pacer.held
        self.link.pump()

    def _pass_on(self, message: Message) -> None:
        if message.channel is Channel.KEEPER:
            return self._keeper_says(message.content())
        self._standin.saw(message)
        self.edge.send(message)
        if self._delivered is not None:
            counts = self.connection.delivered
            counts[Lane.ORDERED] -= self.pacer.waiting
            self._delivered.save(counts)

    def _keeper_says(self, said: dict[str, Any]) -> None:
        event = said.pop("event", None)
        if event == "replay":
            (self.pacer.begin if said["state"] == "begin" else self.pacer.end)()
        if event == "state":
            self.state = said
            if said["state"] in ("starting", "idle", "busy"):
                self._standin.became(said["state"])
            self._tell()

    def _close_if_lost(self) -> None:
        if self.link_state == "lost" and not self._closed:
            self.close()

    def _link_is(self, state: str) -> None:
        self.link_state = state
        self._tell()

    def _tell(self) -> None:
        event = {"event": "kernel", "kernel": self.kernel_id, **self.describe()}
        for watcher in list(self.watchers):
            watcher(event)

    # -------------------------------------------------------------------------------------- the edge's calls

    def _make_edge(self, connection: dict[str, Any]) -> Edge:
        if self._delivered is None:
            return Edge(connection, self._from_front, self._subscribed)
        clients, add = self._delivered.clients, self._delivered.add_client
        return Edge(connection, self._from_front, self._subscribed, clients, add)

    def _make_standin(self, infos: KernelInfos | None) -> StandIn:
        if infos is None:
            return StandIn(self._to_front, None, lambda info: None)
        where = self.link.name, str(self.settings.get("python"))
        return StandIn(self._to_front, infos.get(*where), lambda info: infos.put(*where, info))

    def _may_stand_in(self) -> bool:
        """Not before the way is known to work: a front end must hear of a refused key, not of a kernel."""
        return self.connection.state is not State.OPEN and (self._create is None or self.link.state == "up")

    def _from_front(self, message: Message) -> None:
        if self._held is not None:
            return self._held.append(message)
        if self._may_stand_in() and self._standin.answers(message):
            return
        if self.visit is not None and message.channel is Channel.SHELL:
            self.visit.saw(self, message)
            if self._held is not None:  # just now
                return self._held.append(message)
        self._forward(message)

    def _forward(self, message: Message) -> None:
        if message.channel is Channel.CONTROL and b'"shutdown_request"' in message.parts[0]:
            self.pacer.end()
        lane = Lane.URGENT if message.channel in (Channel.CONTROL, Channel.STDIN) else Lane.ORDERED
        self._send(lane, message)

    def switch(self, kernel_id: str) -> None:
        """From now on this front end has another kernel, which its notebook left."""
        self.link.release(self)
        self.kernel_id, self._create = kernel_id, None
        self.connection = Connection(first=True)
        self.link.attach(self)

    def _send(self, lane: Lane, message: Message) -> None:
        self.connection.send(lane, message.encode())
        self.link.pump()

    def _subscribed(self) -> None:
        self._standin.welcome()
        if not self._attached_to_link:
            asyncio.get_running_loop().call_later(SUBSCRIBE_TOGETHER, self._attach)

    def _attach(self) -> None:
        if not self._attached_to_link and not self._closed:
            self._attached_to_link = True
            self.link.attach(self)

    def _to_front(self, message: Message) -> None:
        self.edge.send(message)
