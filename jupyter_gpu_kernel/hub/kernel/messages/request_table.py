"""The requests of front ends to one kernel that have no reply yet: those that wait, and those that were sent.

One table says of each request where it is, what front ends know of it, and what is done with the kernel's later
messages about it. What waits, what is in flight, what may be sent, what an interrupt ends, and what the next hub or
keeper has to know are derived from the table. It does no I/O, and calls nobody: the caller writes `take_changes` to the
file from which the successor of a killed hub makes its table.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ....wire.kernel_messages.compose import is_user_cell
from ....wire.messages import Channel, Lane, Message, control_key, id_of, key_of, parent_id_of, type_of
from ...front_end.request_file import Change, SavedRequest
from ...front_end.requests import has_reply, is_own_code, lane_of_request
from .pending_request import Decision, Later, PendingRequest, Taken

_MAX_ANSWERED = 1000
"""Requests of which it is known that the hub has answered them; of more the oldest are forgotten."""
_MAX_OTHERS = 1000
"""Requests besides cells that were sent; of more the oldest are forgotten, as a kernel may leave some without reply."""
_MAX_NAMED = 1000
"""Cells in flight that an interrupt names."""
_WAITS = 4
"""The bit of a mark for a request that waits. The lower bits are its `Later`."""
_UNKNOWN_STATE = "?"


class RequestTable:
    """`add` gets every request of a front end, `sent` each that is given to the keeper, `received` every message of the
    kernel, and `answered` the msg_id of every reply that the hub makes."""

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
        self._requests: dict[str, PendingRequest] = {}  # by `key_of`
        self._later: dict[str, Later] = {}  # by key, also after the kernel's reply; others are Later.ALL
        self._parent = (b"", "")  # the parent of the kernel's last message: header, msg_id
        self._changes: list[Change] = []

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
        """The msg_ids of the cells in flight; of very many cells only the newest."""
        return list(map(id_of, self.in_flight))[-_MAX_NAMED:]

    @property
    def first_cell(self) -> PendingRequest | None:
        """The oldest cell of a user that has not ended."""
        cells = (one for key, one in self._requests.items() if one.is_cell and key not in self._later)
        return next((one for one in cells if is_user_cell(one.message)), None)

    def describe_cells(self) -> list[dict[str, Any]]:
        """Return the cells in flight, oldest first, as a keeper needs them: [{"client", "parts", "state"}]. `parts` may
        have to go to the kernel unchanged."""
        return [
            {
                "client": one.message.client,
                "parts": [part.decode("utf-8", "surrogateescape") for part in one.message.parts[:4]],
                "state": one.state,
            }
            for one in self._in_flight()
        ]

    def _in_flight(self) -> Iterator[PendingRequest]:
        for key, one in self._requests.items():
            if one.is_cell and not one.waits and self._later.get(key) is not Later.OUTPUT:
                yield one

    # -------------------------------------------------------------------------------------- requests of front ends

    def add(self, request: Message) -> Taken:
        """Take a new request, which waits if it cannot be sent now."""
        if not self._waits(request):
            return Taken.SEND
        never_up = self.not_started or (self.link_down and not self._was_up)
        if never_up and is_own_code(request) and len(self._later) < _MAX_ANSWERED:
            self.add_answered(request)
            return Taken.ANSWER
        self._put(request, waits=True)
        return Taken.WAIT

    def add_answered(self, request: Message) -> None:
        """Let a request wait that the hub answers, and that the kernel executes later."""
        self._put(request, waits=True)
        self._set_later(key_of(request), Later.NOTHING)

    def release(self) -> list[PendingRequest]:
        """Return the requests that waited and can be sent now, in order."""
        return [one for one in self._requests.values() if one.waits and not self._waits(one.message)]

    def sent(self, request: Message) -> None:
        """This request is about to be sent to the keeper. If it has no reply, it is forgotten."""
        if request.channel is Channel.STDIN and self._question and self.answer is None:
            self.answer = request.unparsed()
        if type_of(request) != "shutdown_request":
            self.forget_shutdown()
        key = key_of(request)
        if not has_reply(request) or not key:
            return self._forget(key)
        pending = self._requests.get(key)
        if pending is not None and pending.waits:
            pending.waits = False
            self._note(key)
        else:
            self._put(request, waits=False)
        others = [key for key, one in self._requests.items() if not one.waits and not one.is_cell]
        for oldest in others[:-_MAX_OTHERS]:
            self._forget(oldest)

    def answered(self, key: str) -> None:
        """The hub is about to reply to this request, which is forgotten unless the kernel executes it as well."""
        if key not in self._later:
            self._requests.pop(key, None)
            self._changes.append((key, None))  # also if the table has returned the request to be answered

    def end(self, request: Message) -> None:
        """The hub is about to reply to this request, of which front ends get nothing else, whatever the kernel does."""
        self._set_later(key_of(request), Later.NOTHING)
        self._forget(key_of(request))

    def _waits(self, request: Message) -> bool:
        is_urgent = lane_of_request(request) is Lane.URGENT
        return self.held or self.not_started or (self.link_down and not is_urgent)

    # -------------------------------------------------------------------------------------- link, interrupt, end

    def link_is_up(self) -> None:
        """The link carries the kernel."""
        self.link_down, self.interrupted, self._was_up = False, False, True

    def link_is_down(self) -> tuple[list[Message], list[str]]:
        """The link is down: from now on requests wait, and what was sent may be lost with the link.

        Return the requests that the hub answers now: interrupts, and code that front ends run by themselves. And the
        msg_ids of the cells that the interrupts were for, which may overtake these cells when the link is up again.
        """
        self.link_down = True
        sent = [one for one in self._requests.values() if not one.waits]
        own_code = [one.message for one in sent if is_own_code(one.message) and not self._was_up]
        own_code = [one for one in own_code if key_of(one) not in self._later]
        for request in own_code:
            self._set_later(key_of(request), Later.NOTHING)
        interrupts = [one.message for one in sent if one.msg_type == "interrupt_request"]
        self.interrupted = self.interrupted or bool(interrupts)
        cells = self._cells_before(interrupts)
        for request in interrupts:
            self.end(request)
        return own_code + interrupts, cells

    def cancel_waiting(self) -> list[Message]:
        """The kernel is interrupted, or does not start. Forget the cells of users that wait, and return them. They stay
        in the file until they are `answered`, one by one."""
        self.interrupted = self.link_down
        cells = self.waiting_cells
        for cell in cells:
            self._requests.pop(key_of(cell), None)
        return cells

    def end_in_flight(self) -> list[Message]:
        """Return the cells of users that are in flight, which the hub ends now."""
        cells = list(filter(is_user_cell, self.in_flight))
        for cell in cells:
            self._set_later(key_of(cell), Later.OUTPUT)
        return cells

    def clear(self) -> list[Message]:
        """The kernel is gone: forget its requests, and return those that have no reply at all. These stay in the file
        until they are `answered`, one by one."""
        unanswered = []
        for key, one in list(self._requests.items()):
            if one.waits and self.not_started:
                continue  # for the next kernel
            if key not in self._later and has_reply(one.message):
                unanswered.append(self._requests.pop(key).message)
            else:
                self._forget(key)
        return unanswered

    def forget_shutdown(self) -> None:
        """The kernel is used again: the successor of this hub must not shut it down."""
        for key, one in list(self._requests.items()):
            if one.msg_type == "shutdown_request" and one.repeated and one.waits:
                self._forget(key)  # nor must this hub, whose predecessor was killed
            elif one.msg_type == "shutdown_request" and not one.waits:
                self._changes.append((key, None))

    def discard_sent(self) -> None:
        """Forget what was sent to a kernel that does not exist any more."""
        for key in [key for key, one in self._requests.items() if not one.waits]:
            self._forget(key)

    def requeue(self) -> list[Message]:
        """Another kernel gets the requests to which there is no reply: they wait again. Return interrupts, which the
        hub answers, as they are for no other kernel."""
        sent = {key: one for key, one in self._requests.items() if not one.waits}
        for key, one in sent.items():
            if one.message.channel is Channel.SHELL and self._later.get(key) is not Later.OUTPUT:
                one.waits = True
                self._note(key)
            else:
                self._forget(key)
        return [one.message for one in sent.values() if one.msg_type == "interrupt_request"]

    def _cells_before(self, interrupts: list[Message]) -> list[str]:
        """Return the msg_ids of the cells that were in flight when the last of these requests was sent."""
        if not interrupts:
            return []
        ids = list(self._requests)
        before = set(ids[: ids.index(key_of(interrupts[-1]))])
        return [key for key in self.in_flight_ids if key in before]

    # -------------------------------------------------------------------------------------- messages of the kernel

    def received(self, message: Message) -> Decision:
        """Take note of a message of the kernel, and return what is done with it."""
        if not self._requests and not self._later and message.channel is Channel.IOPUB:
            return Decision.PASS
        header = message.parts[0]
        is_reply = message.channel in (Channel.SHELL, Channel.CONTROL)
        is_output = not is_reply and b'"status"' not in header
        parent = self._parent_key(message, is_output=is_output)
        later = self._later.get(parent, Later.ALL)
        dropped = (
            later is Later.NOTHING
            or (later is Later.OUTPUT and not is_output)
            or (later is Later.NO_REPLY and is_reply)
        )
        if is_reply:
            self._received_reply(parent, ends_cell=b'"execute_reply"' in header)
        elif message.channel is Channel.STDIN and not dropped:
            return self._received_question(id_of(message))
        elif parent in self._requests and not dropped:
            self._requests[parent].observe(message, is_output=is_output)
        return Decision.DROP if dropped else Decision.PASS

    def _parent_key(self, message: Message, *, is_output: bool) -> str:
        """Return the key of the message's parent, whose msg_id is that of the message before for most outputs. A status
        may be of a request on the control channel."""
        if message.parts[1] != self._parent[0]:
            self._parent = message.parts[1], parent_id_of(message)
        msg_id = self._parent[1]
        key = control_key(msg_id)
        if message.channel is Channel.IOPUB:
            is_known = key in self._requests or key in self._later
            return key if is_known and not is_output and msg_id not in self._requests else msg_id
        return key if message.channel is Channel.CONTROL else msg_id

    def _received_reply(self, key: str, *, ends_cell: bool) -> None:
        if ends_cell:
            self.answer, self._question = None, ""
        pending = self._requests.get(key)
        if pending is not None and pending.repeated and key not in self._later:
            self._set_later(key, Later.NO_REPLY)
        self._forget(key)

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
        interrupts: list[Message] = []
        for mark, message in saved:
            sent, later, key = not mark & _WAITS, Later(mark & 3), key_of(message)
            pending = PendingRequest(message, not sent, _UNKNOWN_STATE, has_output=sent, repeated=sent)
            self._requests[key] = pending
            if later is not Later.ALL:
                self._later[key] = later
            if pending.msg_type == "interrupt_request":
                interrupts.append(message)
            pending.waits = pending.waits or not pending.is_cell
        interrupted = self._cells_before(interrupts)
        ended = [key for key, later in self._later.items() if later is Later.OUTPUT]
        return "interrupt" if interrupted else "cancel", ended + interrupted

    # -------------------------------------------------------------------------------------- the table itself

    def _put(self, request: Message, *, waits: bool) -> None:
        """Add a request. One without a msg_id, or with that of a request that waits, would have no reply either."""
        key = key_of(request)
        before = self._requests.get(key)
        if key and (before is None or not before.waits):
            self._later.pop(key, None)  # a front end may use its key again
            self._requests[key] = PendingRequest(request, waits)
            self._note(key)

    def _set_later(self, key: str, later: Later) -> None:
        self._later[key] = later
        self._note(key)
        if len(self._later) > _MAX_ANSWERED:
            oldest = next(iter(self._later))
            del self._later[oldest]
            self._forget(oldest)

    def _forget(self, key: str) -> None:
        if self._requests.pop(key, None) is not None:
            self._changes.append((key, None))

    def _note(self, key: str) -> None:
        """The request with this msg_id is to be in the file."""
        pending = self._requests.get(key)
        if pending is not None:
            mark = _WAITS * pending.waits | self._later.get(key, Later.ALL)
            self._changes.append((key, SavedRequest(mark, pending.message)))


def waiting(saved: list[SavedRequest]) -> list[SavedRequest]:
    """Return those of a killed hub's requests that no kernel has got."""
    return [one for one in saved if one.mark & _WAITS]
