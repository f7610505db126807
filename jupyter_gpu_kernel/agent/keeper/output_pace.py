"""How fast a kernel may go on to write while its front end reads: not much faster than the output is taken.

Otherwise a cell that prints without end would be seconds ahead of what its user sees, and so would be the end of a cell
that the user interrupts. A kernel that writes less than `RATE` is never slowed. While no front end is attached, no
kernel is slowed, as the log takes its output.
"""

from __future__ import annotations

from typing import Callable, Optional

from ..system.loop import Loop, Timer
from .core_runner import CoreRunner
from .server import KeeperServer

AHEAD = 8 * 1024 * 1024
"""Bytes that may wait for the front end before the kernel is slowed: a fraction of a second on a fast link."""
RATE = 8 * 1024 * 1024
"""Bytes per second that a kernel may always write."""
_AT_ONCE = 512 * 1024
"""Bytes: a kernel that writes so much in an interval learns at once that they were handled."""
_INTERVAL = 0.05


class OutputPace:
    """Tells the kernel how many bytes of its output the keeper has handled: the kernel may write as many more.

    `return_mark(total)` tells the kernel that it need not keep its first `total` bytes any more. It is called when
    these bytes are in the log's file.
    """

    def __init__(
        self, loop: Loop, server: KeeperServer, runner: CoreRunner, return_mark: Callable[[int], object]
    ) -> None:
        self._loop = loop
        self._server = server
        self._runner = runner
        self._return_mark = return_mark
        self._handled = 0
        self._returned = 0
        self._timer: Optional[Timer] = None

    def handled(self, total: int) -> None:
        """The keeper has handled `total` bytes of the kernel's output. If that is little, the kernel is told later: the
        hub gets the output first, and of many short cells not each one costs the kernel a message."""
        if total < self._handled:  # of another process
            self._returned = 0
        self._handled = total
        if total - self._returned > _AT_ONCE and not self._is_ahead:
            self._return(total)
        elif self._timer is None:
            self._timer = self._loop.later(_INTERVAL, self._return_some)

    @property
    def _is_ahead(self) -> bool:
        """Whether the kernel is far ahead of the front end that reads."""
        return self._server.attached and self._runner.log_file.unacknowledged > AHEAD

    def _return_some(self) -> None:
        most = int(RATE * _INTERVAL) if self._is_ahead else self._handled
        self._return(min(self._handled, self._returned + most))
        is_all = self._returned == self._handled
        self._timer = None if is_all else self._loop.later(_INTERVAL, self._return_some)

    def _return(self, total: int) -> None:
        self._returned = total
        self._runner.log_file.flush()
        self._return_mark(total)
