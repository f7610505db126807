"""A restart for which the front end started a new kernel: the new one gets the GPUs of the old one, and says so.

A keeper may be the new one first and the old one later. This file knows neither front ends nor the kernel's process.
"""

from __future__ import annotations

import socket
from typing import Any, Dict, List

from ..gpus.manager import GpuManager
from ..gpus.transfer import Receiver
from ..loop import Loop
from ..paths import Root, is_kernel_id
from ..relay.reattach import Reattach
from ..story import Story

SHUTDOWN_GRACE = 5.0
"""Seconds between a request to shut down and SIGKILL."""
REPLACED_GRACE = 1.0
"""The same for a kernel in whose place there is another one, which waits for its GPUs."""


class Replacement:
    """`by` is the kernel that replaces this one, "" if none does."""

    def __init__(
        self,
        root: Root,
        settings: Dict[str, Any],
        loop: Loop,
        gpus: GpuManager,
        reattach: Reattach,
        story: Story,
    ) -> None:
        self.by = ""
        self._root = root
        self._id = str(settings["id"])
        self._gpus = gpus
        self._absence = reattach
        self._story = story
        self._up = False
        self._received: List[socket.socket] = []  # before the kernel could be told of them
        Receiver(loop, root.kernel(self._id), self._replaces)

    @property
    def grace(self) -> float:
        """Seconds that the kernel has to shut down by itself."""
        return REPLACED_GRACE if self.by else SHUTDOWN_GRACE

    def is_up(self) -> None:
        """The kernel can be told its GPUs."""
        self._up = True
        received, self._received = self._received, []
        if received:
            self._gpus.receive(received)

    def part_with_gpus(self) -> None:
        """The kernel has ended. Whoever replaces it gets its GPUs; if nobody does, they are free."""
        if not is_kernel_id(self.by) or not self._gpus.hand_over(self._root.kernel(self.by), self._id):
            self._gpus.give_back()

    def _replaces(self, before: str, leases: List[socket.socket]) -> None:
        """The kernel `before` of this notebook has ended."""
        self._story.tell("replace", f"replaces kernel {before}, which has ended")
        self._absence.replaces(before)
        self._received += leases
        if self._up:
            self.is_up()
