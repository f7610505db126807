"""Runs the core of a keeper: gives it events, and has its effects carried out in order."""

from __future__ import annotations

import os
from collections import deque
from pathlib import Path
from typing import Any, Callable, Deque, Dict, List, Type

from ...wire.runtime import EventRuntime
from ..core.effects import Effect, Logged, ReadQueue, SetTimer
from ..core.events import Event, QueueRead, TimerDue
from ..core.keeper_core import KeeperCore
from ..core.log import Log
from ..kernel_settings import KernelSettings
from ..log.log_file import LogFile
from ..system.loop import Loop, Timer


class CoreRunner:
    """`handle` each event. `log_file` is to be flushed before hub or kernel see what has followed from it; if they see
    nothing, it is flushed at the end of the loop's turn. That the hub has acknowledged messages waits for other
    changes, or for the hub to leave.

    actions: What carries out an effect of this type; it is called with the fields of the effect.
    write_to_hub: Called at the end of the turn, when the file has what has happened: the hub may get it now.
    """

    def __init__(
        self, loop: Loop, folder: Path, settings: KernelSettings, report: Callable[[str], object]
    ) -> None:
        """`report(text)` is called once for each problem with the log's file in `folder`."""
        self._loop = loop
        self.log_file = LogFile(loop.runtime, folder, settings, report)
        log = Log(EventRuntime(loop.runtime.new_id()), self.log_file.state, self.log_file.found)
        self.core = KeeperCore(log, settings, os.uname().nodename)
        self.actions: Dict[Type[Any], Callable[..., object]] = {
            SetTimer: self._set_timer,
            ReadQueue: lambda size: self.handle(QueueRead(*self.log_file.take(size))),
        }
        self.write_to_hub: Callable[[], object] = lambda: None
        self._timers: Dict[str, Timer] = {}
        self._effects: Deque[Effect] = deque()  # those that are not carried out yet
        self._is_carrying_out = False
        self._flush_due = False

    def handle(self, event: Event) -> None:
        """Give the core an event, and carry out the effects; those of an event within an effect follow it. Raise the
        first of their exceptions when all are carried out."""
        runtime = self._loop.runtime
        for effect in self.core.handle(event, runtime.monotonic(), runtime.time()):
            if isinstance(effect, Logged):
                self.log_file.add(*effect)  # at once: any flush may write a checkpoint of the state
                if effect.change != "acknowledge":  # a hub tells a successor what it has
                    self._flush_soon()
            else:
                self._effects.append(effect)
        if not self._is_carrying_out:
            self._is_carrying_out = True
            try:
                self._carry_out()
            finally:
                self._is_carrying_out = False

    def _carry_out(self) -> None:
        errors: List[Exception] = []
        while self._effects:
            effect = self._effects.popleft()
            try:
                self.actions[type(effect)](*effect)
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def _flush_soon(self) -> None:
        if not self._flush_due:
            self._flush_due = True
            self._loop.later(0, self._flush)

    def _flush(self) -> None:
        self._flush_due = False
        self.log_file.flush()
        self.write_to_hub()

    def _set_timer(self, name: str, at: float) -> None:
        if name in self._timers:
            self._timers[name].cancel()
        delay = at - self._loop.time()
        self._timers[name] = self._loop.later(delay, lambda: self.handle(TimerDue(name)))
