"""When a kernel is attached to its link: at once, or when the front ends of a killed hub are back.

This file knows no messages.
"""

from __future__ import annotations

import asyncio

from ..front_end.unread import SUBSCRIBE_TIMEOUT
from ..node.attachments import Attachment
from ..node.link import Link


class Reattach:
    """`attach` and `release` may be called more than once."""

    def __init__(self, link: Link, attachment: Attachment) -> None:
        self._link = link
        self._attachment = attachment
        self._attached = self._closed = self._complete = self._subscribed = False
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, at_once: bool) -> None:
        """Attaches the kernel; unless `at_once`, when all front ends are here (what is for the others would be lost)
        and one of them has subscribed. That is waited for only for a while: there may be one that never comes."""
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
        """A front end hears what is passed on."""
        self._subscribed = True
        self._attach_if_ready()

    def attach(self) -> None:
        """From now on the link carries the kernel."""
        self._stop_waiting()
        if not self._attached and not self._closed:
            self._attached = True
            self._link.attach(self._attachment)

    def release(self) -> None:
        """For now the link does not carry it."""
        self._stop_waiting()
        self._link.release(self._attachment)
        self._attached = False

    def close(self) -> None:
        """It never will again."""
        self._closed = True
        self.release()

    def _attach_if_ready(self) -> None:
        if self._timer is not None and self._complete and self._subscribed:
            self.attach()

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
