"""The scheduler's job in which a kernel runs: when the job ends, and what its user sees of that.

The running cell shows a warning, or the next cell: some minutes before the end, and at the scheduler's signals. At a
signal the functions of `gpu_kernel.on_sigterm` run as well. The kernel goes on until the scheduler kills it. When the
job's process ends, the job is over, and so is the keeper.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING, Any, Dict, Mapping, Optional, Set

from ....wire.fields import FieldError, number, text, texts
from ....wire.slurm import MAX_HOSTS
from ....wire.texts import duration
from ...core.events import GreetingChanged
from ...in_kernel.signal_rules import Sender, classify
from ...job.client import connect_job
from ...paths import Root
from ...system.procfs import known_user_name
from ...system.request_client import PeerGone

if TYPE_CHECKING:
    from ..keeper import Keeper

STEPS = (900.0, 300.0, 60.0)
"""Seconds before the end at which a notice is due."""
SLACK = 90.0
"""Seconds by which the end must move for a notice to come once more."""
_WHOLE = 1.1
"""A notice is left out if the whole job takes at most so many times the notice's seconds."""
_INTERVAL = 60.0
"""Seconds after which the clocks are compared again at the latest."""
_RUN_HOOKS = ("SIGTERM", "SIGUSR1", "SIGUSR2", "SIGURG", "SIGXCPU", "SIGALRM")
"""The signals that end a job, or that may be chosen as its warning."""
_MAX_WORD = 100
_LATEST = 253_402_300_799
"""The last second of the year 9999, since the epoch."""


class EndNotices:
    """When the user gets a notice that the job ends: 15, 5 and 1 minutes before. Times are seconds since the epoch."""

    def __init__(self, start: Optional[float] = None) -> None:
        """`start`: when the job has started; None if its start is unknown."""
        self._start = start
        self._reported: Set[float] = set()

    def due(self, now: float, end: float) -> bool:
        """Return whether a notice is due now, as the job ends at `end`. Each step is due once."""
        remaining = end - now
        self._reported = {step for step in self._reported if remaining <= step + SLACK}  # the end was moved
        if self._start is not None:  # the first time: a job that was short from its start is no news
            self._reported |= {step for step in STEPS if end - self._start <= step * _WHOLE}
            self._start = None
        steps = {step for step in STEPS if remaining <= step} - self._reported
        self._reported |= steps
        return bool(steps) and remaining > 0

    def delay(self, now: float, end: Optional[float]) -> float:
        """Return the seconds until `due` should be asked again."""
        remaining = 0.0 if end is None else end - now
        return min([remaining - step for step in STEPS if remaining > step] + [_INTERVAL])


class KernelJob:
    """A keeper's connection to the process of its job, to which the keeper belongs from the creation of this object on.

    status: What `ps` and the kernel's user see of the job.
    """

    def __init__(self, keeper: Keeper, root: Root) -> None:
        """Raises OSError if the job's process has ended."""
        self._keeper = keeper
        self._loop = keeper.loop
        self._end_reported = False
        settings = keeper.settings.now
        self._process = connect_job(root, settings.job)
        facts = self._process.ask({"do": "join", "kernel": settings.id, "pid": os.getpid()})
        self.status: Dict[str, Any] = {
            "id": text(facts, "id", most=20),
            "partition": text(facts, "partition"),
            "node": text(facts, "node"),
            "hosts": texts(facts, "hosts", MAX_HOSTS),
            "end_time": None,
        }
        self._take_end_time(facts)
        self._notices = EndNotices(number(facts, "start_time", most=_LATEST))
        self._loop.watch(self._process.sock.fileno(), lambda _: self._ready())
        self._loop.later(0, self._look)

    def leave(self) -> None:
        """Report that the kernel has ended, so that the job may end, too."""
        with contextlib.suppress(OSError):  # that process has ended, or does not read
            self._process.send({"do": "leave"})

    def set_end_time(self, fields: Mapping[str, Any]) -> None:
        """The hub or the job's process may know when the job ends. Raises FieldError if `fields` are malformed."""
        if self._take_end_time(fields):
            self._tell_if_due()
            self._keeper.status.tell()

    # -------------------------------------------------------------------------------------- events

    def _ready(self) -> None:
        try:
            event = self._process.receive(0.0)
            while event is not None:
                with contextlib.suppress(FieldError):  # of a newer build
                    self._handle(event)
                event = self._process.receive(0.0)
        except PeerGone:
            self._loop.forget(self._process.sock.fileno())
            self._process.close()
            self._keeper.job_over()

    def _handle(self, event: Dict[str, Any]) -> None:
        self.set_end_time(event)
        kind = text(event, "event", most=_MAX_WORD)
        if kind == "signal":
            self._signal(event)
        elif kind == "ends":
            self._ends(text(event, "why", most=_MAX_WORD))

    # -------------------------------------------------------------------------------------- time

    @property
    def _end_time(self) -> Optional[int]:
        """When the job ends, in seconds since the epoch; None while unknown, or if the job has no time limit."""
        end: Optional[int] = self.status["end_time"]
        return end

    def _take_end_time(self, fields: Mapping[str, Any]) -> bool:
        """Take the time at which the job ends from these fields, if it is there. Return whether it has changed."""
        before = self._end_time
        if fields.get("end_time") is not None:
            self.status = {**self.status, "end_time": number(fields, "end_time", most=_LATEST)}
        return self._end_time != before

    def _look(self) -> None:
        self._tell_if_due()
        delay = self._notices.delay(self._loop.runtime.time(), self._end_time)
        self._loop.later(max(1.0, delay), self._look)

    def _tell_if_due(self) -> None:
        end = self._end_time
        if end is not None and self._notices.due(self._loop.runtime.time(), end):
            text = f"{self._name} ends {self._when(end)}. Save what you need."
            self._keeper.story.tell("job", text)
            self._show(text)

    @property
    def _name(self) -> str:
        return f"Slurm job {self.status['id']}"

    def _when(self, end: float) -> str:
        clock = time.strftime("%H:%M", time.localtime(end))
        return f"at {clock}, in {duration(round(end - self._loop.runtime.time()))}"

    # -------------------------------------------------------------------------------------- signals

    def _signal(self, event: Dict[str, Any]) -> None:
        name = text(event, "name", most=_MAX_WORD)
        sender = self._sender(event)
        line = f"{name} to {self._name} from {sender}"
        self._keeper.story.tell("job", line, signal=name, **sender._asdict())
        end = self._end_time
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
            text = f"{self._name} ends: {why}."
            self._keeper.story.tell("job", text, job=self._name, why=why)
            self._show(text)

    def _show(self, line: str, signal: str = "") -> None:
        """Show the line in the running cell, or in the next one. `signal`: the one that the job's process has got."""
        self._keeper.requests.show_notice(line, signal in _RUN_HOOKS, signal)
        warning = "" if self._keeper.core.relay.busy else line
        self._keeper.handle(GreetingChanged("warning", warning))
