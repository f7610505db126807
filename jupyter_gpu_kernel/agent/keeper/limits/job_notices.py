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
from ...core.events import GreetingChanged
from ...in_kernel.signal_rules import Sender, classify
from ...job.end_notices import EndNotices
from ...job.member import Membership
from ...system.procfs import known_user_name

if TYPE_CHECKING:
    from ..keeper import Keeper

_RUN_HOOKS = ("SIGTERM", "SIGUSR1", "SIGUSR2", "SIGURG", "SIGXCPU", "SIGALRM")
"""The signals that end a job, or that may be chosen as its warning."""
_MAX_WORD = 100


class JobNotices:
    """Watches the job from its creation on, until the loop ends."""

    def __init__(self, keeper: Keeper, membership: Membership) -> None:
        self._keeper = keeper
        self._loop = keeper.loop
        self._membership = membership
        self._notices = EndNotices(membership.start_time)
        self._end_reported = False
        self._loop.later(0, self._look)

    def event(self, event: Dict[str, Any]) -> None:
        """Handle an event that the job's process has sent. Raises FieldError if the event is malformed."""
        kind = text(event, "event", most=_MAX_WORD)
        if kind == "signal":
            self._signal(event)
        elif kind == "ends":
            self._ends(text(event, "why", most=_MAX_WORD))
        elif kind == "end_time":
            self._end_time_changed()

    def set_end_time(self, command: Mapping[str, Any]) -> None:
        """The hub knows when the job ends, which the job's own node may not tell. Raises FieldError as `event` does."""
        if self._membership.set_end_time(command):
            self._end_time_changed()

    def _end_time_changed(self) -> None:
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
        self._keeper.story.tell("job", line, signal=name, **sender._asdict())
        end = self._membership.end_time
        if name == "SIGTERM":
            follows = "SIGKILL follows. Save what you need"
        else:
            follows = f"the job ends {self._when(end)}" if end is not None else "the job may end soon"
        self._show(f"{line}: {follows}.", name)

    def _sender(self, event: Dict[str, Any]) -> Sender:
        pid, uid = number(event, "pid"), number(event, "uid")
        command = text(event, "command", most=_MAX_WORD)
        user = "root" if uid == 0 else known_user_name(uid)
        return Sender(classify(pid, uid, command, os.getuid()), pid, uid, user, command)

    def _ends(self, why: str) -> None:
        """Report why the scheduler ends the job."""
        if not self._end_reported:
            self._end_reported = True
            text = f"{self._job} ends: {why}."
            self._keeper.story.tell("job", text, job=self._job, why=why)
            self._show(text)

    # -------------------------------------------------------------------------------------- both

    def _show(self, line: str, signal: str = "") -> None:
        """Show the line in the running cell, or in the next one. `signal`: the one that the job's process has got."""
        self._keeper.requests.show_notice(line, signal in _RUN_HOOKS, signal)
        warning = "" if self._keeper.core.relay.busy else line
        self._keeper.handle(GreetingChanged("warning", warning))
