"""A connection of another node that one leads on from: closing it closes only what leads on."""

from __future__ import annotations

from ..node.shared_connection import Connection


class BorrowedConnection:
    """Another connection, until either of them is closed."""

    def __init__(self, lender: Connection) -> None:
        self._lender = lender
        self._closed = False
        self.steps = list(lender.steps)
        """(hop, step, seconds) of each step of connecting, in order."""
        self.interactive = lender.interactive
        """Whether the user typed a secret for it."""
        self.machine_id = lender.machine_id
        """A hash of the node's host key."""
        self.transport = lender.transport
        """What speaks SSH for it, in words."""
        self.open = lender.open
        self.run = lender.run
        self.responds = lender.responds

    @property
    def closed(self) -> bool:
        """Whether it was closed, here or by its owner."""
        return self._closed or self._lender.closed

    def alive(self) -> bool:
        """Whether it is connected, as far as this end can tell."""
        return not self._closed and self._lender.alive()

    def close(self) -> None:
        """Use it no more."""
        self._closed = True
