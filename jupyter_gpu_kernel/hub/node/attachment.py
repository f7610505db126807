"""What a link carries: one kernel, as the link knows it."""

from __future__ import annotations

from typing import Any, Protocol

from ...errors import GpuKernelError
from ...wire.endpoint import Endpoint


class Attachment(Protocol):
    """What a link carries for one kernel."""

    connection: Endpoint
    kernel_id: str

    def open_request(self) -> dict[str, Any]:
        """More words for the agent's `open`: {"create": settings} where the keeper may have to be started."""

    def deliver(self, data: bytes) -> None:
        """A message from the keeper. MessageError or ProtocolError if it is not one that a keeper may send."""

    def attached(self) -> None:
        """The stream to the keeper is there (again)."""

    def detached(self, reason: str) -> None:
        """The link is down; it will come back by itself."""

    def lost(self, error: GpuKernelError) -> None:
        """There is no keeper to come back to."""


def open_words(how: str, settings: dict[str, Any]) -> dict[str, Any]:
    """What the agent is to do before it opens the way to the keeper."""
    if how == "create":
        return {"create": settings}
    return {"attach": {}} if how == "attach" else {}


def new_connection(delivered: list[int] | None) -> Endpoint:
    """For a kernel of which a hub before us had passed on so many messages per lane."""
    return Endpoint(first=True, delivered=delivered, features=["heard", "unanswered"])
