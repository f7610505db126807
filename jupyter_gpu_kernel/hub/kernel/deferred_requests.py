"""The requests that wait at the hub, for the link or for a kernel that is still to be started or found.

They have not been sent, so an interrupt cancels them at once. An interrupt_request that the link has swallowed is
answered here as well, as VS Code does nothing for ten seconds otherwise. This module knows neither link nor sockets.
"""

from __future__ import annotations

from ...wire.compose import is_user_cell
from ...wire.messages import Channel, Lane, Message
from ..requests import id_of, lane_of_request, parent_id_of, type_of
from .placeholder import Placeholder
from .transient_displays import OfflineNotice

_MAX_INTERRUPTS = 1000
"""Interrupts whose reply is expected; a front end has one at a time."""


class DeferredRequests:
    """`defer` is asked for every request; `resume` and `link_up` return those that can be sent now, in order."""

    def __init__(self, placeholder: Placeholder, notice: OfflineNotice) -> None:
        self._placeholder = placeholder
        self._notice = notice
        self._messages: list[Message] = []
        self._held = self._link_down = False
        self._interrupts: dict[str, Message] = {}  # sent, without a reply
        self._answered: dict[str, None] = {}  # msg_ids of interrupts that were sent, but answered here

    @property
    def messages(self) -> list[Message]:
        """The requests that wait."""
        return self._messages

    @property
    def active(self) -> bool:
        """Whether requests have to wait at the moment."""
        return self._held or self._link_down

    @property
    def held(self) -> bool:
        """Whether all requests have to wait, as it is not known yet for which kernel they are."""
        return self._held

    def hold(self) -> None:
        """From now on all requests wait until `resume`."""
        self._held = True

    def resume(self) -> list[Message]:
        """Return the requests that were held, unless the link is down."""
        self._held = False
        return self._pop_sendable()

    def link_down(self) -> None:
        """From now on requests wait until `link_up`. Answer the interrupts that were sent."""
        self._link_down = True
        interrupts, self._interrupts = self._interrupts, {}
        for msg_id, request in interrupts.items():
            self._answered[msg_id] = None
            if len(self._answered) > _MAX_INTERRUPTS:
                del self._answered[next(iter(self._answered))]
            self._placeholder.acknowledge(request)
        if interrupts:
            self._notice.interrupt([])

    def link_up(self) -> list[Message]:
        """Return the requests that waited for the link, unless they are held."""
        self._link_down = False
        return self._pop_sendable()

    def defer(self, request: Message) -> bool:
        """Return whether this request waits here."""
        if not self._held and (not self._link_down or lane_of_request(request) is Lane.URGENT):
            return False
        self._messages.append(request.unparsed())
        if self._link_down and is_user_cell(request):
            self._notice.defer(request)
        return True

    def clear(self) -> list[Message]:
        """Drop all requests that wait. Return the cells among them."""
        messages, self._messages = self._messages, []
        return [message for message in messages if type_of(message) == "execute_request"]

    def interrupt(self) -> None:
        """Cancel the users' cells that wait."""
        cells = [message for message in self._messages if is_user_cell(message)]
        self._messages = [message for message in self._messages if message not in cells]
        self._notice.interrupt(cells)
        self._placeholder.cancel(cells)

    def sent(self, request: Message) -> None:
        """Take note of a request to the keeper."""
        if type_of(request) == "interrupt_request" and len(self._interrupts) < _MAX_INTERRUPTS:
            self._interrupts[id_of(request)] = request

    def answered_here(self, message: Message) -> bool:
        """Return whether this message of the kernel belongs to an interrupt_request that was answered here."""
        if not self._interrupts and not self._answered:
            return False
        parent = parent_id_of(message)
        if message.channel is Channel.CONTROL:
            self._interrupts.pop(parent, None)
        return parent in self._answered

    def _pop_sendable(self) -> list[Message]:
        if self._held:
            return []
        messages = self._messages
        self._messages = [
            one for one in messages if self._link_down and lane_of_request(one) is not Lane.URGENT
        ]
        return [one for one in messages if one not in self._messages]
