"""What is known of one remote kernel: its last status, its attachment to the link, and what front ends want of it.

The last two have tables of the transitions that are possible.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any, TypeVar

from ....errors import GpuKernelError

T = TypeVar("T", bound=enum.Enum)
_OF_AN_END = ("asked", "cause", "remedy", "returncode")
"""The keys of a status that tell how the kernel has ended."""


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


class Life:
    """The life of one kernel. `status` is the last status that the keeper has reported, as `ps` shows it."""

    def __init__(self) -> None:
        self.status: dict[str, Any] = {"state": "starting", "gpus": [], "pid": 0}
        self.link_state = LinkState.CONNECTING
        self.phase = Phase.RUN
        self.end_wanted = False
        """Whether the front ends want the kernel to end for good."""
        self.error: GpuKernelError | None = None
        self._taken_cause = ""
        self._pid_before_restart: int | None = None
        """The pid of the process that a restart replaces, until the keeper reports another pid. 0: there was no
        process; None: there is no restart."""

    def __repr__(self) -> str:
        return f"<Life {self.status['state']} link={self.link_state.value} wanted={self.phase.value}>"

    @property
    def ended(self) -> bool:
        """Whether the kernel process does not exist any more, as far as is known."""
        return self.status["state"] == "ended" or self.link_state is LinkState.LOST

    @property
    def restarts(self) -> bool:
        """Whether the keeper was asked to restart the kernel, and has not reported the new process yet."""
        return self._pid_before_restart is not None

    @property
    def taken_cause(self) -> str:
        """The sentence that another computer has taken the kernel over; "" if none has."""
        return self._taken_cause if self.link_state is LinkState.TAKEN else ""

    @property
    def lost_cause(self) -> str:
        """Why the kernel does not exist any more, and what to do; "" if it exists, or a request may start it."""
        if self.link_state is not LinkState.LOST:
            return ""
        known = self.status.get("cause") or "the kernel has ended"
        return f"{self.error.cause}. {self.error.remedy}" if self.error else str(known)

    @property
    def closed(self) -> bool:
        """Whether the hub does not have the kernel any more."""
        return self.phase is Phase.CLOSED

    def update(self, **status: Any) -> None:
        """Add these facts to the status."""
        self.status = {**self.status, **status}

    def want(self, **status: Any) -> None:
        """Add these facts to the status, and remove those of an end, as the kernel is wanted again."""
        kept = {key: value for key, value in self.status.items() if key not in _OF_AN_END}
        self.status = {**kept, **status}

    def set_phase(self, phase: Phase) -> None:
        """Change what the front ends want of the kernel."""
        self.phase = transition(PHASES, self.phase, phase)
        if phase is not Phase.CLOSED:
            self.end_wanted = phase in (Phase.SHUT_DOWN, Phase.STOP)

    def set_link_state(self, state: LinkState) -> None:
        """Change the kernel's attachment to its node."""
        self.link_state = transition(LINK_STATES, self.link_state, state)

    def taken(self, cause: str) -> None:
        """Another computer has the kernel: what front ends here have requested is void."""
        self._taken_cause = cause
        if self.phase not in (Phase.STOP, Phase.CLOSED):
            self.set_phase(Phase.RUN)
        self.set_link_state(LinkState.TAKEN)

    def shutdown_requested(self, *, restart: bool) -> None:
        """A front end has requested the kernel's shutdown, or its restart."""
        if self.phase not in (Phase.STOP, Phase.CLOSED):
            self.set_phase(Phase.RESTART if restart else Phase.SHUT_DOWN)

    def restart_begins(self) -> None:
        """The keeper is about to get the request to restart the kernel."""
        self._pid_before_restart = int(self.status.get("pid") or 0)

    def report(self, status: dict[str, Any]) -> bool:
        """Take the status that the keeper reports; return whether it is news."""
        if status.get("cause"):
            status["cause"] = f"the node says: {status['cause']}"
        if self._is_outdated(status):
            return False
        self.status = status
        if self.phase is Phase.REVIVE and status["state"] != "ended":
            self.set_phase(Phase.RUN)
        return True

    def _is_outdated(self, status: dict[str, Any]) -> bool:
        """Return whether this status reports the end of the process that a restart replaces. After a drop the keeper
        sends it before it gets the request to restart; a launcher that saw it would exit, as if its front end were to
        start it again."""
        if status.get("pid", 0) not in (0, self._pid_before_restart):
            self._pid_before_restart = None
        ended = status["state"] == "ended" and "returncode" in status  # else no process could be started
        return ended and self._pid_before_restart is not None and self.phase is Phase.RUN
