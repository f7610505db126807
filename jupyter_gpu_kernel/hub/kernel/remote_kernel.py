"""One remote kernel in the hub: what its core decides is carried out here, and what happens is reported to the core.

This module has the kernel's sockets, files, timer and attachment to the link. It knows no SSH.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from ...errors import AgentError, GpuKernelError, KernelStartError
from ...wire.kernel_messages.compose import is_user_cell
from ...wire.messages import Channel, Data, Lane, Message, keeper_message
from ...wire.stream.endpoint import Endpoint, EndpointState
from ..front_end.edge import Edge
from ..front_end.front_ends import FrontEnd, FrontEnds, FrontEndSpec
from ..kernel_settings import KernelSettings
from ..node.node_link import NodeLink, NoLink
from .core import effects, events
from .core.kernel_core import KernelCore
from .core.life import LinkState, Phase
from .core.relay import CoreSetup
from .keeper_connection import AttachTiming, ResumableEndpoint
from .kernel_state import CREATED, HubContext, KernelState, Origin, describe


class RemoteKernel(KernelState):
    """A kernel and its `front_ends`; an `Attachment` for the link. The `core` may only be read."""

    def __init__(
        self,
        context: HubContext,
        kernel_id: str,
        settings: KernelSettings,
        front_end: FrontEndSpec,
        link: NodeLink,
        origin: Origin = CREATED,
    ) -> None:
        """`front_end`: the kernel's first front end."""
        super().__init__(kernel_id, settings, link, origin)
        self._runtime, self._log = context.runtime, context.log
        self.owner = dict(context.owner)
        self.on_create: Callable[[str], NodeLink] = lambda kernel_id: self.link
        """Called with the new id when the kernel is created anew; returns the link, which may be another one by now."""
        self._end = ResumableEndpoint(self._runtime, origin.delivered, self.owner.get("owner", ""))
        self._infos, self._infos_key = context.infos, (link.name, settings.python)
        info = self._infos.get(*self._infos_key) if self._infos is not None else None
        id_prefix, has_starter = self._runtime.new_id(), self.starter is not None
        setup = CoreSetup(id_prefix, link.name, settings, info, self._end.was_up, has_starter)
        self.core = KernelCore(setup, self.life)
        self._timer: asyncio.TimerHandle | None = None
        self.attach_timing = AttachTiming(link, self)
        subscribed, complete = partial(self.report, events.Subscribed()), self.attach_timing.complete
        calls = (self._receive_request, subscribed, complete, self._front_ends_changed)
        self.front_ends = FrontEnds(self._runtime, *calls, origin.delivered, context.bind)
        self._actions = self._effect_actions()
        self.report(events.Recalled(self._end.requests.recall()))
        if self.is_of_vs_code:
            self.report(events.VSCodeSeen())
        self.front_ends.add(front_end)
        if isinstance(link, NoLink) and not (self._end.was_up or self.core.relay.table.in_flight):
            self.report(events.Unstarted(link.name, ""))
        self.attach_timing.begin(at_once=origin.how != "adopt")
        if self.waits_for_link or self.must_be_found:
            self.detached("")

    def __repr__(self) -> str:
        return f"<RemoteKernel {self.kernel_id} {self.core} {self.endpoint!r}>"

    @property
    def edge(self) -> Edge:
        """The edge of the first front end."""
        return next(iter(self.front_ends)).edge

    def describe(self) -> dict[str, Any]:
        """Return {…the keeper's status, "kernel_id" (Jupyter's), "link", "hop", "error", "away_since"}, for clients."""
        return describe(self, self.core, len(self.front_ends))

    def event(self) -> dict[str, Any]:
        """Return the description as an event for front ends. `from_vs_code`: for the hub that succeeds a killed one."""
        known = {"event": "kernel", "kernel": self.kernel_id, "from_vs_code": self.is_of_vs_code}
        return {**known, **self.describe()}

    def owns(self, front: FrontEnd) -> bool:
        """Whether this front end owns the kernel."""
        return front.number == self.core.ownership.owner

    @property
    def served(self) -> bool:
        """Whether the kernel has a front end that has not left."""
        return any(not front.absent for front in self.front_ends)

    @property
    def returning(self) -> bool:
        """Whether all front ends of the kernel have left, and may return to the kernel as it is."""
        return len(self.front_ends) > 0 and not self.served and self.phase is not Phase.RESTART

    @property
    def not_started(self) -> bool:
        """Whether the kernel, which a cell of its user starts, has not been started, or cannot be used yet."""
        return self.core.not_started

    @property
    def must_be_found(self) -> bool:
        """Whether a hub that was killed has used the kernel, and this hub does not know yet where the kernel is."""
        return isinstance(self.link, NoLink) and not (self.not_started or self.ended or self.closed)

    @property
    def pending(self) -> bool:
        """Whether the kernel has no node, and a cell of its user may start it."""
        return self.not_started and not (self.closed or self.end_wanted)

    @property
    def waiting_cells(self) -> list[Message]:
        """The cells of the user that wait for the start, or for the link."""
        return self.core.relay.table.waiting_cells

    @property
    def start_wanted(self) -> bool:
        """Whether a cell of the user waits for the start, and the front ends do not get another kernel."""
        return self.not_started and not (self.closed or self.core.held) and bool(self.waiting_cells)

    def start_on(self, link: NodeLink, settings: KernelSettings) -> None:
        """Create the kernel on this host, or find it there. A kernel that a killed hub has used is not created."""
        creates, self.link, self.settings = self.not_started, link, settings
        self.report(events.Switched(link.name, ""))
        self._create() if creates else self.attach_timing.start(link)

    def undo_start(self, link: NodeLink, settings: KernelSettings, kernel_id: str) -> None:
        """Return to the state without a kernel, which does not exist any more: a cell starts one with this id."""
        self.attach_timing.move(link)
        self.link, self.settings = link, settings
        self.report(events.Unstarted(link.name, kernel_id))

    # -------------------------------------------------------------------------------------- operations

    def command(self, do: str, **arguments: Any) -> None:
        """Send a command to the keeper: interrupt, restart, kill, signal, stop."""
        self.report(events.Commanded(do, arguments))

    def set_notebook(self, notebook: str) -> None:
        """The kernel's notebook is known now, or was renamed."""
        self.settings = self.settings.replace(notebook=notebook)
        self._to_keeper(Lane.URGENT, keeper_message(do="notebook", notebook=notebook))

    def hold(self) -> None:
        """From now on requests wait for `resume`, as their kernel is still to be started or found."""
        self.report(events.Held(True))

    def resume(self) -> None:
        """Send the requests that were held."""
        self.report(events.Held(False))

    def pause(self) -> None:
        """The front end has gone and may return: the ports stay bound, and the output stays with the keeper."""
        self.hold()
        self.attach_timing.release()

    def restart(self, *, host_lost: bool = False) -> None:
        """Start a new kernel process, with the same ports, and with the same GPUs unless the kernel's host is lost.

        Raises HubError if the ports cannot be used."""
        self._restore_sockets()
        self.report(events.Restarted(host_lost))

    def switch(self, kernel_id: str) -> None:
        """Give the front ends the kernel with this id, and that kernel the requests without a reply."""
        self.attach_timing.release()
        self.report(events.Switched(self.link.name, kernel_id))
        self.attach_timing.attach()

    def refuse(self, error: GpuKernelError) -> None:
        """The front end does not get this kernel: answer all its requests, as VS Code waits for the replies."""
        if self.link_state is not LinkState.UP:
            self.endpoint.outbox.withdraw()  # such as a restart, which is not wanted any more
        self.report(events.KernelRefused(str(error)))

    def stop(self, why: str) -> None:
        """End a kernel that no front end needs: unbind its ports at once, and close it when the keeper has gone."""
        if self.phase in (Phase.STOP, Phase.CLOSED):
            return
        self.front_ends.close()
        self.report(events.Stopped(why))
        self._close_if_stopped()

    def end(self, error: GpuKernelError) -> None:
        """The kernel does not exist any more, for this reason."""
        self.report(events.KeeperLost(self._as_end(error), for_good=True))

    def close(self) -> None:
        """Give up the kernel's ports and its attachment. The keeper lives on."""
        if self.closed:
            return
        self.report(events.Closed())
        self.attach_timing.close()
        self.front_ends.close()
        # Another front end of a killed hub may still be about to adopt the kernel.
        self._end.close(forget=self.front_ends.complete)
        self.notify()

    # -------------------------------------------------------------------------------------- calls of the link

    def open_request(self) -> dict[str, Any]:
        """Return arguments for the agent's `open`: what to do, for whom, and in which boot the kernel ran."""
        boot = {"boot": self.status.get("boot", "")}
        return {**self.owner, **boot, **({} if self.phase is Phase.STOP else self.open_arguments)}

    def opened(self, kernel_id: str) -> None:
        """The agent has opened a stream to the kernel with this id, which may be one that the notebook had left."""
        self.kernel_id = kernel_id
        self._end.rename(kernel_id)  # at once: the front end's process may hear this id next

    @property
    def endpoint(self) -> Endpoint:
        """The hub's end of the message stream to the keeper."""
        return self._end.endpoint

    def deliver(self, data: Data) -> None:
        """Take a message of the keeper."""
        self.report(self._end.arrived(data, self.front_ends.make_room))
        self._wake(0.0)

    def attached(self) -> None:
        """The stream to the keeper is open, for the first time or after an outage."""
        self.open_arguments = {}
        self.report(events.Attached(self.endpoint.peer, self.link.connection))

    def detached(self, reason: str) -> None:
        """The link is down, and reconnects by itself."""
        silence = max(0.0, self._runtime.monotonic() - self.link.last_received)
        since = time.strftime("%H:%M:%S", time.localtime(self._runtime.time() - silence))
        problem, waits = self.link.problem, self.waits_for_link
        self.report(events.Detached(problem, silence, since, self.was_attached, waits))

    def lost(self, error: GpuKernelError) -> None:
        """The keeper does not exist any more, or could not be started; or another computer has the kernel now."""
        if getattr(error, "code", "") == "taken":
            return self.report(events.KernelTaken(error.cause, error.remedy))
        is_handled = self.starter is not None and self.starter.lost(self, error)
        self.report(events.KeeperLost(None if is_handled else self._as_end(error)))

    def _as_end(self, error: GpuKernelError) -> GpuKernelError:
        kind = KernelStartError if "create" in self.open_arguments else AgentError
        return kind(error.cause, hop=error.hop, remedy=error.remedy)

    # -------------------------------------------------------------------------------------- events for the core

    def report(self, event: events.Event, at: float = 0.0) -> None:
        """Report an event to the core, and carry out what follows. `at`: the least time.

        Raise what the core raises, when what it had decided before is carried out. An effect that fails is logged."""
        now = max(at, self._runtime.monotonic())
        try:
            todo = self.core.handle(event, now, self._runtime.time())
        except Exception:
            self._carry_out(self.core.take_effects())
            raise
        self._carry_out(todo)

    def _carry_out(self, todo: list[effects.Effect]) -> None:
        for effect in todo:
            try:
                self._actions[type(effect)](*effect)
            except Exception:
                self._log.exception("kernel %s: %s failed", self.kernel_id, type(effect).__name__)
        self._end.tidy_soon()

    def _front_ends_changed(self) -> None:
        self.report(events.FrontEndsChanged(self.front_ends.facts))

    def _receive_request(self, front: FrontEnd, request: Message) -> None:
        """Take a request of a front end. A session of VS Code sees it first, and may hold the kernel."""
        was_held, unsent = self.core.held, 0 if self.life.taken_cause else self.endpoint.outbox.size
        takes_kernel = is_user_cell(request) and (front.spec.revives or not self.life.lost_cause)
        is_used = takes_kernel or not (self.life.lost_cause or self.life.taken_cause)
        if self.session is not None and request.channel is Channel.SHELL and is_used and not was_held:
            self.session.observe(self, request)
        # Before the node was reached front ends must get the error, such as that of a refused key.
        is_reachable = self.was_attached or self.link.state == "up" or self.waits_for_link
        is_away = self.endpoint.state is not EndpointState.OPEN and is_reachable
        self.report(events.Requested(front.number, request, unsent, is_away, was_held))

    def _wake(self, at: float) -> None:
        """The time `at` has come, though the clock may be a little behind: report it while the core waits for it."""
        for _ in range(100):  # messages that wait; then it is others' turn
            due = self.core.wake_at
            if due is None or due > max(at, self._runtime.monotonic()):
                break
            message = self.core.relay.pacer.next_message
            has_room = message is None or self.front_ends.make_room(message)
            self.report(events.Woken(has_room), due)
            self.link.pump(self.endpoint)  # what was passed on is acknowledged

    # -------------------------------------------------------------------------------------- effects of the core

    def _effect_actions(self) -> dict[type, Callable[..., object]]:
        """Return what carries out an effect of each type; it is called with the fields of the effect."""
        return {
            effects.WriteRequests: self._end.requests.write,
            effects.ToKeeper: self._to_keeper,
            effects.ToFrontEnds: self._to_front_ends,
            effects.SaveProgress: self._end.save,
            effects.WakeAt: self._wake_at,
            effects.Learn: self._learn,
            effects.Notify: self.notify,
            effects.Wake: self.wake,
            effects.ReportShutdown: self._report_shutdown,
            effects.RestoreSockets: self._restore_sockets,
            effects.UseKernel: self._use_kernel,
            effects.TakeBack: self._take_back,
            effects.CreateAnew: self._create_anew,
            effects.AttachKernel: self.attach_timing.attach,
            effects.TellStarter: self._tell_starter,
            effects.LogText: self._log_text,
        }

    def _to_front_ends(self, message: Message) -> None:
        self.front_ends.send(message, keeps=not self.attach_timing.begun.is_set())

    def _to_keeper(self, lane: Lane, message: Message) -> None:
        self.endpoint.send(lane, message.encode())
        self.link.pump(self.endpoint)

    def _wake_at(self, at: float | None) -> None:
        if at != self.core.wake_at:
            return  # an effect before has led to another event
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._timer = None if at is None else loop.call_at(at, self._wake, at)

    def _report_shutdown(self, front_end: int, denied: bool) -> None:
        front = self.front_ends.get(front_end)
        ended = {"state": "ended", "asked": "shutdown", "returncode": 0}
        if front is not None:
            about = {"event": "shutdown", "kernel": self.kernel_id}
            front.notify({**self.event(), **ended} if denied else about)

    def _restore_sockets(self) -> None:
        for front in self.front_ends:
            front.edge.restore_ipc_files()

    def _use_kernel(self, kernel_id: str) -> None:
        self.kernel_id = kernel_id
        self._end.change_kernel(kernel_id)
        self.notify()  # at once, as the files have this id from now on

    def _take_back(self) -> None:
        self.open_arguments = {"attach": {}}  # so the keeper greets the front end
        self.attach_timing.release()
        self._use_kernel(self.kernel_id)
        self.attach_timing.attach()

    def _create_anew(self) -> None:
        self.attach_timing.release()
        kernel_id = self._runtime.new_id()[:12]
        self.link = self.on_create(kernel_id)
        self._use_kernel(kernel_id)
        self._create()

    def _create(self) -> None:
        self.open_arguments = {"create": self.settings.to_json()}
        self.attach_timing.start(self.link)

    def _tell_starter(self, interrupted: bool) -> None:
        if self.starter is not None:
            self.starter.interrupted() if interrupted else self.starter.restart(self)

    def _learn(self, kernel_info: bytes) -> None:
        if self._infos is not None:
            self._infos.put(*self._infos_key, kernel_info)

    def _log_text(self, text: str, error: Exception | None) -> None:
        level = logging.WARNING if error is None else logging.ERROR
        self._log.log(level, "%s: kernel %s: %s", self.link.name, self.kernel_id, text, exc_info=error)

    def _close_if_stopped(self) -> None:
        gone = self.link_state in (LinkState.LOST, LinkState.TAKEN) or self.link.state == "failed"
        if self.phase is Phase.STOP and (gone or self.not_started):
            self.close()

    def notify(self) -> None:
        """Tell front ends and watchers that the description has changed."""
        self.front_ends.notify(self.event())
        super().notify()
        self._close_if_stopped()
