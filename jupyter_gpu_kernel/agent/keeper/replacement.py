"""Replaces a kernel by a new one: a restart for which the front end starts another kernel.

The new kernel gets the GPUs of the old one, and shows which kernel it replaces. A keeper may be the new one first and
the old one later.
"""

from __future__ import annotations

import socket
from typing import Any, Dict, List

from ..gpus.lease import LeaseReceiver
from ..gpus.manager import GpuManager
from ..loop import Loop
from ..paths import Root, is_kernel_id
from ..relay.reattach import GreetingText
from ..story import Story

SHUTDOWN_GRACE = 5.0
"""Seconds between a request to shut down and SIGKILL."""
REPLACED_GRACE = 1.0
"""The same for a kernel that is replaced: the new one waits for its GPUs."""


class Replacement:
    """Passes GPUs on to the kernel that replaces this one, and receives those of the kernel that this one replaces."""

    def __init__(
        self,
        root: Root,
        settings: Dict[str, Any],
        loop: Loop,
        gpus: GpuManager,
        greeting_text: GreetingText,
        story: Story,
    ) -> None:
        self._root = root
        self._id = str(settings["id"])
        self._gpus = gpus
        self._greeting_text = greeting_text
        self._story = story
        self._up = False
        self._replaced_by = ""
        self._received: List[socket.socket] = []  # until the kernel can be told of them
        LeaseReceiver(loop, root.kernel(self._id), self._receive)

    @property
    def replaced(self) -> bool:
        """Whether another kernel replaces this one."""
        return bool(self._replaced_by)

    @property
    def grace(self) -> float:
        """Seconds that the kernel has to shut down by itself."""
        return REPLACED_GRACE if self._replaced_by else SHUTDOWN_GRACE

    def set_replaced_by(self, kernel_id: str) -> None:
        """This kernel replaces ours; "": none does."""
        self._replaced_by = kernel_id

    def kernel_up(self) -> None:
        """The kernel can be told its GPUs."""
        self._up = True
        received, self._received = self._received, []
        if received:
            self._gpus.receive(received)

    def release_gpus(self) -> None:
        """The kernel has ended. Pass its GPUs on to the kernel that replaces it; if there is none, give them back."""
        by = self._replaced_by
        if not is_kernel_id(by) or not self._gpus.hand_over(self._root.kernel(by), self._id):
            self._gpus.release()

    def _receive(self, replaced: str, leases: List[socket.socket]) -> None:
        """The kernel `replaced` of this notebook has ended; these are its leases."""
        self._story.tell("replace", f"replaces kernel {replaced}, which has ended")
        self._greeting_text.kernel_replaced(replaced)
        self._received += leases
        if self._up:
            self.kernel_up()
