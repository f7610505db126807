"""What goes wrong in the demo on purpose: a kernel gets SIGTERM while a cell prints; then its link is cut."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable

from .cluster import Cluster
from .notebook import numbers_in, process_in

_SIGTERM_AT, _CUT_AT = 8, 20  # how many numbers have been printed by then
_CUT_SECONDS = 3.0
_PATIENCE = 60.0  # seconds for each of them to come; they take seconds


class Trouble:
    """Give it what the kernel prints (`heard`); it acts on a thread of its own and says what it does."""

    def __init__(self, cluster: Cluster, say: Callable[[str], None]) -> None:
        self.signalled = self.cut = False
        self._cluster = cluster
        self._say = say
        self._text = ""
        self._back = 0.0  # when the link came back
        self._came = threading.Condition()
        self._given_up = False
        self._thread = threading.Thread(target=self._run, name="trouble", daemon=True)
        self._thread.start()

    def heard(self, text: str) -> None:
        """The kernel printed `text`."""
        with self._came:
            self._text += text
            back, self._back = self._back, 0.0
            self._came.notify()
        if back:
            self._say(f"output flows again, {time.monotonic() - back:.1f} s later")

    def end(self) -> None:
        """Wait until it is over; what has not happened by now does not happen any more."""
        with self._came:
            self._given_up = True
            self._came.notify()
        self._thread.join(_PATIENCE)

    def _run(self) -> None:
        if self._printed(_SIGTERM_AT):
            pid = process_in(self._text)
            self._say(f"kill -TERM {pid}: as a scheduler or an administrator would")
            os.kill(pid, signal.SIGTERM)
            self.signalled = True
        if self._printed(_CUT_AT):
            self._cluster.cut()
            self._say(f"the link is cut for {_CUT_SECONDS:.0f} s; the cell goes on on the work node")
            threading.Event().wait(_CUT_SECONDS)
            with self._came:
                self._cluster.start()
                self._back = time.monotonic()
            self._say("the link is there again")
            self.cut = True

    def _printed(self, count: int) -> bool:
        """Wait for so many numbers. False if they never came."""
        with self._came:
            self._came.wait_for(lambda: self._given_up or len(numbers_in(self._text)) >= count, _PATIENCE)
            return not self._given_up and len(numbers_in(self._text)) >= count
