"""The connection of one kernel to its keeper.

`ResumableEndpoint` is the hub's end of the message stream, with the files by which the successor of a killed hub goes
on. `AttachTiming` decides when the kernel is attached to its link: at once, or when the front ends of a killed hub have
connected again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from ...wire.messages import Data, Message
from ...wire.runtime import Runtime
from ..front_end.delivered import Delivered, RequestFile
from ..front_end.edge import SUBSCRIBE_TIMEOUT
from ..node.attachments import Attachment, new_endpoint
from ..node.node_link import NodeLink
from ..validate import message
from .core.events import Arrived

_TIDY_AFTER = 1.0
"""Seconds after an event until the file of requests is made empty, which takes longer than to write a record: of many
short cells not each one waits for that."""


class ResumableEndpoint:
    """The present `endpoint` of one kernel, and the kernel's file of `requests`."""

    def __init__(self, runtime: Runtime, delivered: Delivered | None, owner: str) -> None:
        """`delivered`: the files; None: there are none. `owner`: the id of this user and computer."""
        self._runtime, self._owner = runtime, owner
        self._delivered = delivered
        self.requests = RequestFile(None) if delivered is None else delivered.requests
        counts = None if delivered is None else delivered.counts
        self.was_up = counts is not None
        """Whether the kernel was connected to a hub that was killed."""
        self.endpoint = new_endpoint(runtime, counts, owner)
        self._tidies = False  # whether `_tidy` is about to be called

    def arrived(self, data: Data, has_room: Callable[[Message], bool]) -> Arrived:
        """Return the event that this message of the keeper has come. `has_room(message)`: see `Arrived`."""
        end, known, decoded = self.endpoint, self._delivered, message(data)
        pieces = known.take_pieces(end.lane, end.delivered) if known is not None and known.pieces else 0
        return Arrived(decoded, end.received, end.lane, pieces, has_room(decoded))

    def save(self, oldest: int, waiting: Sequence[int], pieces: int) -> None:
        """Save how many messages were delivered, and acknowledge them: see `SaveProgress`."""
        self.endpoint.hold_acknowledgements(oldest, waiting)
        if self._delivered is not None:
            self._delivered.save(self.endpoint.delivered, pieces or self._delivered.pieces)

    def tidy_soon(self) -> None:
        """Make the file of requests empty in a moment, if there is a reply to every request."""
        if self.requests.is_written and not self._tidies:
            self._tidies = True
            asyncio.get_running_loop().call_later(_TIDY_AFTER, self._tidy)

    def _tidy(self) -> None:
        self._tidies = False
        self.requests.tidy()

    def change_kernel(self, kernel_id: str) -> None:
        """From now on exchange messages with the keeper of the kernel with this id."""
        self.endpoint = new_endpoint(self._runtime, None, self._owner)
        self.rename(kernel_id)

    def rename(self, kernel_id: str) -> None:
        """The files are for the kernel with this id."""
        if self._delivered is not None:
            self._delivered.switch(kernel_id)

    def close(self, *, forget: bool) -> None:
        """Close the files; remove them if there will be no successor."""
        if self._delivered is not None:
            self._delivered.forget() if forget else self._delivered.close()


class AttachTiming:
    """Attaches one kernel to its link. `attach` and `release` may be called more than once."""

    def __init__(self, link: NodeLink, attachment: Attachment) -> None:
        self._link = link
        self._attachment = attachment
        self.begun = asyncio.Event()
        """Whether nobody waits for front ends any more. What they were sent before could be lost."""
        self._is_attached = self._is_closed = self._complete = False
        self._timer: asyncio.TimerHandle | None = None  # while the kernel waits for front ends

    def begin(self, at_once: bool) -> None:
        """Attach the kernel: `at_once`, or when all front ends have connected, as output for the others would be lost.
        The wait is limited, as a front end may never come back."""
        if at_once or self._complete:
            self.attach()
        else:
            self._timer = asyncio.get_running_loop().call_later(SUBSCRIBE_TIMEOUT, self.attach)

    def complete(self) -> None:
        """All front ends that a killed hub had have connected."""
        self._complete = True
        if self._timer is not None:
            self.attach()

    def attach(self) -> None:
        """Let the link carry the kernel."""
        self._end_wait()
        if not (self._is_attached or self._is_closed):
            self._is_attached = True
            self._link.attach(self._attachment)

    def release(self) -> None:
        """Detach the kernel from the link, until `attach`."""
        self._end_wait()
        self._is_attached = False
        self._link.release(self._attachment)

    def move(self, link: NodeLink) -> None:
        """The kernel belongs to another link now, to which it is not attached yet."""
        self.release()
        self._link = link

    def start(self, link: NodeLink) -> None:
        """Attach the kernel, which had no node, to this link."""
        self.move(link)
        self.attach()

    def close(self) -> None:
        """Detach the kernel from the link for good."""
        self._is_closed = True
        self.release()

    def _end_wait(self) -> None:
        self.begun.set()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
