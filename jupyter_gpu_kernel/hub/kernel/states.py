"""The states of a remote kernel and the transitions between them: the state of its attachment to the link, and what its
front ends want of it.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import TypeVar

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
