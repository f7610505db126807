"""Signals, as the keeper sees them: its own, the end of its child, and its kernel's SIGTERMs.

The kernel blocks SIGTERM; its guard takes it and reports the sender in a datagram. While C code holds Python's lock
(the GIL) the guard cannot take it: until then the system lists the signal as pending, in /proc.
"""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from typing import Any, Callable, Dict, Optional

from ...wire.fields import FieldError, load_object, number, text
from ..core.waiting import Waiting
from ..in_kernel.signal_rules import Sender
from ..kernel_context import KernelContext
from ..story import Limited
from ..system.agent_runtime import bind_datagrams
from ..system.loop import Loop
from ..system.procfs import read_text
from .kernel_process import KernelProcess

INTERVAL = 0.5
"""Seconds between two looks for a pending SIGTERM. One that two looks in a row see is reported."""
_CAUGHT = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)
"""Signals that may hit a keeper by accident, or with all processes of a job."""
_MAX_REPORTS = 1000
_MAX_WORD = 200
_MAX_DATAGRAM = 65536
_PENDING = re.compile(r"^(?:SigPnd|ShdPnd):\s*([0-9a-f]+)$", re.MULTILINE)


class Signals:
    """Reports signals in the story. Calls `on_child()` when a child process may have ended, and `on_guard(on)` when the
    guard was switched on or off in the kernel."""

    def __init__(
        self,
        context: KernelContext,
        kernel: KernelProcess,
        waiting: Waiting,
        on_child: Callable[[], None],
        on_guard: Callable[[bool], None],
    ) -> None:
        self.last_sigterm: Dict[str, Any] = {}
        """The story's entry about the last SIGTERM that the kernel got."""
        self._loop = loop = context.loop
        self._kernel = kernel
        self._waiting = waiting
        self._story = context.story
        self._limited_story = Limited(context.story, loop.time)
        self._on_child = on_child
        self._on_guard = on_guard
        # To this socket the guard reports.
        self._guard = bind_datagrams(context.loop.runtime, context.folder / "story")
        loop.watch(self._guard.fileno(), lambda _: self.read_reports())
        self._catch_signals(loop)
        self._watches_cells = False
        self._pending_looks = 0  # how many in a row have seen a pending SIGTERM

    def watch_cell(self) -> None:
        """The kernel may have got a cell. A SIGTERM that the guard cannot take is reported until no cell is open."""
        if not self._watches_cells:
            self._watches_cells = True
            self._loop.later(INTERVAL, self._look)

    def _look(self) -> None:
        pid = self._kernel.pid if self._waiting.is_executing else 0
        self._watches_cells = pid != 0
        self._pending_looks = self._pending_looks + 1 if pid and sigterm_is_pending(pid) else 0
        if self._pending_looks == 2:
            text = "SIGTERM; the kernel answers when C code that holds Python's lock (the GIL) is done"
            self.last_sigterm = self._story.tell("sigterm", text, kind="unknown", action="pending")
        if pid:
            self._loop.later(INTERVAL, self._look)

    def read_reports(self) -> None:
        """Read what the guard has reported so far: the kernel may have ended right after."""
        for _ in range(_MAX_REPORTS):
            try:
                self._report(self._guard.recv(_MAX_DATAGRAM))
            except (BlockingIOError, InterruptedError):
                return
            except FieldError:
                pass  # any process of this user can write to this socket

    def _catch_signals(self, loop: Loop) -> None:
        """SIGCHLD wakes the loop. Other signals are reported, and do not end the keeper."""
        read_fd, write_fd = os.pipe()
        for fd in (read_fd, write_fd):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
        for caught in (signal.SIGCHLD, *_CAUGHT):
            signal.signal(caught, lambda caught, frame: None)
        loop.watch(read_fd, lambda _: self._caught(os.read(read_fd, 512)))

    def _caught(self, numbers: bytes) -> None:
        for caught in set(numbers) - {signal.SIGCHLD}:
            name = signal.Signals(caught).name
            self._limited_story.tell("signal", f"the keeper got {name} and stays")
        self._on_child()

    def _report(self, datagram: bytes) -> None:
        report = load_object(datagram)
        event = text(report, "event", most=_MAX_WORD)
        if event == "guard":
            self._on_guard(report.get("on") is True)
        if event != "sigterm":
            self._limited_story.tell(event, text(report, "text", "", most=_MAX_DATAGRAM))
            return
        sender = Sender(
            *(text(report, "kind", most=_MAX_WORD), _id(report, "pid"), _id(report, "uid")),
            *(text(report, "user", most=_MAX_WORD), text(report, "command", most=_MAX_WORD)),
        )
        action = text(report, "action", most=_MAX_WORD)
        facts = dict(sender._asdict(), in_use=bool(report.get("in_use")), action=action)
        line = f"SIGTERM from {sender}: {action}"
        entry = self._limited_story.tell("sigterm", line, **facts)
        self.last_sigterm = entry or dict(facts, text=line, time=self._loop.runtime.time())


def sigterm_is_pending(pid: int) -> bool:
    """Whether this process has been sent a SIGTERM that it has not taken."""
    status = read_text(Path("/proc", str(pid), "status"))  # "" if it has just ended
    return any(int(mask, 16) >> (signal.SIGTERM - 1) & 1 for mask in _PENDING.findall(status))


def _id(report: Dict[str, Any], key: str) -> Optional[int]:
    """The id of a process or a user; None where the guard does not know it."""
    return None if report.get(key) is None else number(report, key)
