"""The messages of one kernel: requests of its front ends to the keeper, and the keeper's messages to the front ends.

While the link is down requests wait here or in the endpoint's queue, and the placeholder answers what it can. What
requests and events mean for the kernel's life is decided in `kernel_core.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ....errors import GpuKernelError
from ....wire.kernel_messages.compose import TransientDisplay
from ....wire.messages import Channel, Lane, Message, MessageError, id_of, keeper_message, type_of
from ....wire.runtime import EventRuntime
from ... import validate
from ...front_end import requests
from ...front_end.requests import SavedRequest
from ...kernel_settings import KernelSettings
from . import effects
from .access import Ownership
from .displays import OfflineNotice, TransientDisplays
from .effects import Effect
from .life import Life
from .pacing import Pacer
from .pending_request import Decision, Taken
from .placeholder import Placeholder
from .request_table import RequestTable

_INTERRUPTED = (
    "the node is out of reach; the cell is interrupted when it is back, and shows its output until then"
)
_NOT_SENT = "the cell had not been sent to the node yet"
_UNKNOWN = "the local hub was killed, and it is not known whether the kernel has got this request"
_RUNS = ("starting", "waiting", "idle", "busy")
"""The states in which the placeholder answers for the kernel."""


@dataclass(frozen=True)
class CoreSetup:
    """What a kernel's core is told when it is made.

    id_prefix: What no other core begins the ids of its messages with.
    node: Where the kernel is, for messages.
    kernel_info: The content of the kernel_info_reply of a similar kernel before.
    was_up: Whether the kernel was connected to a hub that was killed.
    has_starter: Whether a cell of the user starts the kernel.
    """

    id_prefix: str
    node: str
    settings: KernelSettings
    kernel_info: bytes | None
    was_up: bool
    has_starter: bool


class HubRelay:
    """Passes the messages between the front ends and the keeper of one kernel. What is to be done is in the `effects`
    of the present event."""

    def __init__(self, setup: CoreSetup, life: Life, ownership: Ownership) -> None:
        self.effects: list[Effect] = []
        self.of_vs_code = False
        """Whether the kernel's front end is known to be VS Code."""
        self._life = life
        self._ownership = ownership
        self.runtime = runtime = EventRuntime(setup.id_prefix)
        """The time of the present event."""
        self.table = RequestTable(was_up=setup.was_up)
        self.placeholder = Placeholder(runtime, setup.kernel_info)
        self.displays = TransientDisplays(runtime)
        self.notice = OfflineNotice(runtime, setup.node, setup.settings, self.table)
        self.pacer = Pacer()
        self.start_reason = ""
        """Why the kernel has not been started yet, as it was explained last; "" when nothing is shown any more."""
        self._start_display = TransientDisplay(runtime)
        self._node = setup.node
        self._keeper = ""  # its numbering

    def __repr__(self) -> str:
        return f"<HubRelay {self.table} {self.placeholder} {self.pacer} {self.notice} {self.displays}>"

    def vs_code_seen(self) -> None:
        """The kernel's front end is VS Code."""
        self.of_vs_code = True
        self.effects.append(effects.Notify())

    @property
    def wake_at(self) -> float | None:
        """When the pacer or the notice has to be looked at again."""
        look_at, show_at = self.pacer.look_at, self.notice.show_at
        return look_at if show_at is None else show_at if look_at is None else min(look_at, show_at)

    def wake(self, has_room: bool) -> None:
        """Show the notice, or pass on a message that waits, if the time for that has come: see `Woken`."""
        now = self.runtime.monotonic()
        if self.notice.show_at is not None and self.notice.show_at <= now:
            self.show(self.notice.show())
        if self.pacer.look_at is None or self.pacer.look_at > now:
            return
        limited = self._ownership.rate_limited
        if message := self.pacer.next(now, has_room=has_room, rate_limited=limited):
            self._pass_on_waiting(message)

    def recall_requests(self, saved: list[SavedRequest]) -> None:
        """Take over the requests of a hub that was killed, perhaps before that hub had sent them."""
        do, cells = self.table.recall(saved)
        if cells:
            self.command(do, cells=cells, late=True)
        if self.table.in_flight:
            self._send_unanswered()  # before anything else, as the cells are older
        if saved:
            self.table.link_down = True  # so an interrupt is answered, and ends the cells that wait

    def close(self) -> None:
        """Stop passing messages on; the front ends leave."""
        self.show(self.notice.link_up())
        self.show(self.displays.clear())
        self.pacer.close()

    # -------------------------------------------------------------------------------------- to the keeper

    def interrupt(self) -> None:
        """Interrupt the cells in flight, and end those that wait."""
        late = self.table.must_wait  # when it arrives the kernel may have nothing to interrupt
        canceled = self.table.cancel_waiting()
        self.show(self.notice.update())
        self.send(self.placeholder.end_cells(canceled, "KeyboardInterrupt", _NOT_SENT))
        cells = self.table.interrupt()
        if late:
            self._end_interrupted()
        self.command("interrupt", cells=cells, late=late)

    def _end_interrupted(self) -> None:
        """Cells are interrupted in an outage. The hub ends those of VS Code, which would ask its user to restart the
        kernel."""
        if not self.of_vs_code:
            return
        cells = self.table.end_in_flight()
        self.send(self.placeholder.end_cells(cells, "KeyboardInterrupt", _INTERRUPTED))
        for cell in cells:
            self._report_failure_seen(id_of(cell))

    def command(self, do: str, **arguments: Any) -> None:
        """Send a command to the keeper, before messages that wait."""
        self.to_keeper(Lane.URGENT, keeper_message(do=do, **arguments))

    def to_keeper(self, lane: Lane, message: Message) -> None:
        """Send a message to the keeper, when the link is up."""
        self.save()
        self.effects.append(effects.ToKeeper(lane, message))

    def save(self) -> None:
        """Write what has changed of the requests to their file, before anything is sent."""
        if changes := self.table.take_changes():
            self.effects.append(effects.WriteRequests(changes))
            self.show(self.notice.update())

    def receive_request(self, request: Message, unsent: int) -> bool:
        """Return whether there is room for a new request. If not, the hub answers the request."""
        if not requests.exceeds_queue(request, self.table.size(unsent)):
            return True
        self.send(self.placeholder.reject(request, requests.QUEUE_FULL.format(self._node)))
        return False

    def take(self, request: Message) -> None:
        """Send the request, or let it wait for the link or the kernel."""
        taken = self.table.add(request)
        if taken is Taken.SEND:
            self._forward(request)
        elif taken is Taken.ANSWER:
            self.send(self.placeholder.acknowledge(request))

    def release(self) -> None:
        """Send the requests that waited and can be sent now."""
        for pending in self.table.release():
            if not pending.repeated or requests.may_be_repeated(pending.message):
                self._forward(pending.message)
                continue
            self.table.end(pending.message)
            if pending.msg_type == "interrupt_request":  # it was sent by `recall_requests`
                self.send(self.placeholder.acknowledge(pending.message))
            else:
                self.send(self.placeholder.reject(pending.message, _UNKNOWN, "HubError"))

    def _forward(self, request: Message) -> None:
        if request.channel is Channel.CONTROL and type_of(request) == "shutdown_request":
            self.pacer.end_replay()
            self._life.shutdown_requested(restart=requests.wants_restart(request))
        if type_of(request) == "interrupt_request" and (cells := self.table.interrupt()):
            self.command("cancel", cells=cells)  # the interrupt may overtake those that it is for
        self.table.sent(request)
        self.show(self.displays.cell_sent(request))
        self.to_keeper(requests.lane_of_request(request), request)

    # -------------------------------------------------------------------------------------- to the front ends

    def greet_subscriber(self) -> None:
        """A client has subscribed to iopub."""
        self.send(self.placeholder.greet_subscriber())

    def receive(self, message: Message, number: int, lane: Lane, pieces: int, has_room: bool) -> None:
        """Take a message of the keeper, and pass it on now or later: see `Arrived`."""
        if self.pacer.put(message, number, lane, pieces, has_room, self.runtime.monotonic()):
            self._pass_on(message)
        else:
            self._save_progress()

    def _pass_on_waiting(self, message: Message) -> None:
        try:
            self._pass_on(message)
        except Exception as error:  # a bug of ours costs this message, not those after it
            self.effects.append(effects.LogText("a message was lost", error))
            self._save_progress()

    def _pass_on(self, message: Message) -> None:
        if message.channel is Channel.KEEPER:
            self._receive_event(message)
            return self._save_progress()
        decision = self.table.received(message)
        dropped = decision is Decision.DROP
        if dropped:  # before its request is forgotten: to the next hub, which would pass the message on, it is not sent
            self._save_progress()
        self.save()  # before it is delivered: if need be, the keeper sends it again
        if decision is Decision.ANSWER and self.table.answer is not None:
            self.to_keeper(Lane.URGENT, self.table.answer)
            return self._save_progress()
        if not dropped and not self.placeholder.is_outdated(message):
            self._observe(message)
            self.displays.observe(message)
            self.effects.append(effects.ToFrontEnds(message))
        elif message.channel is Channel.SHELL:
            self._observe(message)
        self._save_progress()
        # Reported at once, so that the keeper gets it before whatever the front end sends next.
        if failed := requests.failed_cell(message):
            self._report_failure_seen(failed)

    def _observe(self, message: Message) -> None:
        known = self.placeholder.kernel_info
        self.send(self.placeholder.observe(message))
        if self.placeholder.kernel_info is not known and self.placeholder.kernel_info:
            self.effects.append(effects.Learn(self.placeholder.kernel_info))

    def _receive_event(self, message: Message) -> None:
        """Take an event of the keeper."""
        try:
            event = validate.keeper_event(message.content())
        except (validate.Malformed, MessageError) as error:
            return self.effects.append(effects.LogText(f"ignored a malformed event of the keeper: {error}"))
        kind = event.pop("event", "")
        if kind == "mark":  # these replies were delivered before, here or by a hub that was killed
            for reply in event["replies"]:
                self._report_failure_seen(reply)
        elif kind == "successor":  # it does not know which requests its killed predecessor got
            self._send_unanswered()
            for one in self.table.sent_on(Channel.CONTROL):
                if one.msg_type == "kernel_info_request":  # others must not come twice
                    self.to_keeper(Lane.URGENT, one.message)
        elif kind == "replay" and event["state"] == "begin":
            self.pacer.begin_replay(rate_limited=self._ownership.rate_limited)
        elif kind == "replay":
            self.pacer.end_replay()
        elif kind == "state" and event["state"]:
            if event["state"] in _RUNS:
                self.send(self.placeholder.update_state(event["state"]))
            if self._life.report(event):
                self.effects.append(effects.Notify())

    def _send_unanswered(self) -> None:
        """Send the keeper a list of the requests on shell that have no reply."""
        cells = [one.describe() for one in self.table.sent_on(Channel.SHELL)]
        self.to_keeper(Lane.ORDERED, keeper_message(do="unanswered", cells=cells))

    def _save_progress(self) -> None:
        """If the hub is killed before this effect, the last message comes twice."""
        pacer = self.pacer
        self.effects.append(effects.SaveProgress(pacer.oldest, tuple(pacer.waiting_by_lane), pacer.pieces))

    def _report_failure_seen(self, cell: str) -> None:
        """The front end has the reply of this cell, which failed: cells that are sent from now on are not aborted."""
        self.to_keeper(Lane.ORDERED, keeper_message(do="failure_seen", reply=cell))

    def send(self, messages: list[Message]) -> None:
        """Send messages that the hub made to the front ends."""
        for message in messages:
            if message.channel in (Channel.SHELL, Channel.CONTROL):
                self.table.answered(message)
            self.save()
            self.effects.append(effects.ToFrontEnds(message))

    def show(self, messages: list[Message]) -> None:
        """Send messages by which the hub shows or removes transient displays."""
        for message in messages:
            self.displays.observe(message, of_keeper=False)
        self.send(messages)

    def explain_wait(self, text: str) -> None:
        """Show this text in the first cell that waits for the start; "": remove what is shown."""
        display, cells = self._start_display, self.table.waiting_cells
        shows = bool(text and cells)
        self.show(display.show(self.notice.for_user(text), cells[0].parts[0]) if shows else display.clear())
        self.start_reason = text

    # -------------------------------------------------------------------------------------- link and kernel

    def link_up(self, keeper: str) -> None:
        """The link carries the kernel, for the first time or after an outage: send what waited. `keeper`: the keeper's
        numbering."""
        interrupted = self.table.link_is_up()
        if self._keeper != keeper:
            self._keeper = keeper
            self.pacer.keeper_changed()
            self._save_progress()
            if interrupted:  # they may still be on their way, and a killed keeper's log may be lost
                self.command("cancel", cells=interrupted)
        self.pacer.begin_replay(rate_limited=self._ownership.rate_limited)
        self.release()

    def link_down(self, problem: GpuKernelError | None, silence: float, since: str, kernel: str) -> None:
        """The link is down: answer what the hub can answer, and let the rest wait: see `OfflineNotice.link_down`."""
        answered, cells = self.table.link_is_down()
        self.show(self.notice.link_down(problem, silence, since, kernel))
        for pending in answered:
            self.send(self.placeholder.acknowledge(pending.message, is_idle=pending.is_idle))
        if cells:
            self._end_interrupted()
            self.command("cancel", cells=cells)
        self.save()

    def flush(self) -> None:
        """Pass on all that waits at once, read or not: no more comes from this keeper."""
        for message in self.pacer.flush(self.runtime.monotonic()):
            self._pass_on_waiting(message)

    def kernel_lost(self, reason: str, *, waiting: bool = True) -> None:
        """The kernel does not exist any more, or is not for its front ends: requests get an error as reply. `waiting`:
        also those that wait; else the next kernel gets these."""
        self._answer_unanswered(self.placeholder.fail, self.notice.for_user(reason), waiting=waiting)

    def kernel_refused(self, reason: str) -> None:
        """The front ends do not get the kernel, as its start has failed."""
        self._answer_unanswered(self.placeholder.refuse, self.notice.for_user(reason), waiting=True)

    def kernel_taken(self, by: str, remedy: str) -> None:
        """Another computer has the kernel: answer the requests to which there is no reply."""
        self._answer_unanswered(self.placeholder.deny, f"{by}. {remedy}", waiting=True)

    def _answer_unanswered(self, answer: Callable[..., list[Message]], reason: str, *, waiting: bool) -> None:
        """Answer the requests of a kernel that is gone by this method of the placeholder. `waiting`: also those that
        wait."""
        self.flush()  # before their replies, whether it is read or not
        self.placeholder.kernel_gone()
        for pending in self.table.clear(waiting=waiting):
            self.send(answer(pending.message, reason, is_idle=pending.is_idle))
        # The kernel was busy, perhaps with a cell of another front end.
        if self.placeholder.state == "busy" and not self.table.waiting_cells:
            self.send(self.placeholder.show_state("idle"))
        self.save()

    def answer_lost(self, request: Message) -> None:
        """Answer a request to a kernel that does not exist any more: there is nothing to interrupt or to end."""
        if type_of(request) == "interrupt_request":
            return self.send(self.placeholder.acknowledge(request))
        if type_of(request) == "shutdown_request" and request.channel is Channel.CONTROL:
            restart = requests.wants_restart(request)
            self._life.shutdown_requested(restart=restart)
            return self.send(self.placeholder.reply(request, {"status": "ok", "restart": restart}))
        self.send(self.placeholder.fail(request, self.notice.for_user(self._life.lost_cause)))

    def change_kernel(self, use: Effect) -> None:
        """From now on exchange messages with the keeper of another kernel, by this effect. That keeper gets the
        requests that have no reply, but no cell that was interrupted."""
        self.flush()
        self.placeholder.kernel_gone()
        self.effects.append(use)
        for pending in self.table.requeue():
            self.send(self.placeholder.end_with_kernel(pending.message, is_idle=pending.is_idle))
        self.save()
        self.release()

    def set_node(self, node: str) -> None:
        """The front ends get a kernel of another node, or over another link."""
        self._node = node
        self.notice.set_node(node)
