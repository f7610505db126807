"""The messages of one kernel: requests of its front ends to the keeper, and the keeper's messages to the front ends.

While the link is down requests wait here or in the endpoint's queue, and the placeholder answers what it can. What the
messages mean for the kernel's life is decided in `remote_kernel.py`, which the relay asks and tells.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....errors import GpuKernelError
from ....wire.kernel_messages.compose import is_user_cell
from ....wire.messages import Channel, Data, Lane, Message, MessageError, id_of, keeper_message, type_of
from ....wire.stream.endpoint import EndpointState
from ... import validate
from ...front_end import requests
from ...front_end.delivered import Delivered, RequestFile
from ...front_end.front_ends import Access, FrontEnd, FrontEnds
from ...kernel_settings import KernelSettings
from ...node.attachments import new_endpoint
from ...node.node_link import NodeLink
from ..kernel_info import recall
from ..states import AttachTiming
from .displays import OfflineNotice, TransientDisplays
from .pacing import Pacer
from .pending_request import Decision, Taken
from .placeholder import Placeholder
from .request_table import RequestTable

if TYPE_CHECKING:
    from ..kernel_state import HubContext
    from ..remote_kernel import RemoteKernel

_INTERRUPTED = (
    "the node is out of reach; the cell is interrupted when it is back, and shows its output until then"
)
_UNKNOWN = "the local hub was killed, and it is not known whether the kernel has got this request"


class HubRelay:
    """Passes the messages between the front ends and the keeper of one kernel."""

    def __init__(
        self,
        context: HubContext,
        kernel: RemoteKernel,
        link: NodeLink,
        attach_timing: AttachTiming,
        settings: KernelSettings,
        delivered: Delivered | None,
    ) -> None:
        self._runtime, self._log = context.runtime, context.log
        runtime = self._runtime
        self.endpoint = new_endpoint(runtime, delivered.counts if delivered else None)
        self._kernel = kernel
        self._link = link
        self._delivered = delivered
        was_up = delivered is not None and delivered.counts is not None
        self.table = RequestTable(was_up=was_up)
        self._file = RequestFile(None) if delivered is None else delivered.requests
        info, learn = recall(context.infos, link.name, settings.python)
        self._keeper = ""  # its numbering
        self.placeholder = Placeholder(runtime, self._send_to_front_ends, info, learn)
        self.displays = TransientDisplays(runtime, self._send_to_front_ends)
        self.notice = OfflineNotice(runtime, self.displays, link.name, settings, self.table)
        greet, complete = self.placeholder.greet_subscriber, attach_timing.complete
        self.front_ends = FrontEnds(runtime, self._receive_request, greet, complete, delivered, context.bind)
        self._pacer = Pacer(
            self._pass_on,
            self._pacer_progressed,
            context.log,
            has_room=self.front_ends.make_room,
            rate_limited=lambda: self.front_ends.rate_limited,
        )
        self._recall_requests()

    def _recall_requests(self) -> None:
        """Take over the requests of a hub that was killed, perhaps before that hub had sent them."""
        saved = self._file.recall()
        do, cells = self.table.recall(saved)
        if cells:
            self.send(Lane.URGENT, keeper_message(do=do, cells=cells, late=True))
        if self.table.in_flight:
            self._send_unanswered()  # before anything else, as the cells are older
        if saved:
            self.table.link_down = True  # so an interrupt is answered, and ends the cells that wait

    def close(self) -> None:
        """Stop passing messages on; the front ends leave."""
        self.notice.link_up()
        self.displays.clear()
        self._pacer.close()

    # -------------------------------------------------------------------------------------- to the keeper

    def command(self, do: str, **arguments: Any) -> None:
        """Send a command to the keeper: interrupt, restart, kill, signal, stop."""
        if self.table.not_started:
            if do == "interrupt":
                self._kernel.interrupted_before_start()
            return
        if do == "interrupt":
            late = self.table.must_wait  # when it arrives the kernel may have nothing to interrupt
            canceled = self.table.cancel_waiting()
            self.notice.update()
            self.placeholder.cancel(canceled)
            arguments = {"cells": self.table.in_flight_ids, "late": late, **arguments}
            if late:
                self._end_interrupted()
        else:
            self._pacer.end_replay()  # the front end waits for the kernel's end now, not for its output
            self.table.forget_shutdown()
        self.send(Lane.URGENT, keeper_message(do=do, **arguments))

    def _end_interrupted(self) -> None:
        """Cells are interrupted in an outage. The hub ends those of VS Code, which would ask its user to restart the
        kernel."""
        if not self._kernel.is_of_vs_code:
            return
        cells = self.table.end_in_flight()
        self.placeholder.end_cells(cells, "KeyboardInterrupt", _INTERRUPTED)
        for cell in cells:
            self._report_failure_seen(id_of(cell))

    def send(self, lane: Lane, message: Message) -> None:
        """Send a message to the keeper, when the link is up."""
        self._save()
        self.endpoint.send(lane, message.encode())
        self._link.pump(self.endpoint)

    def resume(self) -> None:
        """Send the requests that were held, unless the link is down."""
        self.table.held = False
        self._release()

    def _release(self) -> None:
        """Send the requests that waited and can be sent now."""
        for pending in self.table.release():
            if not pending.repeated or requests.may_be_repeated(pending.message):
                self._forward(pending.message)
                continue
            self.table.end(pending.message)
            if pending.msg_type == "interrupt_request":  # it was sent by `_recall_requests`
                self.placeholder.acknowledge(pending.message)
            else:
                self.placeholder.reject(pending.message, _UNKNOWN, "HubError")

    def _save(self) -> None:
        """Write what has changed of the requests to their file, before anything is sent."""
        if changes := self.table.take_changes():
            self._file.write(changes)
            self.notice.update()

    def _receive_request(self, front: FrontEnd, request: Message) -> None:
        if self._check_access(front, request):
            self._handle_request(front, request)
            self._save()

    def _handle_request(self, front: FrontEnd, request: Message) -> None:
        table = self.table
        if requests.exceeds_queue(request, table.size(self.endpoint.outbox.size)):
            return self.placeholder.reject(request, requests.QUEUE_FULL.format(self._link.name))
        if request.channel is Channel.CONTROL and type_of(request) == "shutdown_request":
            front.notify({"event": "shutdown", "kernel": self._kernel.kernel_id})
        if table.must_wait and type_of(request) == "interrupt_request":
            self.command("interrupt")
            return self.placeholder.acknowledge(request)
        if table.not_started:
            return self._receive_before_start(request)
        if table.held:
            return self._take(request)
        self._kernel.revive_if_ended(front, request)
        if table.not_started:
            return self._receive_before_start(request)
        if self._may_use_placeholder() and self.placeholder.answer(request):
            return
        if self._kernel.lost_cause and requests.has_reply(request) and not requests.needs_owner(request):
            return self.placeholder.fail([request], self.notice.for_user(self._kernel.lost_cause))
        if request.channel is Channel.SHELL:
            self._kernel.observe_shell_request(request)
        self._take(request)

    def _take(self, request: Message) -> None:
        """Send the request, or let it wait for the link or the kernel."""
        taken = self.table.add(request)
        if taken is Taken.SEND:
            self._forward(request)
        elif taken is Taken.ANSWER:
            self.placeholder.acknowledge(request)

    def _receive_before_start(self, request: Message) -> None:
        """Take a request for a kernel that has not been started, and that a cell of its user starts."""
        if type_of(request) == "shutdown_request":
            return self._kernel.shut_down_before_start(request)
        if request.channel is Channel.SHELL:
            self._kernel.observe_shell_request(request)
        self.table.add_kernel_info(request)
        if not self.placeholder.answer_unstarted(request):
            self._take(request)
        if is_user_cell(request):
            self.placeholder.show_state("busy")
            self._kernel.wake()

    def _check_access(self, front: FrontEnd, request: Message) -> bool:
        """Return whether the kernel may get this request. If not, the hub answers the request."""
        taken_cause = self._kernel.taken_cause
        access = self.front_ends.access(front, request, kernel_taken=bool(taken_cause))
        if access is Access.TAKES_OVER:
            self._take_over(front, request)
        elif access is Access.DENIED:
            owner = taken_cause or f"{self.front_ends.owners_label} has this kernel now"
            self.placeholder.deny(request, f"{owner}: run a cell to take it over")
            if type_of(request) == "shutdown_request":
                front.notify({**self._kernel.event(), "state": "ended", "asked": "shutdown", "returncode": 0})
        elif access is Access.NO_KERNEL:
            self.placeholder.answer(request)
        return access in (Access.GRANTED, Access.TAKES_OVER)

    def _take_over(self, front: FrontEnd, cell: Message) -> None:
        if self._kernel.taken_cause:
            self._kernel.take_back()
        else:
            before = self.front_ends.owners_label
            self.placeholder.show_text(cell, f"You have this kernel now; {before} still sees its output.")
            text = f"taken over by {front.label}"
            self.send(Lane.URGENT, keeper_message(do="tell", event="takeover", text=text))
            self._kernel.taken_over()
        self.front_ends.owner = front

    def _may_use_placeholder(self) -> bool:
        """Return whether the placeholder may answer. Before the node was reached it may not: a front end must get the
        error, such as that of a refused key."""
        return self.endpoint.state is not EndpointState.OPEN and self._kernel.is_reachable

    def _forward(self, request: Message) -> None:
        if request.channel is Channel.CONTROL and type_of(request) == "shutdown_request":
            self._pacer.end_replay()
            self._kernel.shutdown_requested(restart=requests.wants_restart(request))
        self.table.sent(request)
        self.displays.cell_sent(request)
        self.send(requests.lane_of_request(request), request)

    # -------------------------------------------------------------------------------------- to the front ends

    def deliver(self, data: Data) -> None:
        """Take a message of the keeper."""
        endpoint, delivered = self.endpoint, self._delivered
        pieces = delivered.take_pieces(endpoint.lane, endpoint.delivered) if delivered else 0
        self._pacer.put(validate.message(data), endpoint.received, endpoint.lane, pieces)
        self._hold_acknowledgements()

    def _pacer_progressed(self) -> None:
        """Acknowledge the messages that were passed on, so that the keeper sends more."""
        self._hold_acknowledgements()
        self._link.pump(self.endpoint)

    def _hold_acknowledgements(self) -> None:
        self.endpoint.hold_acknowledgements(self._pacer.oldest, self._pacer.waiting_by_lane)

    def _pass_on(self, message: Message) -> None:
        if message.channel is Channel.KEEPER:
            return self._receive_event(message)
        decision = self.table.received(message)
        self._save()  # before it is delivered: if need be, the keeper sends it again
        if decision is Decision.ANSWER and self.table.answer is not None:
            return self.send(Lane.URGENT, self.table.answer)
        dropped = decision is Decision.DROP
        if not dropped and not self.placeholder.is_outdated(message):
            self._deliver(message)
        elif message.channel is Channel.SHELL:
            self.placeholder.observe(message)
        self._save_counts()
        self._acknowledge_failure(message)

    def _receive_event(self, message: Message) -> None:
        """Take an event of the keeper."""
        try:
            event = validate.keeper_event(message.content())
        except (validate.Malformed, MessageError) as error:
            text = "%s: kernel %s: ignored a malformed event of the keeper: %s"
            return self._log.warning(text, self._link.name, self._kernel.kernel_id, error)
        kind = event.pop("event", "")
        if kind == "mark":  # these replies were delivered before, here or by a hub that was killed
            for reply in event["replies"]:
                self._report_failure_seen(reply)
        elif kind == "successor":  # it does not know which cells its killed predecessor got
            self._send_unanswered()
        elif kind == "replay":
            (self._pacer.begin_replay if event["state"] == "begin" else self._pacer.end_replay)()
        elif kind == "state" and event["state"]:
            self._kernel.status_reported(event)

    def _send_unanswered(self) -> None:
        """Send the keeper a list of the cells that have no reply."""
        cells, count = self.table.describe_cells(), self.placeholder.count
        self.send(Lane.ORDERED, keeper_message(do="unanswered", cells=cells, count=count))

    def _deliver(self, message: Message) -> None:
        """Send a message of the kernel to the front ends."""
        self.placeholder.observe(message)
        self.displays.observe(message)
        self.front_ends.send(message)

    def _save_counts(self) -> None:
        """Save how many messages were delivered, at once: if the hub is killed before this, the last one comes
        twice."""
        if self._delivered is not None:
            self._hold_acknowledgements()
            self._delivered.save(self.endpoint.delivered, self._pacer.pieces or self._delivered.pieces)

    def _acknowledge_failure(self, message: Message) -> None:
        """Report to the keeper at once that the front end has the reply of a cell that failed, so that the keeper gets
        this report before whatever the front end sends next."""
        if failed := requests.failed_cell(message):
            self._report_failure_seen(failed)

    def _report_failure_seen(self, cell: str) -> None:
        """The front end has the reply of this cell, which failed: cells that are sent from now on are not aborted."""
        self.send(Lane.ORDERED, keeper_message(do="failure_seen", reply=cell))

    def _send_to_front_ends(self, message: Message) -> None:
        """Send a message that the hub made."""
        if message.channel in (Channel.SHELL, Channel.CONTROL):
            self.table.answered(message)
        self._save()
        self.front_ends.send(message)

    # -------------------------------------------------------------------------------------- link and kernel

    def link_up(self) -> None:
        """The link carries the kernel, for the first time or after an outage: send what waited."""
        if self._keeper != self.endpoint.peer:
            self._keeper = self.endpoint.peer
            self._pacer.keeper_changed()
            self._hold_acknowledgements()
        self._pacer.begin_replay()
        self.table.link_is_up()
        self._release()

    def link_down(self, problem: GpuKernelError | None, silence: float, kernel: str) -> None:
        """The link is down; the node has been silent for so many seconds. `kernel`: see OfflineNotice.link_down."""
        answered, cells = self.table.link_is_down()
        self.notice.link_down(problem, silence, kernel)
        for request in answered:
            self.placeholder.acknowledge(request)
        if cells:
            self._end_interrupted()
            self.send(Lane.URGENT, keeper_message(do="cancel", cells=cells))
        self._save()

    def kernel_lost(self, reason: str) -> None:
        """The kernel does not exist any more, or is not for its front ends: requests get an error as reply."""
        self._pacer.flush()  # before their replies, whether it is read or not
        self.placeholder.fail(self.table.clear(), self.notice.for_user(reason))
        self._save()

    def kernel_taken(self, by: str, remedy: str) -> None:
        """Another computer has the kernel: answer the requests to which there is no reply."""
        for request in self.table.clear():
            if requests.needs_owner(request):
                self.placeholder.deny(request, by)
            elif not self.placeholder.answer(request):
                self.placeholder.fail([request], f"{by}. {remedy}")
        self._save()

    def discard_requests(self) -> None:
        """Forget the requests to a kernel that does not exist any more. The last of them was the kernel's shutdown."""
        self.table.discard_sent()
        self._save()

    def switch(self, kernel_id: str) -> None:
        """The front ends get another kernel, whose keeper gets the requests without a reply."""
        self._take_endpoint(kernel_id)
        self._release()

    def unstart(self, kernel_id: str) -> None:
        """The kernel does not exist any more. Its front ends get another kernel; requests without a reply wait until
        that kernel has started."""
        self.table.not_started = True
        self._take_endpoint(kernel_id)
        self._save()

    def _take_endpoint(self, kernel_id: str) -> None:
        """From now on exchange messages with the keeper of another kernel, which gets requests without a reply."""
        self._pacer.flush()
        self.placeholder.kernel_changed()
        self.endpoint = new_endpoint(self._runtime, None)
        self.opened(kernel_id)
        for interrupt in self.table.requeue():
            self.placeholder.acknowledge(interrupt)

    def opened(self, kernel_id: str) -> None:
        """The files have this id before the front end's process hears of it."""
        if self._delivered is not None:
            self._delivered.switch(kernel_id)

    def set_link(self, link: NodeLink) -> None:
        """The front ends get a kernel of another node, or over another link."""
        self._link = link
        self.notice.set_node(link.name)
