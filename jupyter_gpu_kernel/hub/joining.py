"""When a kernel is attached to its link: at once, or when the front ends of a killed hub can hear what is passed on.

This file knows no messages.
"""

from __future__ import annotations

import asyncio

from .attachment import Attachment
from .link import Link

SUBSCRIBE_WITHIN = 15.0
"""Seconds a front end of a killed hub has to subscribe again; it may be one that never does."""
SUBSCRIBE_TOGETHER = 0.3
"""Seconds after the first of several clients of a front end until the others are there too."""


class Joining:
    """`attach` and `release` may be called more than once."""

    def __init__(self, link: Link, attachment: Attachment) -> None:
        self._link = link
        self._attachment = attachment
        self._attached = self._closed = False

    def begin(self, at_once: bool) -> None:
        """Unless `at_once`, what is passed on before the front end has subscribed would be lost."""
        if at_once:
            self.attach()
        else:
            asyncio.get_running_loop().call_later(SUBSCRIBE_WITHIN, self.attach)

    def subscribed(self) -> None:
        """A front end hears what is passed on."""
        if not self._attached:
            asyncio.get_running_loop().call_later(SUBSCRIBE_TOGETHER, self.attach)

    def attach(self) -> None:
        """From now on the link carries the kernel."""
        if not self._attached and not self._closed:
            self._attached = True
            self._link.attach(self._attachment)

    def release(self) -> None:
        """For now the link does not carry it."""
        self._link.release(self._attachment)
        self._attached = False

    def close(self) -> None:
        """It never will again."""
        self._closed = True
        self.release()
