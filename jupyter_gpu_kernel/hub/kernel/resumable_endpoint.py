"""The hub's end of the message stream to a keeper, with the files by which the successor of a killed hub goes on."""

from __future__ import annotations

from collections.abc import Sequence

from ...wire.messages import Data
from ...wire.runtime import Runtime
from ..front_end.delivered import Delivered, RequestFile
from ..node.attachments import new_endpoint
from ..validate import message
from .core.events import Arrived


class ResumableEndpoint:
    """The present `endpoint` of one kernel, and the kernel's file of `requests`."""

    def __init__(self, runtime: Runtime, delivered: Delivered | None) -> None:
        """`delivered`: the files; None: there are none."""
        self._runtime = runtime
        self._delivered = delivered
        self.requests = RequestFile(None) if delivered is None else delivered.requests
        counts = None if delivered is None else delivered.counts
        self.was_up = counts is not None
        """Whether the kernel was connected to a hub that was killed."""
        self.endpoint = new_endpoint(runtime, counts)

    def arrived(self, data: Data) -> Arrived:
        """Return the event that this message of the keeper has come, as if there was no room for the message."""
        end, delivered = self.endpoint, self._delivered
        pieces = delivered.take_pieces(end.lane, end.delivered) if delivered is not None else 0
        return Arrived(message(data), end.received, end.lane, pieces, has_room=False)

    def save(self, oldest: int, waiting: Sequence[int], pieces: int) -> None:
        """Save how many messages were delivered, and acknowledge them: see `SaveProgress`."""
        self.endpoint.hold_acknowledgements(oldest, waiting)
        if self._delivered is not None:
            self._delivered.save(self.endpoint.delivered, pieces or self._delivered.pieces)

    def change_kernel(self, kernel_id: str) -> None:
        """From now on exchange messages with the keeper of the kernel with this id."""
        self.endpoint = new_endpoint(self._runtime, None)
        self.rename(kernel_id)

    def rename(self, kernel_id: str) -> None:
        """The files are for the kernel with this id."""
        if self._delivered is not None and self._delivered.kernel_id != kernel_id:
            self._delivered.switch(kernel_id)

    def close(self, *, forget: bool) -> None:
        """Close the files; remove them if there will be no successor."""
        if self._delivered is not None:
            self._delivered.forget() if forget else self._delivered.close()
