"""The requests of front ends to one kernel that have no reply yet: those that wait, and those that were sent.

One table says of each request where it is, what front ends know of it, and what is done with the kernel's later
messages about it. What waits, what is in flight, what may be sent, what an interrupt ends, and what the next hub or
keeper has to know are derived from the table. It does no I/O, and calls nobody: the caller writes `take_changes` to the
file from which the successor of a killed hub makes its table.
"""

from __future__ import annotations

from collections.abc import Iterator

from ....wire.kernel_messages.compose import is_user_cell
from ....wire.messages import Channel, Lane, Message, id_of, parent_key_of, type_of
from ...front_end.requests import (
    Change,
    SavedRequest,
    answered_key,
    has_reply,
    header_key,
    is_own_code,
    lane_of_request,
)
from .pending_request import Decision, Delivery, PendingRequest, Taken

_MAX_ANSWERED = 1000
"""Requests of which it is known that the hub has answered them; of more the oldest are forgotten."""
_MAX_OTHERS = 1000
"""Requests besides cells that were sent; of more the oldest are forgotten, as a kernel may leave some without reply."""
_MAX_NAMED = 1000
"""Cells in flight that an interrupt names."""


class RequestTable:
    """`add` gets every request of a front end, `sent` each that is given to the keeper, `received` every message of the
    kernel, and `answered` every reply that the hub makes."""

    def __init__(self, *, was_up: bool = False) -> None:
        """`was_up`: whether the kernel was connected to a hub that was killed."""
        self.held = False
        """Whether all requests wait because the kernel that will get them is not known yet."""
        self.not_started = False
        """Whether all requests wait because the kernel has not been started."""
        self.link_down = False
        """Whether requests wait for the link, but for urgent ones."""
        self.interrupted = False
        """Whether the cells in flight will be interrupted when the link is up."""
        self.answer: Message | None = None
        """The input_reply to the kernel's last question, if a front end has sent one. It is forgotten at the cell's
        end, as it may be a password."""
        self._question = ""  # the msg_id of the kernel's last input_request
        self._was_up = was_up
        self._requests: dict[bytes, PendingRequest] = {}  # by `header_key`, oldest first
        self._by_key: dict[str, dict[bytes, PendingRequest]] = {}  # these by their keys, then by `header_key`
        self._ended: dict[str, Delivery] = {}  # by the keys of requests that are in the table no more
        self._changes: list[Change] = []

    def __repr__(self) -> str:
        reasons = [name for name in ("held", "not_started", "link_down") if getattr(self, name)]
        requests = ", ".join(f"{one.msg_type}{' waits' * one.waits}" for one in self._requests.values())
        return f"<RequestTable {' '.join(reasons) or 'sends'} [{requests}]>"

    def validate(self) -> None:
        """Raise AssertionError if the parts of the table contradict each other, which is a bug."""
        by_key = {key: one for named in self._by_key.values() for key, one in named.items()}
        assert by_key == self._requests and all(self._by_key.values()), self
        assert not any(one.waits and one.delivery is Delivery.OUTPUT for one in self._requests.values()), self
        assert Delivery.ALL not in self._ended.values() and len(self._ended) <= _MAX_ANSWERED, self

    # -------------------------------------------------------------------------------------- what the table says

    @property
    def must_wait(self) -> bool:
        """Whether cells have to wait, for the link or for the kernel."""
        return self.held or self.link_down or self.not_started

    @property
    def waiting(self) -> list[Message]:
        """The requests that wait at the hub, in order."""
        return [one.message for one in self._requests.values() if one.waits]

    @property
    def waiting_cells(self) -> list[Message]:
        """The cells of users among the requests that wait."""
        return list(filter(is_user_cell, self.waiting))

    def size(self, unsent: int) -> int:
        """Return the bytes of all requests. `unsent`: the bytes that wait in the keeper's endpoint."""
        sent = sum(one.size for one in self._requests.values() if not one.waits)
        waiting = sum(one.size for one in self._requests.values() if one.waits)
        return max(sent, unsent) + waiting

    @property
    def in_flight(self) -> list[Message]:
        """The cells that were sent and that the hub has not ended, oldest first."""
        return [one.message for one in self._in_flight()]

    @property
    def in_flight_ids(self) -> list[str]:
        """The msg_ids of the cells in flight to which front ends have no reply; of very many cells only the newest."""
        return [id_of(one.message) for one in self._unanswered_cells()][-_MAX_NAMED:]

    @property
    def first_cell(self) -> PendingRequest | None:
        """The oldest cell of a user that has not ended."""
        cells = (one for one in self._requests.values() if one.is_cell and one.delivery is Delivery.ALL)
        return next((one for one in cells if is_user_cell(one.message)), None)

    def sent_on(self, channel: Channel) -> list[PendingRequest]:
        """Return the requests on this channel that were sent, oldest first, but those that the hub has ended."""
        return [one for one in self._sent() if one.message.channel is channel]

    def _sent(self) -> Iterator[PendingRequest]:
        for one in self._requests.values():
            if not one.waits and one.delivery is not Delivery.OUTPUT:
                yield one

    def _in_flight(self) -> Iterator[PendingRequest]:
        return (one for one in self._sent() if one.is_cell)

    def _unanswered_cells(self) -> list[PendingRequest]:
        """Return the cells in flight to which front ends have no reply."""
        return [one for one in self._in_flight() if one.delivery is Delivery.ALL]

    # -------------------------------------------------------------------------------------- requests of front ends

    def add(self, request: Message) -> Taken:
        """Take a new request, which waits if it cannot be sent now."""
        if not self._waits(request):
            return Taken.SEND
        never_up = self.not_started or (self.link_down and not self._was_up)
        answered = sum(one.delivery is not Delivery.ALL for one in self._requests.values())
        if never_up and is_own_code(request) and answered < _MAX_ANSWERED:
            self.add_answered(request)
            return Taken.ANSWER
        self._put(request, waits=True)
        return Taken.WAIT

    def add_answered(self, request: Message) -> None:
        """Let a request wait that the hub answers, and that the kernel executes later."""
        pending = self._put(request, waits=True)
        if pending is not None:
            self._set_delivery(pending, Delivery.NOTHING)

    def add_kernel_info(self, request: Message) -> None:
        """The hub answers this request, if it is a kernel_info_request. The kernel gets the first of them, too, so that
        its own reply is known next time."""
        others = (one.msg_type for one in self._requests.values() if one.waits)
        if type_of(request) == "kernel_info_request" and "kernel_info_request" not in others:
            self.add_answered(request)

    def release(self) -> list[PendingRequest]:
        """Return the requests that waited and can be sent now, in order."""
        return [one for one in self._requests.values() if one.waits and not self._waits(one.message)]

    def sent(self, request: Message) -> None:
        """This request is about to be sent to the keeper. If it has no reply, it is forgotten."""
        if request.channel is Channel.STDIN and self._question and self.answer is None:
            self.answer = request.unparsed()
        if type_of(request) != "shutdown_request":
            self.forget_shutdown()
        pending = self._requests.get(header_key(request))
        if pending is None or not pending.waits:
            if has_reply(request):
                self._put(request, waits=False)
        elif has_reply(request):
            pending.waits = False
            self._note(pending)
        else:
            self._forget(pending)
        others = [one for one in self._requests.values() if not one.waits and not one.is_cell]
        self._forget(*others[:-_MAX_OTHERS])

    def answered(self, reply: Message) -> None:
        """The hub is about to send this reply. The request is forgotten unless the kernel executes it as well."""
        key = answered_key(reply)
        pending = self._requests.get(key)
        if pending is not None and pending.delivery is Delivery.ALL:
            self._forget(pending)
        elif pending is None:  # the table may have returned the request to be answered
            self._changes.append((key, None))

    def end(self, request: Message) -> None:
        """The hub is about to reply to this request. Front ends get nothing else about it, whatever the kernel
        sends."""
        pending = self._requests.get(header_key(request))
        if pending is not None:
            pending.delivery = Delivery.NOTHING
            self._forget(pending)

    def _waits(self, request: Message) -> bool:
        is_urgent = lane_of_request(request) is Lane.URGENT
        return self.held or self.not_started or (self.link_down and not is_urgent)

    # -------------------------------------------------------------------------------------- link, interrupt, end

    def link_is_up(self) -> list[str]:
        """The link carries the kernel. Return the msg_ids of the cells that the user has interrupted."""
        self.link_down, self.interrupted, self._was_up = False, False, True
        interrupted = (one for one in self._requests.values() if one.is_cell and one.interrupted)
        return [id_of(one.message) for one in interrupted][-_MAX_NAMED:]

    def link_is_down(self) -> tuple[list[PendingRequest], list[str]]:
        """The link is down: from now on requests wait, and what was sent may be lost with the link.

        Return the requests that the hub answers now: interrupts, and code that front ends run by themselves. And the
        msg_ids of the cells that the interrupts were for, which may overtake these cells when the link is up again.
        """
        self.link_down = True
        sent = [one for one in self._requests.values() if not one.waits]
        own_code = [] if self._was_up else self.answer_own_code(waits=False)
        interrupts = [one for one in sent if one.msg_type == "interrupt_request"]
        self.interrupted = self.interrupted or bool(interrupts)
        cells = self._cells_before(interrupts)
        for one in interrupts:
            self.end(one.message)
        return own_code + interrupts, cells

    def answer_own_code(self, *, waits: bool) -> list[PendingRequest]:
        """Return the code of front ends themselves that waits, or was sent, and has no reply: the hub answers it."""
        own = (one for one in self._requests.values() if one.waits == waits and is_own_code(one.message))
        found = [one for one in own if one.delivery is Delivery.ALL]
        for one in found:
            self._set_delivery(one, Delivery.NOTHING)
        return found

    def interrupt(self) -> list[str]:
        """The user interrupts the kernel. Return the msg_ids of the cells that the interrupt is for."""
        for one in self._unanswered_cells():
            one.interrupted = True
            self._note(one)
        return self.in_flight_ids

    def cancel_waiting(self) -> list[Message]:
        """The kernel is interrupted, or does not start. Forget the cells of users that wait, and return them. They stay
        in the file until they are `answered`, one by one."""
        self.interrupted = self.link_down
        cells = self.waiting_cells
        for cell in cells:
            self._remove(header_key(cell))
        return cells

    def end_in_flight(self) -> list[Message]:
        """Return the cells of users that are in flight, which the hub ends now."""
        cells = [one for one in self._in_flight() if is_user_cell(one.message)]
        for one in cells:
            self._set_delivery(one, Delivery.OUTPUT)
        return [one.message for one in cells]

    def clear(self, *, waiting: bool) -> list[PendingRequest]:
        """The kernel is gone: forget its requests, and return those that have no reply at all. These stay in the file
        until they are `answered`, one by one. `waiting`: also those that wait; else the next kernel gets these."""
        unanswered = []
        for key, one in list(self._requests.items()):
            if one.waits and (self.not_started or not waiting):
                continue
            if one.delivery is Delivery.ALL and has_reply(one.message):
                self._remove(key)
                self._remember_ended(one.key, Delivery.OUTPUT)
                unanswered.append(one)
            else:
                self._forget(one)
        return unanswered

    def forget_shutdown(self) -> None:
        """The kernel is used again: the successor of this hub must not shut it down."""
        for key, one in list(self._requests.items()):
            if one.msg_type == "shutdown_request" and one.repeated and one.waits:
                self._forget(one)  # nor must this hub, whose predecessor was killed
            elif one.msg_type == "shutdown_request" and not one.waits:
                self._changes.append((key, None))

    def requeue(self) -> list[PendingRequest]:
        """Another kernel gets the requests to which there is no reply: they wait again. Return what the hub ends, as it
        is for no other kernel: requests on the control channel, and the cells that were interrupted. These stay in the
        file until they are `answered`, one by one."""
        sent = [one for one in self._requests.values() if not one.waits]
        ended = [one for one in sent if one.delivery is Delivery.ALL and one.ends_with_kernel]
        for one in sent:
            if one in ended:
                self._remove(header_key(one.message))
            elif one.message.channel is Channel.SHELL and one.delivery is not Delivery.OUTPUT:
                one.queue_again()
                self._note(one)
            else:
                self._forget(one)
        return ended

    def _cells_before(self, interrupts: list[PendingRequest]) -> list[str]:
        """Return the msg_ids of the cells that were in flight when the last of these requests was sent."""
        if not interrupts:
            return []
        requests = list(self._requests.values())
        before = {id_of(one.message) for one in requests[: requests.index(interrupts[-1])] if one.is_cell}
        return [msg_id for msg_id in self.in_flight_ids if msg_id in before]

    # -------------------------------------------------------------------------------------- messages of the kernel

    def received(self, message: Message) -> Decision:
        """Take note of a message of the kernel, and return what is done with it."""
        if not self._requests and not self._ended and message.channel is Channel.IOPUB:
            return Decision.PASS
        header = message.parts[0]
        is_reply = message.channel in (Channel.SHELL, Channel.CONTROL)
        is_output = not is_reply and b'"status"' not in header
        parent = parent_key_of(message)
        # The kernel executes requests in order, so of several with one key it is the oldest.
        pending = next(iter(self._by_key.get(parent, {}).values()), None)
        delivery = self._ended.get(parent, Delivery.ALL) if pending is None else pending.delivery
        is_shown = is_output and b'"execute_input"' not in header
        dropped = delivery is Delivery.NOTHING or (delivery is Delivery.OUTPUT and not is_shown)
        if is_reply and pending is not None:  # else a successor without a log repeats an older one
            self._received_reply(pending, ends_cell=b'"execute_reply"' in header)
        elif message.channel is Channel.STDIN and not dropped:
            return self._received_question(id_of(message))
        elif pending is not None and not dropped:
            dropped = not pending.observe(message, is_output=is_output)
        return Decision.DROP if dropped else Decision.PASS

    def _received_reply(self, pending: PendingRequest, *, ends_cell: bool) -> None:
        if ends_cell:
            self.answer, self._question = None, ""
        self._forget(pending)

    def _received_question(self, msg_id: str) -> Decision:
        """The kernel sends its question again when its keeper was killed. A front end is asked once, and its answer is
        sent again. A kernel that has the answer already drops the second message, whose signature it knows."""
        if msg_id and msg_id == self._question:
            return Decision.ANSWER if self.answer is not None else Decision.DROP
        self.answer, self._question = None, msg_id
        return Decision.PASS

    # -------------------------------------------------------------------------------------- a killed hub

    def take_changes(self) -> list[Change]:
        """Return what is to be written to the kernel's file before anything is sent."""
        changes, self._changes = self._changes, []
        return changes

    def recall(self, saved: list[SavedRequest]) -> tuple[str, list[str]]:
        """Take over the requests of a hub that was killed, perhaps before that hub had sent them. Those that are no
        cells, of which a keeper has no list, wait to be sent again.

        Return a command to the keeper, "interrupt" or "cancel", and the msg_ids of the cells that it is for.
        """
        for one in saved:
            pending = PendingRequest.recalled(one)
            pending.waits = pending.waits or not pending.is_cell
            self._insert(pending)
        recalled = list(self._requests.values())
        interrupted = self._cells_before([one for one in recalled if one.msg_type == "interrupt_request"])
        ended = [id_of(one.message) for one in recalled if one.delivery is Delivery.OUTPUT]
        return "interrupt" if interrupted else "cancel", ended + interrupted

    # -------------------------------------------------------------------------------------- the table itself

    def _put(self, request: Message, *, waits: bool) -> PendingRequest | None:
        """Add a request. Return None for a request that would get no reply: one without a msg_id, or with the same
        header as a request that waits."""
        before = self._requests.get(header_key(request))
        if not id_of(request) or (before is not None and before.waits):
            return None
        pending = self._insert(PendingRequest(request, waits))
        self._note(pending)
        return pending

    def _insert(self, pending: PendingRequest) -> PendingRequest:
        key = header_key(pending.message)
        self._ended.pop(pending.key, None)  # a front end may use its msg_id again
        self._requests[key] = self._by_key.setdefault(pending.key, {})[key] = pending
        return pending

    def _remove(self, key: bytes) -> None:
        pending = self._requests.pop(key)
        del self._by_key[pending.key][key]
        if not self._by_key[pending.key]:
            del self._by_key[pending.key]

    def _forget(self, *ended: PendingRequest) -> None:
        """Forget requests that have their replies or will get none, but not which later messages front ends get."""
        for pending in ended:
            key = header_key(pending.message)
            self._remove(key)
            self._changes.append((key, None))
            if pending.delivery is not Delivery.ALL:
                self._remember_ended(pending.key, pending.delivery)

    def _remember_ended(self, key: str, delivery: Delivery) -> None:
        self._ended[key] = delivery
        if len(self._ended) > _MAX_ANSWERED:
            del self._ended[next(iter(self._ended))]

    def _set_delivery(self, pending: PendingRequest, delivery: Delivery) -> None:
        pending.delivery = delivery
        self._note(pending)

    def _note(self, pending: PendingRequest) -> None:
        """The request is to be in the file."""
        self._changes.append((header_key(pending.message), pending.saved))
