"""When a kernel is attached to its link: at once, or when the front ends of a killed hub have connected again."""

from __future__ import annotations

import asyncio

from ..front_end.edge import SUBSCRIBE_TIMEOUT
from ..node.attachments import Attachment
from ..node.node_link import NodeLink


class AttachTiming:
    """Attaches one kernel to its link. `attach` and `release` may be called more than once."""

    def __init__(self, link: NodeLink, attachment: Attachment) -> None:
        self._link = link
        self._attachment = attachment
        self._is_attached = self._is_closed = self._complete = False
        self._timer: asyncio.TimerHandle | None = None  # while the kernel waits for front ends

    def begin(self, at_once: bool) -> None:
        """Attach the kernel: `at_once`, or when all front ends have connected, as output for the others would be lost.
        The wait is limited, as a front end may never come back."""
        if at_once or self._complete:
            self.attach()
        else:
            self._timer = asyncio.get_running_loop().call_later(SUBSCRIBE_TIMEOUT, self.attach)

    def complete(self) -> None:
        """All front ends that a killed hub had have connected."""
        self._complete = True
        if self._timer is not None:
            self.attach()

    def attach(self) -> None:
        """Let the link carry the kernel."""
        self._end_wait()
        if not (self._is_attached or self._is_closed):
            self._is_attached = True
            self._link.attach(self._attachment)

    def release(self) -> None:
        """Detach the kernel from the link, until `attach`."""
        self._end_wait()
        self._is_attached = False
        self._link.release(self._attachment)

    def move(self, link: NodeLink) -> None:
        """The kernel belongs to another link now, to which it is not attached yet."""
        self.release()
        self._link = link

    def start(self, link: NodeLink) -> None:
        """Attach the kernel, which had no node, to this link when its front ends have connected."""
        if self._timer is not None:
            self._link = link
        else:
            self.move(link)
            self.attach()

    def close(self) -> None:
        """Detach the kernel from the link for good."""
        self._is_closed = True
        self.release()

    def _end_wait(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
