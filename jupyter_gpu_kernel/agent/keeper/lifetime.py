"""The end of a kernel and of its keeper: what was requested, the replacement by another kernel, the last messages.

A kernel is replaced when the front end starts another kernel for a restart. The new kernel gets the GPUs of the old
one, and shows which kernel it replaces. A keeper may be the new one first and the old one later.
"""

from __future__ import annotations

import enum
from typing import Callable, List, Optional

from ..core.events import GreetingChanged
from ..exit.descendants import Cleanup
from ..gpus.manager import GpuManager
from ..gpus.sharing.lease_transfer import LeaseReceiver, PassedLeases
from ..kernel_context import KernelContext
from ..paths import is_kernel_id
from ..system.loop import Timer
from .limits.idle_timer import IdleTimer
from .server import KeeperServer

FETCH_TIMEOUT = 3.0
"""Seconds that a hub has to fetch the last messages."""
INTERVAL = 0.02
DETACHED_INTERVAL = 1.0
SHUTDOWN_GRACE = 5.0
"""Seconds between a request to shut down and SIGKILL."""
RESTART_GRACE = 2.5
"""Seconds between a request to restart and SIGKILL: jupyter_client ends local kernels after this time."""
REPLACED_GRACE = 1.0
"""Seconds between a request to shut down a kernel that is replaced and SIGKILL: the new kernel waits for the GPUs."""


class EndRequest(enum.Enum):
    """What was requested of the kernel's process, and therefore what follows its end."""

    NONE = "nothing"
    SHUTDOWN = "shut down"
    SHUTDOWN_FOR_RESTART = "shut down; a request to restart it may follow"
    RESTART = "restart"
    JOB_OVER = "the scheduler's job, in which it ran, is over"

    @property
    def word(self) -> str:
        """The request in the story and in the kernel's status: "", "shutdown" or "restart"."""
        if self in (EndRequest.NONE, EndRequest.SHUTDOWN, EndRequest.JOB_OVER):
            return "shutdown" if self is EndRequest.SHUTDOWN else ""
        return "restart"


class Shutdown:
    """Ends the keeper after its kernel: after `begin()` the loop stops when nothing is left to do."""

    def __init__(self, server: KeeperServer, idle_timer: IdleTimer, cleanup: Cleanup) -> None:
        self._loop = server.loop
        self._server = server
        self._log_file = server.runner.log_file
        self._idle_timer = idle_timer
        self._cleanup = cleanup
        self._timer: Optional[Timer] = None
        self._asked = False

    def begin(self, asked: bool) -> None:
        """`asked`: the end was requested, so nobody needs the last messages.

        If the kernel ended by itself while no front end was attached, the messages are kept as long as an idle kernel
        would be: the front end may only be out of reach.
        """
        self.cancel()
        self._asked = asked
        if not asked and not self._server.attached and self._idle_timer.keeps_ended_kernel():
            self._timer = self._loop.later(DETACHED_INTERVAL, lambda: self.begin(asked))
        else:
            self._server.tell_what_hub_reads()  # which may have come together with the request to end
            self._wait(self._log_file.unacknowledged, self._loop.time() + FETCH_TIMEOUT)

    def cancel(self) -> None:
        """The kernel is started again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait(self, unread: int, deadline: float) -> None:
        now_unread = self._log_file.unacknowledged
        if now_unread < unread and not self._asked:  # a hub is fetching the messages of a crashed kernel
            unread, deadline = now_unread, self._loop.time() + FETCH_TIMEOUT
        wanted = self._server.attached or not self._asked
        if ((wanted and now_unread) or self._cleanup.alive) and self._loop.time() <= deadline:
            self._timer = self._loop.later(INTERVAL, lambda: self._wait(unread, deadline))
        else:
            self._loop.stop()


class _Phase(enum.Enum):
    """What the kernel's process does, as far as leases matter. STARTING: the process cannot receive GPUs yet."""

    STARTING = "starting"
    UP = "up"
    ENDED = "ended"


class Replacement:
    """Passes the GPUs on to a kernel that replaces this keeper's kernel, or receives those of a replaced kernel."""

    def __init__(
        self, context: KernelContext, gpus: GpuManager, handle: Callable[[GreetingChanged], object]
    ) -> None:
        """`handle(event)` gives the core an event."""
        self.replaced_by = ""
        """The id of the kernel that replaces this keeper's kernel, and gets its GPUs; "" if they are to be free."""
        self._root = context.root
        self._story = context.story
        self._gpus = gpus
        self._handle = handle
        self._phase = _Phase.STARTING
        self._received: List[PassedLeases] = []  # leases for the kernel, until it is up
        self._receiver = LeaseReceiver(
            context.loop, context.root.kernel(context.settings.now.id), self._receive
        )

    def grace(self, restart: bool) -> float:
        """Seconds that the kernel has to shut down by itself. `restart`: its user waits for the next process."""
        if self.replaced_by:
            return REPLACED_GRACE
        return RESTART_GRACE if restart else SHUTDOWN_GRACE

    def kernel_starting(self) -> None:
        """A process of the kernel is started, or will be started after one that has ended."""
        self._phase = _Phase.STARTING

    def kernel_up(self) -> None:
        """The kernel can receive GPUs."""
        self._phase = _Phase.UP
        self._use_received()

    def kernel_ended(self) -> None:
        """Pass the GPUs of the kernel, which has ended, on to the kernel that replaces it; else give them back."""
        if self._phase is _Phase.ENDED:
            return
        self._phase = _Phase.ENDED
        self._use_received()
        by = self.replaced_by
        if not is_kernel_id(by) or not self._gpus.hand_over(self._root.kernel(by)):
            self._gpus.release()

    def close(self) -> None:
        """Receive no leases any more: the keeper ends."""
        self._receiver.close()

    def _receive(self, passed: PassedLeases) -> None:
        """A kernel of this notebook has ended; these are its leases."""
        self._story.tell("replace", f"replaces kernel {passed.kernel_id}, which has ended")
        self._handle(GreetingChanged("replaced", passed.kernel_id))
        self._received.append(passed)
        self._use_received()

    def _use_received(self) -> None:
        """Use the received leases for this kernel. If it has ended, release them."""
        if self._phase is not _Phase.STARTING:
            received, self._received = self._received, []
            for passed in received:
                if self._phase is _Phase.UP:
                    self._gpus.receive(passed)
                else:
                    passed.close()
