"""The core of one remote kernel in the hub: events in, effects out.

The core does no I/O, and knows no clock, thread or callback. It decides what the messages of front ends and keeper mean
for the kernel's life, who may use the kernel, and what front ends get while the kernel has not been started.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....errors import GpuKernelError
from ....wire.kernel_messages.compose import is_user_cell
from ....wire.messages import Channel, Lane, Message, keeper_message, type_of
from ...front_end.requests import has_reply, needs_owner, wants_restart
from . import effects, events
from .access import Ownership
from .displays import KEEPS_RUNNING, STARTS
from .effects import Effect
from .life import Life, LinkState, Phase
from .relay import CoreSetup, HubRelay

_NOT_STARTED = ("DeadKernelError", "the kernel was shut down or restarted before it had started")
"""The error of cells that waited for the start."""
_RESTARTED = "the kernel was restarted elsewhere, and it is not known whether it has got this request before"
"""The error of requests that were sent to a kernel on a host that is lost."""


class KernelCore:
    """`handle` takes what happens, and returns what has to be done, in this order. Everything else may only be read."""

    def __init__(self, setup: CoreSetup, life: Life) -> None:
        self.life = life
        self.ownership = Ownership()
        self.relay = HubRelay(setup, self.life, self.ownership)
        self._has_starter = setup.has_starter
        self._note = ""  # to be shown in the first cell that the kernel runs
        self.wake_at: float | None = None
        """The time of the last `WakeAt`."""
        relay = self.relay
        self._handlers: dict[type, Callable[..., object]] = {
            events.FrontEndsChanged: self.ownership.changed,
            events.Subscribed: relay.greet_subscriber,
            events.Requested: self._requested,
            events.Commanded: self._command,
            events.Restarted: self._restart,
            events.Held: self._hold,
            events.Stopped: self._stop,
            events.KernelRefused: relay.kernel_refused,
            events.Closed: self._close,
            events.VSCodeSeen: relay.vs_code_seen,
            events.DisplaysInherited: relay.displays.inherit,
            events.Recalled: relay.recall_requests,
            events.Arrived: relay.receive,
            events.Woken: relay.wake,
            events.Attached: self._attached,
            events.Detached: self._detached,
            events.KernelTaken: self._kernel_taken,
            events.KeeperLost: self._keeper_lost,
            events.Switched: self._switched,
            events.Unstarted: self._unstarted,
            events.StatusKnown: self._status_known,
            events.WaitExplained: relay.explain_wait,
            events.StartFailed: self._start_failed,
        }

    def __repr__(self) -> str:
        start = f" not started: {self.relay.start_reason!r}" if self.not_started else ""
        return f"<KernelCore {self.life}{start} {self.ownership} {self.relay} wake at {self.wake_at}>"

    def validate(self) -> None:
        """Raise AssertionError if parts of the core contradict each other, which is a bug."""
        self.relay.table.validate()
        self.relay.pacer.validate()
        assert self.wake_at == self.relay.wake_at, self
        assert (self.ownership.owner is None) == (not self.ownership.front_ends), self

    def handle(self, event: events.Event, monotonic: float, time: float) -> list[Effect]:
        """Return what has to be done because of this event. Raise ProtocolError or MessageError if a keeper may not
        send this message; `take_effects` returns what has to be done all the same.

        monotonic, time: When the event has happened, in the seconds of the event loop, and since 1970.
        """
        self.relay.runtime.clocks = (monotonic, time)
        try:
            self._handlers[type(event)](*event)
        finally:
            self.relay.save()
            before, self.wake_at = self.wake_at, self.relay.wake_at
            if self.wake_at != before or type(event) is events.Woken:
                self._do(effects.WakeAt(self.wake_at))
        return self.take_effects()

    def take_effects(self) -> list[Effect]:
        """Return what has to be done and was not returned before."""
        effects, self.relay.effects = self.relay.effects, []
        return effects

    # -------------------------------------------------------------------------------------- what can be read

    @property
    def not_started(self) -> bool:
        """Whether the kernel has not been started, or cannot be used yet."""
        return self.relay.table.not_started

    @property
    def held(self) -> bool:
        """Whether requests wait for a kernel that is still to be started or found."""
        return self.relay.table.held

    def _do(self, effect: Effect) -> None:
        self.relay.effects.append(effect)

    # -------------------------------------------------------------------------------------- requests

    def _requested(
        self, front_end: int, request: Message, unsent: int, is_away: bool, was_held: bool
    ) -> None:
        relay, table = self.relay, self.relay.table
        if not self._check_access(front_end, request) or not relay.receive_request(request, unsent):
            return
        if request.channel is Channel.CONTROL and type_of(request) == "shutdown_request":
            self._do(effects.ReportShutdown(front_end, denied=False))
        if table.must_wait and type_of(request) == "interrupt_request":
            self._interrupt()
            return relay.send(relay.placeholder.acknowledge(request))
        if table.not_started:
            return self._take_before_start(request)
        if was_held:
            return relay.take(request)
        self._revive_if_ended(front_end, request)
        if table.not_started:
            return self._take_before_start(request)
        if is_away and (known := relay.placeholder.answer(request)):
            return relay.send(known)
        if self.life.lost_cause and has_reply(request):
            return relay.answer_lost(request)
        relay.take(request)

    def _take_before_start(self, request: Message) -> None:
        """Take a request for a kernel that has not been started, and that a cell of its user starts."""
        relay = self.relay
        if type_of(request) == "shutdown_request" and request.channel is Channel.CONTROL:
            restart = wants_restart(request)
            self._end_cells(*_NOT_STARTED)
            relay.send(relay.placeholder.reply(request, {"status": "ok", "restart": restart}))
            return self._shut_down(restart=restart)
        relay.table.add_kernel_info(request)
        if known := relay.placeholder.answer_unstarted(request):
            relay.send(known)
        else:
            relay.take(request)
        if is_user_cell(request):
            relay.send(relay.placeholder.show_state("busy"))
            self._do(effects.Wake())

    def _check_access(self, front_end: int, request: Message) -> bool:
        """Return whether the kernel may get this request. If not, the hub answers the request, as another front end
        owns the kernel, or another computer has it."""
        taken_cause, relay = self.life.taken_cause, self.relay
        if front_end == self.ownership.owner and not taken_cause:
            return True
        if is_user_cell(request):
            self._take_over(front_end, request)
        elif taken_cause or needs_owner(request):
            owner = taken_cause or f"{self.ownership.label} has this kernel now"
            relay.send(relay.placeholder.deny(request, f"{owner}: run a cell to take it over"))
            if type_of(request) == "shutdown_request":
                self._do(effects.ReportShutdown(front_end, denied=True))
            return False
        return True

    def _take_over(self, front_end: int, cell: Message) -> None:
        if self.life.taken_cause:
            self.life.set_link_state(LinkState.CONNECTING)
            self._do(effects.Notify())
            self.relay.change_kernel(effects.TakeBack())
        else:
            label, before = self.ownership.front_ends[front_end].label, self.ownership.label
            text = f"You have this kernel now; {before} still sees its output."
            self.relay.send(self.relay.placeholder.show_text(cell, text))
            self.relay.command("tell", event="takeover", text=f"taken over by {label}")
            if self.life.phase is Phase.RESTART:  # requested by the owner before
                self._restart(host_lost=False)
        self.ownership.owner = front_end

    def _revive_if_ended(self, front_end: int, request: Message) -> None:
        """Start the kernel anew if it has ended by itself and this request is a cell of its user. Nobody else may do
        so."""
        life, revives = self.life, self.ownership.front_ends[front_end].revives
        if not (revives and life.ended and is_user_cell(request)) or life.phase is Phase.RESTART:
            return
        cause = life.status.get("cause") or (life.error.cause if life.error else "?")
        text = f"The kernel had ended: {cause}. This is a new one, without its variables."
        life.update(state="starting")
        life.error = None
        life.set_phase(Phase.REVIVE)
        is_lost = life.link_state is LinkState.LOST
        if self._has_starter and is_lost:
            self._note = text
        else:
            self.relay.send(self.relay.placeholder.show_text(request, text))
        if is_lost:
            return self._create_anew()
        self.relay.to_keeper(Lane.ORDERED, keeper_message(do="revive"))

    # -------------------------------------------------------------------------------------- commands

    def _interrupt(self) -> None:
        if not self.not_started:
            return self.relay.interrupt()
        self._end_cells("KeyboardInterrupt", "the kernel had not started yet; its start was cancelled")
        self._do(effects.TellStarter(interrupted=True))
        self._do(effects.Wake())

    def _command(self, do: str, arguments: dict[str, Any]) -> None:
        """Send a command to the keeper, if there is one."""
        if do == "interrupt":
            return self._interrupt()
        if do == "restart":
            self.life.update(state="starting")
        if not self.not_started:
            self.relay.pacer.end_replay()  # the front end waits for the kernel's end now, not for its output
            self.relay.table.forget_shutdown()
            self.relay.command(do, **arguments)

    def _restart(self, host_lost: bool) -> None:
        """Start a new kernel process, with the same GPUs unless the kernel's host is lost."""
        life, requested = self.life, self.life.phase is Phase.RESTART
        life.set_phase(Phase.RUN)
        self._do(effects.RestoreSockets())
        if self.not_started:
            if not requested:  # else the shutdown has done so, and the cells that wait are for the new kernel
                self._end_cells(*_NOT_STARTED)
            life.want(state="idle")
            self._do(effects.Notify())
        elif host_lost or life.link_state is LinkState.LOST:
            self.relay.kernel_lost(_RESTARTED, waiting=False)
            life.update(state="starting")
            life.error = None
            self._create_anew()
        else:
            life.restart_begins()
            self._do(effects.AttachKernel())
            self._command("restart", {})
        self._resume()

    def _hold(self, held: bool) -> None:
        if held:
            self.relay.table.held = True
        elif not self.life.closed:
            self._resume()

    def _resume(self) -> None:
        self.relay.table.held = False
        self.relay.release()
        self._do(effects.Wake())

    def _stop(self, why: str) -> None:
        self.life.set_phase(Phase.STOP)
        self._command("stop", {"why": why})
        self._do(effects.AttachKernel())

    def _close(self) -> None:
        self.life.set_phase(Phase.CLOSED)
        self.relay.explain_wait("")
        self.relay.close()

    # -------------------------------------------------------------------------------------- time and link

    def _attached(self, keeper: str, connection: str) -> None:
        self.life.set_link_state(LinkState.UP)
        self._do(effects.Notify())
        if connection:
            self.relay.command("tell", event="connection", text=connection)
        self.relay.show(self.relay.notice.link_up())
        self._started()
        self.relay.link_up(keeper)

    def _detached(
        self, problem: GpuKernelError | None, silence: float, since: str, was_attached: bool, waits: bool
    ) -> None:
        if self.life.phase is Phase.REVIVE:
            # The keeper may have started the kernel: its cell must not run once more, in another one.
            self.life.set_phase(Phase.RUN)
        if was_attached or waits:
            self.relay.link_down(problem, silence, since, KEEPS_RUNNING if was_attached else STARTS)
        if waits and not was_attached:  # VS Code ends a start, or a restart, when the kernel is idle
            self.relay.send(self.relay.placeholder.show_state("idle"))
        self.life.set_link_state(LinkState.AWAY if was_attached else LinkState.CONNECTING)
        self._do(effects.Notify())

    def _kernel_taken(self, cause: str, remedy: str) -> None:
        # The node has answered: no cell waits for the link any more.
        self.relay.show(self.relay.notice.link_up())
        self.life.taken(cause)
        self.relay.kernel_taken(cause, remedy)
        self._do(effects.Notify())

    def _keeper_lost(self, error: GpuKernelError | None, for_good: bool) -> None:
        life, relay = self.life, self.relay
        relay.show(relay.notice.link_up())
        if error is None:
            return
        relay.explain_wait("")
        if life.phase is Phase.REVIVE and not for_good:  # the keeper was about to exit
            return self._create_anew()
        if not life.ended:
            life.error = error
        relay.kernel_lost(f"{error.cause}. {error.remedy}")  # which may bring older states
        if not life.ended:
            life.update(state="ended", cause=error.cause, remedy=error.remedy)
        if life.phase is Phase.RESTART:  # the restart may have come before this request for it
            life.set_phase(Phase.RUN)
        life.set_link_state(LinkState.LOST)
        self._do(effects.Notify())

    # -------------------------------------------------------------------------------------- another kernel

    def _switched(self, node: str, kernel_id: str) -> None:
        self.relay.set_node(node)
        if kernel_id:
            self.relay.change_kernel(effects.UseKernel(kernel_id))

    def _create_anew(self) -> None:
        """Create the kernel anew, at once, or with the next cell if there is a starter."""
        if self._has_starter:
            self.relay.table.not_started = True
            return self._do(effects.TellStarter(interrupted=False))
        self.life.set_phase(Phase.RUN)
        self.life.update(state="starting", gpus=[])
        self.life.error = None
        self.life.set_link_state(LinkState.CONNECTING)
        self._do(effects.Notify())
        self.relay.change_kernel(effects.CreateAnew())

    # -------------------------------------------------------------------------------------- before the start

    def _unstarted(self, node: str, kernel_id: str) -> None:
        """The next kernel is started by a cell. Requests without a reply wait for it."""
        life, relay = self.life, self.relay
        relay.table.not_started = True
        self._switched(node, kernel_id)
        life.set_phase(Phase.RUN)
        life.status = {"state": "idle", "gpus": [], "pid": 0}
        life.error = None
        relay.start_reason = ""
        for own_code in relay.table.answer_own_code(waits=True):
            relay.send(relay.placeholder.acknowledge(own_code.message, is_idle=own_code.is_idle))
        relay.send(relay.placeholder.show_state("busy" if relay.table.waiting_cells else "idle"))
        life.set_link_state(LinkState.CONNECTING)
        self._do(effects.Notify())

    def _status_known(self, status: dict[str, Any], wanted: bool) -> None:
        before = self.life.status
        (self.life.want if wanted else self.life.update)(**status)
        if self.life.status != before:
            self._do(effects.Notify())

    def _started(self) -> None:
        """The kernel can be used: requests do not wait for its start any more."""
        self.relay.explain_wait("")
        cells, note, self._note = self.relay.table.waiting_cells, self._note, ""
        if cells and note:
            self.relay.send(self.relay.placeholder.show_text(cells[0], note))
        self.relay.table.not_started = False

    def _start_failed(self, error: GpuKernelError, stopped: bool) -> None:
        """End the cells that wait with the error. The next cell may try again."""
        hop = f"{error.hop}: " if error.hop else ""
        reason = f"{hop}{error.cause}. {error.remedy}".strip()
        self._end_cells(type(error).__name__, self.relay.notice.for_user(reason))
        if stopped:
            self._shut_down(restart=False)

    def _end_cells(self, name: str, reason: str) -> None:
        """No kernel is started for the cells that wait: they end with an error."""
        self.relay.explain_wait("")
        cells = self.relay.table.cancel_waiting()
        if self.not_started:
            self.relay.send(self.relay.placeholder.show_state("idle"))
        self.relay.send(self.relay.placeholder.end_cells(cells, name, reason))

    def _shut_down(self, *, restart: bool) -> None:
        """Show the kernel as ended: its shutdown was requested before it was started."""
        self.life.shutdown_requested(restart=restart)
        asked = "restart" if restart else "shutdown"
        self.life.update(state="ended", asked=asked, cause="shut down", returncode=0)
        self._do(effects.Notify())
