"""One remote kernel as the hub sees it: its front ends, an attachment for the link, and what the keeper told last.

Messages pass through; while the link is down they wait in the connection, and what a front end must hear
meanwhile the stand-in says. This file knows no SSH.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...errors import AgentError, GpuKernelError, KernelStartError
from ...wire.compose import is_user_cell
from ...wire.endpoint import State
from ...wire.messages import Channel, Lane, Message, MessageError, word
from .. import validate
from ..front_end.delivered import Delivered
from ..front_end.edge import Edge
from ..front_end.front_ends import FrontEnd, FrontEnds
from ..node.attachments import new_endpoint, open_arguments
from ..node.link import Link
from . import keeper_events
from .deferred_requests import DeferredRequests
from .in_flight import InFlightCells
from .kernel_info_cache import KernelInfoCache, recall
from .offline_notice import OfflineNotice
from .ownership import Ownership
from .pacing import Pacer
from .placeholder import Placeholder
from .reattach import Reattach
from .requests import TOO_MUCH, failed_cell, lane_of_request, restarts, too_much, type_of
from .transient_displays import TransientDisplays

if TYPE_CHECKING:
    from .vscode_sessions import VSCodeSession


class RemoteKernel:
    """`state` is the keeper's last word (see `ps`), `link_state` ours: connecting, up, away, taken, lost."""

    to_restart = False  # the front end asked for the kernel's end, and will start it anew
    to_end = False  # the front end asked for the kernel's end
    error: GpuKernelError | None = None
    vscode_session: VSCodeSession | None = None
    link_state = "connecting"
    closed = False  # nobody has it here any more
    _stopping = _reviving = False

    def __init__(
        self,
        kernel_id: str,
        settings: dict[str, Any],
        connection: dict[str, Any],
        link: Link,
        log: logging.Logger,
        infos: KernelInfoCache | None = None,
        delivered: Delivered | None = None,
        how: str = "create",
        label: str = "",
        index: int | None = None,
        owner: dict[str, str] | None = None,
    ) -> None:
        """`how` it comes: create; attach, to a running one; adopt, from a killed hub whose front end still knows the
        ports. `connection`, `label`, `index`: of its first front end, see Fronts. `owner`: see places.owner."""
        self.kernel_id = kernel_id
        self.settings = settings
        self.owner = owner or {}
        self.link = link
        self.state: dict[str, Any] = {"id": kernel_id, "state": "starting", "gpus": [], "pid": 0}
        self.endpoint = new_endpoint(delivered.counts if delivered else None)
        self.watchers: list[Callable[[dict[str, Any]], None]] = []
        self._log = log
        self._request = open_arguments(how, settings)
        self._delivered = delivered
        self._in_flight = InFlightCells()
        self._placeholder = Placeholder(
            self._to_front, *recall(infos, link.name, str(settings.get("python")))
        )
        self._notice = OfflineNotice(self._to_front, link.name, str(settings.get("program") or ""))
        self._deferred = DeferredRequests(self._placeholder, self._notice)
        self._displays = TransientDisplays(self._to_front)
        self._reattach = Reattach(link, self)
        self.front_ends = FrontEnds(self._from_front, self._subscribed, self._reattach.complete, delivered)
        self.pacer = Pacer(self._pass_on, self._passed, log, self.front_ends.room)
        self.front_ends.add(connection, label, index)
        self._ownership = Ownership(
            self.front_ends, self._placeholder, self._event, self._taken_over, self._taken_back
        )
        self._reattach.begin(at_once=how != "adopt")

    def __repr__(self) -> str:
        state = self.state["state"]
        return f"<RemoteKernel {self.kernel_id} {state} link={self.link_state} {self.endpoint!r}>"

    @property
    def edge(self) -> Edge:
        """The edge of the front end that came first."""
        return next(iter(self.front_ends)).edge

    @property
    def ended(self) -> bool:
        """Whether the kernel process is gone, as far as we know."""
        return self.state["state"] == "ended" or self.link_state == "lost"

    @property
    def taken(self) -> str:
        """By whom, if another computer has the kernel now."""
        return self._ownership.taken

    def describe(self) -> dict[str, Any]:
        """{…the keeper's status, "kernel_id" (Jupyter's), "link", "hop", "error"}: JSON for faces."""
        problem = self.error or (self.link.problem if self.link_state == "away" else None)
        return {
            "node": self.link.name,
            "name": self.settings.get("name", ""),
            **self.state,
            "state": self._placeholder.now(self.state["state"]),
            "link": self.link_state,
            "hop": self.link.name,
            "error": problem.to_json() if problem else None,
            "kernel_id": self.settings.get("kernel_id", ""),
        }

    def command(self, do: str, **more: Any) -> None:
        """A word to the keeper: interrupt, restart, kill, signal, stop."""
        if do == "restart":
            self.state = dict(self.state, state="starting")
        if do == "interrupt":
            late = self._deferred.active  # by the time it arrives the kernel may have nothing to interrupt
            self._deferred.cancel()
            more = {"cells": self._in_flight.ids, "late": late, **more}
        else:
            self.pacer.end()  # the kernel's end is what one waits for now, not what it said
        self._send(Lane.URGENT, word(do=do, **more))

    def belongs_to(self, notebook: str) -> None:
        """Its notebook is known now, or has got another name."""
        self.settings = dict(self.settings, notebook=notebook)
        self._send(Lane.URGENT, word(do="notebook", notebook=notebook))

    def hold(self) -> None:
        """What clients ask from now on waits for `go_on`: it is for a kernel that is still to come, or to be found."""
        self._deferred.hold()

    def go_on(self) -> None:
        """Requests go to the kernel, those that waited first."""
        for message in self._deferred.go_on():
            self._forward(message)

    def pause(self) -> None:
        """Its front end is gone, perhaps to come back: ports stay; what the kernel says stays with its keeper."""
        self.hold()
        self._reattach.release()

    def restart(self) -> None:
        """A fresh kernel process behind the same ports, with the same GPUs."""
        self.to_restart = False
        for front in self.front_ends:
            front.edge.restore_ipc_files()
        if self.link_state == "lost":
            self._replace_lost()
        else:
            self._reattach.attach()
            self.command("restart")
        self.go_on()

    def _replace_lost(self) -> None:
        """Nothing of the kernel is left that could start anew. What it was asked, its shutdown at last, is over."""
        self._in_flight.take()
        self.endpoint.outbox.withdraw()
        self.state, self.error = dict(self.state, state="starting"), None
        self._create_anew()

    def stop(self, why: str) -> None:
        """Ends a kernel without a front end: its ports are free at once, the rest when the keeper has gone."""
        self.front_ends.close()
        self._stopping = True
        self.watchers[:] = [lambda _: self._close_if_lost()]
        self.command("stop", why=why)
        self._reattach.attach()
        self._close_if_lost()

    def close(self) -> None:
        """Lets go of the kernel: ports and attachment. The keeper is not told anything."""
        self._notice.back()
        self._displays.withdraw()
        self.closed = True
        self.pacer.close()
        self._reattach.close()
        self.front_ends.close()
        if self._delivered is not None:
            self._delivered.forget()
        for watcher in list(self.watchers):
            watcher(self._event())

    # -------------------------------------------------------------------------------------- the link's calls

    def open_request(self) -> dict[str, Any]:
        """What the agent is to do, until it has done it; and for whom."""
        boot = {"boot": self.state.get("boot", "")}
        return {**self.owner, **boot, **({} if self._stopping else self._request)}

    def attached(self) -> None:
        """The keeper is there (again)."""
        self._request, self._ownership.taken = {}, ""
        if self._delivered is not None and self._delivered.kernel_id != self.kernel_id:
            self._delivered.follow(self.kernel_id)  # its notebook had left one, and has it again
        self._notice.back()
        self.pacer.begin()
        self._link_is("up")
        for message in self._deferred.back():
            self._forward(message)

    def detached(self, reason: str) -> None:
        """The link is down for a while."""
        if not self._request:
            silence, running = time.monotonic() - self.link.last_received, self._in_flight.running_silently
            self._notice.away(self.link.problem, silence, running)
            self._deferred.away()
        self._link_is("connecting" if self._request else "away")

    def lost(self, error: GpuKernelError) -> None:
        """The keeper is gone for good, or never came up; or another computer has the kernel now."""
        self._notice.back()  # no cell waits for the node any more
        if getattr(error, "code", "") == "taken":
            return self._was_taken(error.cause, error.remedy)
        if self._reviving:  # by a keeper that was just leaving
            return self._create_anew()
        if not self.ended:
            kind = KernelStartError if "create" in self._request else AgentError
            self.error = kind(error.cause, hop=error.hop, remedy=error.remedy)
            self.state = dict(self.state, state="ended", cause=error.cause, remedy=error.remedy)
            self.pacer.end()
            cells = self._in_flight.take() + self._deferred.take()
            self._placeholder.fails(cells, self._notice.for_user(f"{error.cause}. {error.remedy}"))
        self._link_is("lost")

    def _was_taken(self, by: str, remedy: str) -> None:
        """What our front ends still wait for they will not hear."""
        self._ownership.lost(by, list(map(Message.decode, self.endpoint.outbox.withdraw())))
        self._placeholder.fails(self._in_flight.take() + self._deferred.take(), f"{by}. {remedy}")
        self._link_is("taken")

    def deliver(self, data: bytes) -> None:
        """A message from the keeper."""
        self.pacer.take(validate.message(data), self.endpoint.received)
        self.endpoint.held = self.pacer.held

    def _passed(self) -> None:
        """What was passed on is acknowledged, and the keeper sends more."""
        self.endpoint.held = self.pacer.held
        self.link.pump()

    def _pass_on(self, message: Message) -> None:
        if message.channel is Channel.KEEPER:
            return self._keeper_says(message)
        if not self._deferred.passes(message):
            return
        self._in_flight.answered(message)
        self._placeholder.saw(message)
        self._displays.saw(message)
        self.front_ends.send(message)
        failed = failed_cell(message)
        if failed:  # said at once: what the front end sends from now on comes behind it
            self._send(Lane.ORDERED, word(do="heard", reply=failed))
        if self._delivered is not None:
            came = zip(self.endpoint.delivered, self.pacer.owed, strict=True)
            self._delivered.save([max(0, count - owed) for count, owed in came])

    def _keeper_says(self, message: Message) -> None:
        try:
            said = keeper_events.read(message)
        except (validate.Malformed, MessageError) as error:
            return self._log.warning(
                "%s: kernel %s: a word is passed over: %s", self.link.name, self.kernel_id, error
            )
        for answer in keeper_events.answers(said, self._in_flight, self._placeholder.count):
            self._send(Lane.ORDERED, answer)
        event = said.pop("event")
        if event == "replay":
            (self.pacer.begin if said["state"] == "begin" else self.pacer.end)()
        if event == "state" and said["state"]:
            self.state = dict(said, id=self.kernel_id)  # by the id that it has here, whatever it says
            self._reviving = self._reviving and said["state"] == "ended"
            if said["state"] in ("starting", "idle", "busy"):
                self._placeholder.became(said["state"])
            self._tell()

    def _close_if_lost(self) -> None:
        if (self.link_state == "lost" or self.link.state == "failed") and not self.closed:
            self.close()

    def _link_is(self, state: str) -> None:
        self.link_state = state
        self._tell()

    def _event(self) -> dict[str, Any]:
        return {"event": "kernel", "kernel": self.kernel_id, **self.describe()}

    def _tell(self) -> None:
        event = self._event()
        self.front_ends.tell(event)
        for watcher in list(self.watchers):
            watcher(event)

    # -------------------------------------------------------------------------------------- front ends' calls

    def _may_stand_in(self) -> bool:
        """Not before the way is known to work: a front end must hear of a refused key, not of a kernel."""
        return self.endpoint.state is not State.OPEN and (not self._request or self.link.state == "up")

    def _from_front(self, front: FrontEnd, message: Message) -> None:
        if not self._ownership.may_ask(front, message):
            return
        sent = max(self.endpoint.outbox.size, self._in_flight.size)
        if too_much(message, self._deferred.messages, sent):
            return self._placeholder.rejects(message, TOO_MUCH.format(self.link.name))
        if message.channel is Channel.CONTROL and type_of(message) == "shutdown_request":
            front.tell({"event": "shutdown", "kernel": self.kernel_id})
        if self._deferred.active and type_of(message) == "interrupt_request":
            self.command("interrupt")
            return self._placeholder.agrees(message)
        if self._deferred.held and self._deferred.keeps(message):
            return
        if front.revives and self.ended and not self.to_restart and is_user_cell(message):
            self._revive(message)
        if self._may_stand_in() and self._placeholder.answers(message):
            return
        if self.vscode_session is not None and message.channel is Channel.SHELL:
            self.vscode_session.saw(self, message)
        if not self._deferred.keeps(message):
            self._forward(message)

    def _forward(self, message: Message) -> None:
        if message.channel is Channel.CONTROL and type_of(message) == "shutdown_request":
            self.pacer.end()
            self.to_restart = restarts(message)
            self.to_end = not self.to_restart
        self._deferred.asked(message)
        self._in_flight.asked(message)
        self._send(lane_of_request(message), message)

    def _taken_over(self, front: FrontEnd) -> None:
        self._send(Lane.URGENT, word(do="tell", event="takeover", text=f"taken over by {front.label}"))

    def _taken_back(self) -> None:
        self._request = {"attach": {}}  # the keeper greets
        self.switch(self.kernel_id)

    def _revive(self, message: Message) -> None:
        """It ended by itself, and nobody but its user may start it anew: by this cell."""
        cause = self.state.get("cause") or (self.error.cause if self.error else "?")
        self._placeholder.announces(
            message, f"The kernel had ended: {cause}. This is a new one, without its variables."
        )
        self.state = dict(self.state, state="starting")
        self._reviving, self.error = True, None
        if self.link_state == "lost":
            return self._create_anew()
        self._send(Lane.ORDERED, word(do="revive"))

    def _create_anew(self) -> None:
        """By another name: something of the one before may still run."""
        self._reviving, self._request = False, {"create": self.settings}
        self.switch(uuid.uuid4().hex[:12])
        self._link_is("connecting")

    def switch(self, kernel_id: str) -> None:
        """From now on its front ends have another kernel, which their notebook left; or this one anew. It is asked what
        the one before has not answered."""
        self._reattach.release()
        self.pacer.flush()
        self._placeholder.switched()
        queued = list(map(Message.decode, self.endpoint.outbox.withdraw()))
        again = self._in_flight.again(queued)
        self.kernel_id = kernel_id
        self.endpoint = new_endpoint(None)
        self._in_flight = InFlightCells()
        if self._delivered is not None:
            self._delivered.follow(kernel_id)
        for message in again:
            self._in_flight.asked(message)
            self._send(lane_of_request(message), message)
        self._reattach.attach()

    def _send(self, lane: Lane, message: Message) -> None:
        self.endpoint.send(lane, message.encode())
        self.link.pump()

    def _subscribed(self) -> None:
        self._placeholder.welcome()
        self._reattach.subscribed()

    def _to_front(self, message: Message) -> None:
        self.front_ends.send(message)
