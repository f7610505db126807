"""Warns the user of a kernel in a job that the job ends: some minutes before, and at the scheduler's signals.

The running cell shows the warning, or the next cell. At a signal the functions of `gpu_kernel.on_sigterm` run as well.
The kernel goes on until the scheduler kills it.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, Dict, Mapping

from ....wire.fields import number, text
from ....wire.texts import duration
from ...in_kernel.signal_rules import Sender, classify
from ...job.end_notices import EndNotices
from ...job.member import Membership
from ...system.procfs import known_user_name

if TYPE_CHECKING:
    from ..keeper import Keeper

_RUN_HOOKS = ("SIGTERM", "SIGUSR1", "SIGUSR2", "SIGURG", "SIGXCPU", "SIGALRM")
"""The signals that end a job, or that may be chosen as its warning."""
_MAX_WORD = 100
_TIMEOUT = "it has reached its time limit"
_CLOCKS_DIFFER = 60.0
"""Seconds by which the clocks of a job's node and of the controller may differ."""


class JobNotices:
    """Watches the job from its creation on, until the loop ends."""

    def __init__(self, keeper: Keeper, membership: Membership) -> None:
        self._keeper = keeper
        self._loop = keeper.loop
        self._membership = membership
        self._notices = EndNotices(membership.start_time)
        self._loop.later(0, self._look)

    def event(self, event: Dict[str, Any]) -> None:
        """Handle an event that the job's process has sent. Raises FieldError if the event is malformed."""
        if text(event, "event", most=_MAX_WORD) == "signal":
            self._signal(event)

    def set_end_time(self, command: Mapping[str, Any]) -> None:
        """The hub knows when the job ends. Raises FieldError as `event` does."""
        before = self._membership.end_time
        self._membership.set_end_time(command)
        if self._membership.end_time != before:
            self._tell_if_due()
            self._keeper.status.tell()

    # -------------------------------------------------------------------------------------- time

    def _look(self) -> None:
        self._tell_if_due()
        delay = self._notices.delay(self._loop.runtime.time(), self._membership.end_time)
        self._loop.later(max(1.0, delay), self._look)

    def _tell_if_due(self) -> None:
        end = self._membership.end_time
        if end is not None and self._notices.due(self._loop.runtime.time(), end):
            text = f"{self._job} ends {self._when(end)}. Save what you need."
            self._keeper.story.tell("job", text)
            self._show(text)

    @property
    def _job(self) -> str:
        return f"Slurm job {self._membership.status['id']}"

    def _when(self, end: float) -> str:
        clock = time.strftime("%H:%M", time.localtime(end))
        return f"at {clock}, in {duration(round(end - self._loop.runtime.time()))}"

    # -------------------------------------------------------------------------------------- signals

    def _signal(self, event: Dict[str, Any]) -> None:
        name = text(event, "name", most=_MAX_WORD)
        sender = self._sender(event)
        line = f"{name} to {self._job} from {sender}"
        facts = sender._asdict()
        end = self._membership.end_time
        if name == "SIGTERM":
            follows = (
                "it was cancelled or preempted, or a node of it fails. SIGKILL follows. Save what you need"
            )
            if end is not None and self._loop.runtime.time() >= end - _CLOCKS_DIFFER:
                facts.update(job=self._job, why=_TIMEOUT)
                follows = f"{_TIMEOUT}. SIGKILL follows. Save what you need"
        else:
            follows = f"the job ends {self._when(end)}" if end is not None else "the job may end soon"
        self._keeper.story.tell("job", line, signal=name, **facts)
        self._show(f"{line}: {follows}.", name)

    def _sender(self, event: Dict[str, Any]) -> Sender:
        pid, uid = number(event, "pid"), number(event, "uid")
        command = text(event, "command", most=_MAX_WORD)
        user = "root" if uid == 0 else known_user_name(uid)
        return Sender(classify(pid, uid, command, os.getuid()), pid, uid, user, command)

    # -------------------------------------------------------------------------------------- both

    def _show(self, line: str, signal: str = "") -> None:
        """Show the line in the running cell, or in the next one. `signal`: the one that the job's process has got."""
        self._keeper.relay.internal_requests.show_notice(line, signal in _RUN_HOOKS, signal)
        self._keeper.relay.greeting_text.set_warning("" if self._keeper.relay.busy else line)
