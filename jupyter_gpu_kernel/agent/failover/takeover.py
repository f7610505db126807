"""What a keeper does about keepers before and after it: leaves a will, takes a killed one's kernel over.

Joins kernel, conversation and door for that; how successors are started is not known here, nor what GPUs are.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, Callable, Dict, Optional

from ...wire.fields import items, number
from ...wire.messages import Lane, Message, word
from ..keeper.server import KeeperServer
from ..loop import Loop
from ..paths import archive, freshen
from ..process.kernel_process import KernelProcess
from ..relay.relay import Relay
from ..story import Story
from .inherited_cells import FEATURE, InheritedCells, Waiting
from .respawn import Heritage, will

MOST_CELLS = 100_000
FRESH = 12 * 3600.0
"""Seconds between two moments in which our files count as used."""


class Succession:
    """`bequeath` whenever a kernel was started or the settings are others; the rest matters after `take_over`."""

    def __init__(
        self,
        loop: Loop,
        kernel: KernelProcess,
        relay: Relay,
        server: KeeperServer,
        story: Story,
        tell_state: Callable[[str], None],
    ) -> None:
        self._loop = loop
        self._kernel = kernel
        self._talk = relay
        self._door = server
        self._story = story
        self._tell_state = tell_state
        self._inherited: Optional[InheritedCells] = None

    def bequeath(self, settings: Dict[str, Any]) -> None:
        """To the kernel, if there is one."""
        if self._kernel.pid and not self._kernel.lifeline.say(will(settings)):
            self._story.tell("fault", "the kernel does not read its keeper's will: none could take its place")

    def keep_fresh(self, *paths: Path) -> None:
        """These files count as used, now and later: a successor needs them, weeks after the start as well."""
        freshen(*paths, *archive())
        self._loop.later(FRESH, lambda: self.keep_fresh(*paths))

    def take_over(self, heritage: Heritage, on_end: Callable[[], None], place: Dict[str, Any]) -> None:
        """Its kernel runs already. `on_end()` when that is gone; `place`: what the story should know of us."""
        self._talk.presumed_busy = True  # as long as we know nothing of it
        self._inherited = InheritedCells(self._loop, self._talk, self._is_quiet)
        self._door.endpoint.outbox.count_from(int(time.time()) << 20)
        self._kernel.adopt(heritage.kernel, heritage.lifeline, on_end)
        self.bequeath(heritage.settings)
        self._story.tell("succession", f"the keeper was killed: process {os.getpid()} took over", **place)
        self._tell_state("busy")

    def is_up(self) -> bool:
        """The kernel hears us. Whether it is one that was taken over: then its state is told later."""
        if self._inherited is None or self._inherited.over:
            return False
        self._kernel.lifeline.say({"hears": True})
        self._inherited.begin()
        return True

    def observe(self, message: Message, msg_type: str, parent: str) -> None:
        """Take note of a message to front ends, by the kernel or in its name."""
        if self._inherited is not None:
            self._inherited.observe(message, msg_type, parent)

    def waits(self, message: Message) -> bool:
        """Whether this request is kept here until it is known that the kernel does not have it already."""
        return self._inherited is not None and self._inherited.waits(message)

    def attached(self) -> None:
        """A hub is there."""
        if self._inherited is None or self._inherited.listed:
            return
        if FEATURE in self._door.endpoint.features:
            self._door.send(Lane.ORDERED, word(event="successor"))
        else:
            self._inherited.unanswered([], 0)

    def unanswered(self, said: Dict[str, Any]) -> None:
        """The hub says which cells it has no reply for."""
        cells = [Waiting.read(cell) for cell in items(said, "cells", MOST_CELLS)]
        count = number(said, "count", 0)
        if self._inherited is not None:
            self._inherited.unanswered(cells, count)

    def ended(self) -> None:
        """The kernel is gone; front ends have heard so."""
        if self._inherited is not None:
            self._inherited.end()

    def _is_quiet(self, busy: bool) -> None:
        """The kernel has answered for all that the killed keeper had sent it."""
        self._talk.presumed_busy = False  # what still runs is known by now
        self._tell_state("busy" if busy else "idle")
