"""The pinned code of one kernel, for its keeper: made in a thread, reported to the kernel, removed at the end."""

from __future__ import annotations

import os
import threading
from typing import Any, Callable, Dict, Optional, Union

from ...wire.messages import Message
from ..core.code_request import requested_revision
from ..core.events import CodePinned
from ..core.internal_requests import Evaluate
from ..kernel_context import KernelContext
from .checkout import LIMIT, Checkouts, Pin
from .git import PinError


class KernelCode:
    """`cwd` is where the kernel's process starts; `pin` changes it before the first cell."""

    def __init__(
        self, context: KernelContext, evaluate: Evaluate, handle: Callable[[CodePinned], object]
    ) -> None:
        """If the code was pinned at the start, the settings have the pin. `handle(event)` is called when the code that
        a cell names is pinned, or cannot be pinned."""
        self._loop = context.loop
        self._checkouts = Checkouts(context.loop.runtime, context.root)
        self._settings = context.settings
        self._kernel_id = context.settings.now.id
        self._evaluate = evaluate
        self._handle = handle
        self._cell: Optional[Message] = None
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
            self._cancelled.set()  # no cell waits for code
            self._inform_kernel("", self._cancelled)

    def want(self, cell: Optional[Message]) -> None:
        """Pin the code that this cell names, and no other code. None: no cell waits for code.

        If the pin is no longer wanted, git ends, and the code stays as it is.
        """
        if cell == self._cell:
            return
        self._cancelled.set()
        self._cell = cell
        revision = "" if cell is None else requested_revision(cell.content().get("code"))
        if cell is not None and revision:
            self._pin(revision, cell.msg_id)

    def _pin(self, revision: str, cell: str) -> None:
        """Pin the code for the cell with this msg_id."""
        self._cancelled = cancelled = threading.Event()

        def make() -> Union[Pin, PinError]:
            try:
                with self._making:
                    return self._checkouts.make(self._kernel_id, self._folder, revision, cancelled.is_set)
            except PinError as error:
                return error

        def made(pin: Union[Pin, PinError]) -> None:
            if isinstance(pin, PinError):
                self._story.tell("code", f"not pinned: {pin}")
                self._done(cancelled, str(pin))
            elif not cancelled.is_set():
                self._use(pin)
                self._inform_kernel(cell, cancelled)

        self._loop.run_in_thread(make, made)

    def _done(self, cancelled: threading.Event, problem: str) -> None:
        if not cancelled.is_set():
            self._handle(CodePinned(problem))

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

    def _use(self, pin: Pin) -> None:
        current = self.current
        if current is not None and current.is_same(pin):
            pin = current._replace(revision=pin.revision, changes=pin.changes)
        self._settings.change(pin=pin._asdict())
        self.tell_story()

    def _inform_kernel(self, cell: str, cancelled: threading.Event) -> None:
        pin = self.current
        assert pin is not None

        def take_code() -> str:
            now = self.current or pin  # it may be evaluated again later, when another one is pinned
            known = dict(now._asdict(), text=now.text, warnings=now.warnings)
            return f"__import__('gpu_kernel').take_code({known!r}, {cell!r})"

        def answered(reply: Dict[str, Any]) -> None:
            problem = "" if reply.get("status") == "ok" else str(reply.get("evalue"))
            if problem:
                self._story.tell("code", f"the kernel cannot use it: {problem}")
            self._done(cancelled, problem and f"the kernel cannot use {pin.tree}: {problem}")

        self._evaluate(take_code, answered)
