"""Disturbances of the demo: the kernel gets a SIGTERM while a cell prints, and then the link is cut."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable

from .cluster import Cluster
from .notebook import numbers_in, process_in

_SIGTERM_AT, _CUT_AT = 8, 20  # after how many printed numbers
_CUT_SECONDS = 3.0
_TIMEOUT = 60.0  # seconds for that many numbers


class Trouble:
    """Call `printed` with the kernel's output. The disturbances happen on a thread, and are reported with `say`."""

    def __init__(self, cluster: Cluster, say: Callable[[str], None]) -> None:
        self.signalled = self.cut = False
        self._cluster = cluster
        self._say = say
        self._text = ""
        self._restored_at = 0.0  # 0.0 if that is reported, or has not happened
        self._changed = threading.Condition()
        self._ending = False
        self._thread = threading.Thread(target=self._run, name="trouble", daemon=True)
        self._thread.start()

    def printed(self, text: str) -> None:
        """The kernel printed `text`."""
        with self._changed:
            self._text += text
            restored_at, self._restored_at = self._restored_at, 0.0
            self._changed.notify()
        if restored_at:
            self._say(f"output arrives again, {time.monotonic() - restored_at:.1f} s later")

    def end(self) -> None:
        """Start no further disturbance, and wait for a running one."""
        with self._changed:
            self._ending = True
            self._changed.notify()
        self._thread.join(_TIMEOUT)

    def _run(self) -> None:
        if self._wait_for(_SIGTERM_AT):
            pid = process_in(self._text)
            self._say(f"kill -TERM {pid}, as a scheduler or an administrator would")
            os.kill(pid, signal.SIGTERM)
            self.signalled = True
        if self._wait_for(_CUT_AT):
            self._cluster.cut()
            self._say(f"the link is cut for {_CUT_SECONDS:.0f} s; the cell keeps running on the work node")
            threading.Event().wait(_CUT_SECONDS)
            with self._changed:
                self._cluster.start()
                self._restored_at = time.monotonic()
            self._say("the link is restored")
            self.cut = True

    def _wait_for(self, count: int) -> bool:
        """Wait until that many numbers are printed. False if the demo ends, or at a timeout."""
        with self._changed:
            self._changed.wait_for(lambda: self._ending or len(numbers_in(self._text)) >= count, _TIMEOUT)
            return not self._ending and len(numbers_in(self._text)) >= count
