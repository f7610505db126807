"""Requests that wait at the hub: for the link, or for a kernel that is still to come or to be found.

What waits here has not been sent, so an interrupt cancels it at once. An interrupt that nobody could answer is answered
here as well: VS Code does nothing for ten seconds otherwise. This file knows neither link nor sockets.
"""

from __future__ import annotations

from ...wire.compose import is_user_cell
from ...wire.messages import Channel, Lane, Message
from .offline_notice import OfflineNotice
from .placeholder import Placeholder
from .requests import lane_of_request, msg_id_of, type_of

_MOST = 1000
"""Interrupts whose answer is awaited; a front end has one at a time."""


class DeferredRequests:
    """`keeps` is asked for every request; `go_on` and `back` return those whose turn has come, in order."""

    def __init__(self, placeholder: Placeholder, notice: OfflineNotice) -> None:
        self._placeholder = placeholder
        self._notice = notice
        self._messages: list[Message] = []
        self._held = self._away = False
        self._interrupts: dict[str, Message] = {}  # those on their way
        self._answered: dict[str, None] = {}  # those answered here although they are on their way

    @property
    def messages(self) -> list[Message]:
        """All that wait."""
        return self._messages

    @property
    def active(self) -> bool:
        """Whether requests wait here now."""
        return self._held or self._away

    @property
    def held(self) -> bool:
        """Whether all of them wait: which kernel they are for is not known yet."""
        return self._held

    def hold(self) -> None:
        """What is asked from now on waits for `go_on`."""
        self._held = True

    def go_on(self) -> list[Message]:
        """What was held may go, unless the link is down."""
        self._held = False
        return self._due()

    def away(self) -> None:
        """The link is down. Interrupts that it has swallowed are answered here."""
        self._away = True
        interrupts, self._interrupts = self._interrupts, {}
        for msg_id, request in interrupts.items():
            self._answered[msg_id] = None
            if len(self._answered) > _MOST:
                del self._answered[next(iter(self._answered))]
            self._placeholder.agrees(request)
        if interrupts:
            self._notice.interrupted([])

    def back(self) -> list[Message]:
        """The link carries messages."""
        self._away = False
        return self._due()

    def keeps(self, message: Message) -> bool:
        """Whether this request waits here."""
        if not self._held and (not self._away or lane_of_request(message) is Lane.URGENT):
            return False
        self._messages.append(message.unparsed())
        if self._away and is_user_cell(message):
            self._notice.asked(message)
        return True

    def take(self) -> list[Message]:
        """The cells that wait; nobody will run them."""
        messages, self._messages = self._messages, []
        return [message for message in messages if type_of(message) == "execute_request"]

    def cancel(self) -> None:
        """An interrupt: users' cells that wait never run."""
        cells = [message for message in self._messages if is_user_cell(message)]
        self._messages = [message for message in self._messages if message not in cells]
        self._notice.interrupted(cells)
        self._placeholder.cancels(cells)

    def asked(self, message: Message) -> None:
        """A request goes on its way."""
        if type_of(message) == "interrupt_request" and len(self._interrupts) < _MOST:
            self._interrupts[msg_id_of(message)] = message

    def passes(self, message: Message) -> bool:
        """Whether this message of the kernel is news: not if it answers what was answered here."""
        if not self._interrupts and not self._answered:
            return True
        parent = msg_id_of(message, parent=True)
        if message.channel is Channel.CONTROL:
            self._interrupts.pop(parent, None)
        return parent not in self._answered

    def _due(self) -> list[Message]:
        if self._held:
            return []
        messages = self._messages
        self._messages = [one for one in messages if self._away and lane_of_request(one) is not Lane.URGENT]
        return [one for one in messages if one not in self._messages]
