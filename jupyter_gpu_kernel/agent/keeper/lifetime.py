"""How long the kernel and its keeper are kept: idle limits, the kernel's replacement by another one, the keeper's end.

A kernel is idle while no cell runs or waits, and its process tree uses no CPU. While a front end is attached, the
limit counts from the kernel's last use. While none is attached, the limit is shorter (five minutes where no notebook is
known), and counts from the moment when the last front end left. A short disconnection after a long pause does not end
the kernel. The keeper asks for advice from time to time and follows it.

A kernel is replaced when the front end starts another kernel for a restart. The new kernel gets the GPUs of the old
one, and shows which kernel it replaces. A keeper may be the new one first and the old one later.
"""

from __future__ import annotations

import enum
import socket
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional

from .. import procfs
from ..exit.descendants import Cleanup
from ..gpus.manager import GpuManager
from ..gpus.sharing.lease_transfer import LeaseReceiver
from ..loop import Loop, Timer
from ..paths import Root, is_kernel_id
from ..relay.reattach import GreetingText
from ..story import Story
from .server import KeeperServer

DETACHED = 2 * 3600.0
ATTACHED = 12 * 3600.0
UNUSED_GPU = 30 * 60.0
UNNAMED = 5 * 60.0
"""Seconds, instead of DETACHED, for a kernel without a notebook: no front end returns to it by itself."""
WORKING = 0.02
"""Share of one CPU above which a process tree counts as working: polling loops and heartbeats use less."""
FETCH_TIMEOUT = 3.0
"""Seconds that a hub has to fetch the last messages."""
INTERVAL = 0.02
DETACHED_INTERVAL = 1.0
SHUTDOWN_GRACE = 5.0
"""Seconds between a request to shut down and SIGKILL."""
REPLACED_GRACE = 1.0
"""The same for a kernel that is replaced: the new one waits for its GPUs."""


class EndRequest(enum.Enum):
    """What was requested of the kernel's process, and therefore what follows its end."""

    NONE = "nothing"
    SHUTDOWN = "shut down"
    SHUTDOWN_FOR_RESTART = "shut down; a request to restart it may follow"
    RESTART = "restart"

    @property
    def word(self) -> str:
        """The request in the story and in the kernel's status: "", "shutdown" or "restart"."""
        if self in (EndRequest.NONE, EndRequest.SHUTDOWN):
            return "" if self is EndRequest.NONE else "shutdown"
        return "restart"


class Advice(NamedTuple):
    """`end`: why to end the kernel now. `warn`: a warning for the story. `give_back`: whether to release its GPUs."""

    end: str = ""
    warn: str = ""
    give_back: bool = False


class IdleTimer:
    """Measures how long the kernel has been idle. `now` returns the time in seconds, of a monotonic clock."""

    def __init__(self, settings: Dict[str, Any], now: Callable[[], float]) -> None:
        self._detached = float(settings.get("idle_timeout", DETACHED))
        self._attached = float(settings.get("idle_timeout_attached", ATTACHED))
        self._unused = float(settings.get("gpu_timeout", UNUSED_GPU))
        shortest = min(limit for limit in (self._detached, self._attached, self._unused, 300.0) if limit)
        self.tick = max(0.5, shortest / 10)
        """Seconds between two calls of `advise`."""
        self._now = now
        self._last = now()
        self._seen = now()  # when a front end was attached last
        self._warned = False
        self._cpu: Optional[float] = None
        self._cpu_at = now()

    def used(self) -> None:
        """The kernel was used."""
        self._last = self._now()
        self._warned = False

    def idle_for(self) -> float:
        """Seconds since the kernel was used, or used the CPU at a call of `advise`."""
        return self._now() - self._last

    def keeps_ended_kernel(self) -> bool:
        """Whether to keep a kernel that ended while no front end was attached; as long as an idle one would be."""
        return not self._detached or self._now() - self._last < self._detached

    def advise(
        self, *, busy: bool, attached: bool, cpu: float, has_gpu: bool, cuda_open: bool, named: bool = True
    ) -> Advice:
        """`cpu`: seconds of CPU time that the kernel's process tree has used so far. `named`: whether it belongs to a
        notebook, which can return to it."""
        if busy or self._working(cpu):
            self.used()
            return Advice()
        if attached:
            self._seen = self._now()
        detached = self._detached if named else min(self._detached, UNNAMED)
        limit = self._attached if attached else detached
        idle = self._now() - (self._last if attached else max(self._last, self._seen))
        if limit and idle >= limit:
            return Advice(end=f"idle for {_duration(idle)} {'with' if attached else 'without'} a front end")
        give_back = has_gpu and not cuda_open and bool(self._unused) and idle >= self._unused
        if limit and idle >= 0.9 * limit and not self._warned:
            self._warned = True
            return Advice(
                warn=f"idle for {_duration(idle)}: the kernel will be stopped after {_duration(limit)}",
                give_back=give_back,
            )
        return Advice(give_back=give_back)

    def _working(self, cpu: float) -> bool:
        now = self._now()
        passed = max(now - self._cpu_at, 1e-6)
        share = 0.0 if self._cpu is None else (cpu - self._cpu) / passed
        self._cpu, self._cpu_at = cpu, now
        return share > WORKING


def tree_cpu(session: int) -> float:
    """Seconds of CPU time of all processes in this session, which the kernel leads, and of their reaped children."""
    ticks = 0
    for pid in procfs.pids():
        stat = procfs.read_stat(pid)
        if stat is not None and stat.session == session:
            ticks += stat.cpu + stat.cpu_of_children
    return procfs.seconds(ticks)


def cuda_is_open(pid: int) -> bool:
    """Whether the process has opened GPUs, with CUDA or ROCm. True if that is unknown, as the GPU may be in use."""
    return procfs.has_opened_gpus(pid) is not False


def _duration(seconds: float) -> str:
    if seconds < 120:
        return "%.0f s" % seconds
    if seconds < 7200:
        return "%.0f min" % (seconds / 60)
    return "%.1f h" % (seconds / 3600)


class Shutdown:
    """`begin()`: the loop stops when nothing is left to do."""

    def __init__(self, loop: Loop, server: KeeperServer, idle_timer: IdleTimer, cleanup: Cleanup) -> None:
        self._loop = loop
        self._server = server
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
            self._wait(self._server.flow.unacknowledged, self._loop.time() + FETCH_TIMEOUT)

    def cancel(self) -> None:
        """The kernel is started again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait(self, unread: int, deadline: float) -> None:
        now_unread = self._server.flow.unacknowledged
        if now_unread < unread and not self._asked:  # a hub is fetching the messages of a crashed kernel
            unread, deadline = now_unread, self._loop.time() + FETCH_TIMEOUT
        wanted = self._server.attached or not self._asked
        if ((wanted and now_unread) or self._cleanup.alive) and self._loop.time() <= deadline:
            self._timer = self._loop.later(INTERVAL, lambda: self._wait(unread, deadline))
        else:
            self._loop.stop()


class _Phase(enum.Enum):
    """What the kernel's process does, as far as leases matter. STARTING: it cannot be told of GPUs yet."""

    STARTING = "starting"
    UP = "up"
    ENDED = "ended"


class Replacement:
    """Passes GPUs on to the kernel that replaces this one, and receives those of the kernel that this one replaces."""

    def __init__(
        self,
        root: Root,
        settings: Mapping[str, Any],
        loop: Loop,
        gpus: GpuManager,
        greeting_text: GreetingText,
        story: Story,
    ) -> None:
        self._root = root
        self._id = str(settings["id"])
        self._gpus = gpus
        self._greeting_text = greeting_text
        self._story = story
        self._phase = _Phase.STARTING
        self._replaced_by = ""
        self._received: List[socket.socket] = []  # leases that the kernel is told of when it is up
        self._received_since: Optional[float] = None
        self._receiver = LeaseReceiver(loop, root.kernel(self._id), self._receive)

    @property
    def replaced(self) -> bool:
        """Whether another kernel replaces this one."""
        return bool(self._replaced_by)

    @property
    def grace(self) -> float:
        """Seconds that the kernel has to shut down by itself."""
        return REPLACED_GRACE if self._replaced_by else SHUTDOWN_GRACE

    def set_replaced_by(self, kernel_id: str) -> None:
        """This kernel replaces ours."""
        self._replaced_by = kernel_id

    def kernel_starting(self) -> None:
        """A process is started, or will be in place of one that has ended."""
        self._phase = _Phase.STARTING

    def kernel_up(self) -> None:
        """The kernel can be told its GPUs."""
        self._phase = _Phase.UP
        self._use_received()

    def kernel_ended(self) -> None:
        """The kernel has ended. Pass its GPUs on to the kernel that replaces it; if there is none, give them back."""
        if self._phase is _Phase.ENDED:
            return
        self._phase = _Phase.ENDED
        self._use_received()
        by = self._replaced_by
        if not is_kernel_id(by) or not self._gpus.hand_over(self._root.kernel(by), self._id):
            self._gpus.release()

    def close(self) -> None:
        """Receive no leases any more: the keeper ends."""
        self._receiver.close()

    def _receive(self, replaced: str, leases: List[socket.socket], since: Optional[float]) -> None:
        """The kernel `replaced` of this notebook has ended; these are its leases, which it got at `since`."""
        self._story.tell("replace", f"replaces kernel {replaced}, which has ended")
        self._greeting_text.kernel_replaced(replaced)
        self._received += leases
        self._received_since = since
        self._use_received()

    def _use_received(self) -> None:
        """Use the received leases for this kernel. If it has ended, release them."""
        if self._phase is not _Phase.STARTING:
            received, self._received = self._received, []
            if self._phase is _Phase.UP and received:
                return self._gpus.receive(received, self._received_since)
            for lease in received:
                lease.close()
