"""The pinned code of one kernel, for its keeper: made in a thread, reported to the kernel, removed at the end."""

from __future__ import annotations

import os
import threading
from functools import partial
from typing import Any, Callable, Dict, Optional, Union

from ..kernel_context import KernelContext
from ..relay.internal_requests import InternalRequests
from .checkout import LIMIT, Checkouts, Pin
from .git import PinError

RETRY_AFTER = 0.1
"""Seconds until the request is sent to the kernel again, if it was not executed."""
OnDone = Callable[[str], None]


class KernelCode:
    """`cwd` is where the kernel's process starts; `pin` changes it before the first cell."""

    def __init__(self, context: KernelContext, internal_requests: InternalRequests) -> None:
        """If the code was pinned at the start, the settings have the pin."""
        self._loop = context.loop
        self._checkouts = Checkouts(context.loop.runtime, context.processes, context.root)
        self._settings = context.settings
        self._kernel_id = context.settings.now.id
        self._internal_requests = internal_requests
        self._story = context.story
        self._folder = os.getcwd()
        self._cancelled = threading.Event()  # of the pin that is made
        self._making = threading.Lock()

    @property
    def current(self) -> Optional[Pin]:
        """The kernel's code; None if it is not pinned."""
        pin = self._settings.now.pin
        return Pin.from_json(pin) if pin else None

    @property
    def cwd(self) -> Optional[str]:
        """The folder in which the process starts; None: the keeper's."""
        return self.current.cwd if self.current else None

    def tell_story(self) -> str:
        """Tell the story what is pinned. Return what the user should know of it; "" if there is nothing."""
        pin = self.current
        if pin is None:
            return ""
        text = " ".join([f"{pin.text}.", *pin.warnings])
        known = {name: getattr(pin, name) for name in ("revision", "commit", "repository", "changes")}
        self._story.tell("code", f"pinned: {text}", folder=pin.tree, **known)
        return f"This kernel runs {text}" if pin.warnings else ""

    def kernel_up(self) -> None:
        """Report the code to a started process, before it gets a cell."""
        if self.current is not None:
            self._inform_kernel("", lambda problem: None)

    def pin(self, revision: str, cell: str, done: OnDone) -> Callable[[], None]:
        """Pin the code for the cell with this msg_id; then call `done` with the problem, or "".

        Return a function that cancels it: then `done` is not called, git ends, and the code stays as it is.
        """
        self._cancelled = cancelled = threading.Event()

        def make() -> Union[Pin, PinError]:
            try:
                with self._making:
                    return self._checkouts.make(self._kernel_id, self._folder, revision, cancelled.is_set)
            except PinError as error:
                return error

        def unless_cancelled(problem: str) -> None:
            if not cancelled.is_set():
                done(problem)

        def made(pin: Union[Pin, PinError]) -> None:
            if isinstance(pin, PinError):
                self._story.tell("code", f"not pinned: {pin}")
                unless_cancelled(str(pin))
            elif not cancelled.is_set():
                self._use(pin, cell, unless_cancelled)

        self._loop.run_in_thread(make, made)
        return cancelled.set

    def remove(self) -> None:
        """Remove the checkouts that nobody changed, those of a killed keeper among them. Blocks; the kernel has
        ended."""
        self._cancelled.set()
        if not self._making.acquire(timeout=LIMIT):
            return  # `stop --leftovers` finds them
        pins, current = self._checkouts.of_kernel(self._kernel_id), self.current
        if current is not None and current.tree not in [pin.tree for pin in pins]:
            pins.append(current)  # made where HOME was another one
        for pin in pins:
            kept = self._checkouts.remove(pin)
            if kept:
                self._story.tell("code", f"kept {pin.tree}: {kept}", folder=pin.tree)

    def _use(self, pin: Pin, cell: str, done: OnDone) -> None:
        current = self.current
        if current is not None and current.is_same(pin):
            pin = current._replace(revision=pin.revision, changes=pin.changes)
        self._settings.change(pin=pin._asdict())
        self.tell_story()
        self._inform_kernel(cell, done)

    def _inform_kernel(self, cell: str, done: OnDone) -> None:
        pin = self.current
        assert pin is not None
        known = dict(pin._asdict(), text=pin.text, warnings=pin.warnings)

        def answered(reply: Dict[str, Any]) -> None:
            if not reply:  # aborted, because a request of the front end failed before it
                self._loop.later(RETRY_AFTER, partial(self._inform_kernel, cell, done))
            elif reply.get("status") == "ok":
                done("")
            else:
                self._story.tell("code", f"the kernel cannot use it: {reply.get('evalue')}")
                done(f"the kernel cannot use {pin.tree}: {reply.get('evalue')}")

        self._internal_requests.evaluate(f"__import__('gpu_kernel').take_code({known!r}, {cell!r})", answered)
