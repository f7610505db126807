"""The kernel's last input_request, and the answer to it: the kernel sends the request again when its keeper was killed.

A front end is asked once. Its answer is sent again, as the killed keeper may not have passed the answer on. A kernel
that has the answer already drops the second message, whose signature it knows.
"""

from __future__ import annotations

from ....wire.messages import Channel, Message, id_of


class LastInput:
    """`sent` gets every request to the keeper, and `received` every message of the keeper that is passed on."""

    def __init__(self) -> None:
        self.answer: Message | None = None
        """The input_reply to the last input_request, if the front end has sent one. It is forgotten at the cell's end,
        as it may be a password."""
        self._request_id = ""

    def sent(self, request: Message) -> None:
        """Take note of a request to the keeper."""
        if request.channel is Channel.STDIN and self._request_id and self.answer is None:
            self.answer = request.unparsed()

    def repeats(self, message: Message) -> bool:
        """Return whether this is an input_request that front ends have received."""
        return (
            message.channel is Channel.STDIN and bool(self._request_id) and id_of(message) == self._request_id
        )

    def received(self, message: Message) -> None:
        """Take note of a message of the kernel."""
        if message.channel is Channel.STDIN:
            self.answer, self._request_id = None, id_of(message)
        elif message.channel is Channel.SHELL and b'"execute_reply"' in message.parts[0]:
            self.answer, self._request_id = None, ""
