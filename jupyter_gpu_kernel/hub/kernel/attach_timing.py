"""When a kernel is attached to its link: at once, or when the front ends of a killed hub have connected again.

This module knows no messages.
"""

from __future__ import annotations

import asyncio

from ..front_end.edge import SUBSCRIBE_TIMEOUT
from ..node.attachments import Attachment
from ..node.link import Link


class AttachTiming:
    """Attaches one kernel to its link. `attach` and `release` may be called more than once."""

    def __init__(self, link: Link, attachment: Attachment) -> None:
        self._link = link
        self._attachment = attachment
        self._attached = self._closed = self._complete = self._subscribed = False
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, at_once: bool) -> None:
        """Attach the kernel: `at_once`, or when all front ends are here (output for the others would be lost) and one
        of them has subscribed. The wait is limited, as a front end may never come back."""
        if at_once:
            self.attach()
        else:
            self._timer = asyncio.get_running_loop().call_later(SUBSCRIBE_TIMEOUT, self.attach)
            self._attach_if_ready()

    def complete(self) -> None:
        """All front ends that are known are here."""
        self._complete = True
        self._attach_if_ready()

    def subscribed(self) -> None:
        """A front end has subscribed to iopub."""
        self._subscribed = True
        self._attach_if_ready()

    def attach(self) -> None:
        """Let the link carry the kernel."""
        self._cancel_timer()
        if not self._attached and not self._closed:
            self._attached = True
            self._link.attach(self._attachment)

    def release(self) -> None:
        """Detach the kernel from the link, until `attach`."""
        self._cancel_timer()
        self._link.release(self._attachment)
        self._attached = False

    def close(self) -> None:
        """Detach the kernel from the link for good."""
        self._closed = True
        self.release()

    def _attach_if_ready(self) -> None:
        if self._timer is not None and self._complete and self._subscribed:
            self.attach()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
