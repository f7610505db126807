"""The states of a remote kernel and the transitions between them: the state of its attachment to the link, and what its
front ends want of it. Also when it is attached: at once, or when the front ends of a killed hub have connected again.

This module knows no messages.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Mapping
from typing import TypeVar

from ..front_end.edge import SUBSCRIBE_TIMEOUT
from ..node.attachments import Attachment
from ..node.node_link import NodeLink

T = TypeVar("T", bound=enum.Enum)


class LinkState(str, enum.Enum):
    """The kernel's attachment to its node. The values are public words, in events and `--json`."""

    CONNECTING = "connecting"
    """The kernel was not attached yet."""
    UP = "up"
    AWAY = "away"
    """The link is down and reconnects."""
    TAKEN = "taken"
    """Another computer has the kernel."""
    LOST = "lost"
    """The kernel's keeper does not exist any more, or never did."""


class Phase(enum.Enum):
    """What the front ends want of the kernel."""

    RUN = "run"
    RESTART = "restart"
    """A front end has requested a shutdown, and will start the kernel again."""
    SHUT_DOWN = "shut down"
    """A front end has requested a shutdown."""
    REVIVE = "revive"
    """A cell of the user starts the kernel again, which had ended by itself."""
    STOP = "stop"
    """No front end is left, and the kernel is to end."""
    CLOSED = "closed"
    """The hub does not have the kernel any more."""


LINK_STATES: Mapping[LinkState, set[LinkState]] = {
    LinkState.CONNECTING: set(LinkState),
    LinkState.UP: set(LinkState),
    LinkState.AWAY: set(LinkState),
    LinkState.TAKEN: set(LinkState),
    LinkState.LOST: {LinkState.LOST, LinkState.CONNECTING},  # only a new kernel follows
}

_REQUESTED = {Phase.RESTART, Phase.SHUT_DOWN, Phase.STOP, Phase.CLOSED}
PHASES: Mapping[Phase, set[Phase]] = {
    Phase.RUN: {Phase.RUN, Phase.REVIVE} | _REQUESTED,
    Phase.RESTART: {Phase.RUN} | _REQUESTED,
    Phase.SHUT_DOWN: {Phase.RUN, Phase.REVIVE} | _REQUESTED,
    Phase.REVIVE: {Phase.RUN, Phase.REVIVE} | _REQUESTED,
    Phase.STOP: {Phase.CLOSED},
    Phase.CLOSED: set(),
}


def transition(table: Mapping[T, set[T]], state: T, following: T) -> T:
    """Return the state that follows; raise RuntimeError if the table does not allow it, which is a bug."""
    if following not in table[state]:
        raise RuntimeError(f"{following} cannot follow {state}")
    return following


class AttachTiming:
    """Attaches one kernel to its link. `attach` and `release` may be called more than once."""

    def __init__(self, link: NodeLink, attachment: Attachment) -> None:
        self._link = link
        self._attachment = attachment
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
        """Attach the kernel, which had no node, to this link when its front ends have connected."""
        if self._timer is not None:
            self._link = link
        else:
            self.move(link)
            self.attach()

    def close(self) -> None:
        """Detach the kernel from the link for good."""
        self._is_closed = True
        self.release()

    def _end_wait(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
