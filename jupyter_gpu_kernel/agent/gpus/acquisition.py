"""Acquires the GPUs of one kernel: samples them from the kernel's start on, and claims them when a cell needs them.

This module joins sampler, claim, wait queue and leases with the keeper's event loop. It knows no cells and no messages.
"""

from __future__ import annotations

import contextlib
import enum
from pathlib import Path
from typing import Callable, Dict, List, NamedTuple, Optional

from ..kernel_context import KernelContext
from ..system import procfs
from ..system.loop import Timer
from .claim import Claim, ClaimPending
from .devices.gpu import WITHOUT, SmiError, variables
from .requirements import Allocation, Requirements, job_gpus, wait_reason
from .sampler import Result, Sampler
from .sharing.announcements import Details
from .sharing.lease import Lease, LeaseTaker, release_all
from .sharing.lease_transfer import LeaseTransfer, PassedLeases
from .sharing.turns import WaitingKernel
from .sharing.wait_queue import WaitQueue

RETRIES = {"hang": 4, "driver": 2}
"""By the code of the error, how often the GPUs are read again before the cell fails: a driver may hang for a minute."""
RETRY_AFTER = 5.0


class _Need(enum.Enum):
    IDLE = "no cell needs the GPUs yet"
    WAITING = "a cell waits for the GPUs"
    ACQUIRED = "the kernel has its GPUs"


class AcquisitionCallbacks(NamedTuple):
    """What is called while GPUs are acquired.

    on_acquired: Called when the GPUs that were requested are ours.
    on_error: Called with the reason when they cannot be had.
    on_waiting: Called with a text for the user while the cell waits.
    on_given: Called when it is known which GPUs the scheduler has given to the job in which the kernel runs.
    """

    on_acquired: Callable[[], None]
    on_error: Callable[[str], None]
    on_waiting: Callable[[str], None]
    on_given: Callable[[], None] = lambda: None


class Acquisition:
    """Call `prepare` when the kernel starts, and `request` when a cell needs the GPUs."""

    _sampler: Optional[Sampler] = None
    _timer: Optional[Timer] = None
    _failures = 0

    def __init__(self, context: KernelContext, details: Details, callbacks: AcquisitionCallbacks) -> None:
        """`details`: returns what the leases report about this kernel to the user's other kernels."""
        loop, settings = context.loop, context.settings.now
        self.uuids: List[str] = []
        self.ignored_leases: Dict[str, str] = {}
        """The holders of leases that this kernel ignores, by the GPU's UUID."""
        self._in_job = bool(settings.job)
        self._job_gpus: Optional[Dict[str, str]] = None
        """The names of the job's GPUs, by UUID; {} while they are being read, None before."""
        self._job_leases: List[Lease] = []
        """The leases of the job's GPUs, which are held until the keeper ends."""
        self._count = 0 if self._in_job else settings.gpus
        self._state = _Need.ACQUIRED if self._count == 0 else _Need.IDLE
        self._loop = loop
        self._callbacks = callbacks
        self._leases: List[Lease] = []
        self._transfer = LeaseTransfer(loop.runtime, settings.id, context.lease_queue)
        self._gpus_per_user = settings.gpus_per_user
        self._queue = WaitQueue(loop, settings.id, settings.priority, details, list(settings.ignore_place))
        self._allocation = Allocation.current(loop.runtime)
        if self._count and self._allocation.uuids:
            self.uuids, self._state = self._allocation.uuids, _Need.ACQUIRED
        ignored = list(settings.ignore_lease)
        self._taker = LeaseTaker(loop.runtime, {"id": settings.id}, details, ignored, loop)
        needs = Requirements.of(settings, self._allocation.allowed)
        self._claim = Claim(loop.runtime, self._taker, needs, ignored)

    @property
    def acquired(self) -> bool:
        """Whether the kernel has all the GPUs it needs."""
        return self._state is _Need.ACQUIRED

    @property
    def holds_leases(self) -> bool:
        """Whether there are GPUs to release: those that a scheduler has allocated are not."""
        return bool(self._leases)

    @property
    def names(self) -> List[str]:
        """The GPUs as users know them: "GPU 0 (NVIDIA A100)"."""
        return [self.name(uuid) for uuid in self.uuids]

    def name(self, uuid: str) -> str:
        """Return the GPU's name, "GPU 0 (NVIDIA A100)"; the UUID if the name is not known."""
        return (self._job_gpus or {}).get(uuid) or self._claim.name(uuid)

    @property
    def place(self) -> Optional[int]:
        """The kernel's place in the queue, from 1 on; None if it is not there."""
        if not self._queue.has_place:
            return None
        return 1 + sum(not one.passed for one in self._look())

    def set_priority(self, priority: int) -> Optional[int]:
        """Change the priority, also while a cell waits, which then looks at once whether it is its turn.

        Returns the kernel's place.
        """
        self._queue.set_priority(priority)
        if self._state is _Need.WAITING:
            self._sample_in(0.0)
        return self.place

    def environment(self) -> Dict[str, str]:
        """Return the variables of the kernel's process for the GPUs that it has. In a job Slurm has set them."""
        return {} if self._in_job else variables(self.uuids, self._allocation.variable)

    def inherit(self) -> None:
        """Go on with the leases of a killed keeper."""
        passed = self._transfer.inherit()
        leases = self._taker.take_over(passed.sockets)
        if leases and len(leases) == self._count:
            return self._hold(leases)
        release_all(leases)  # this process may have had no descriptors left for the others
        self._transfer.release()

    def receive(self, passed: PassedLeases) -> bool:
        """Take over leases from the kernel that this one replaces.

        Returns whether they are enough for this kernel. Those that it does not need are released.
        """
        leases = self._taker.take_over(passed.sockets)
        if self.acquired or len(leases) < self._count:
            release_all(leases)
            return False
        self.cancel()
        self._stop_sampling()
        release_all(leases[self._count :])
        try:
            self._keep(leases[: self._count])
        except OSError:
            self.release()
        return self.acquired

    def hand_over(self, folder: Path) -> bool:
        """Pass the leases to the keeper with this folder, and release them here.

        Returns whether there is such a keeper.
        """
        passed = self._transfer.hand_over(folder, self._leases)
        self.release()  # only our copies of the sockets
        return passed

    def prepare(self) -> None:
        """Sample the GPUs while the kernel starts, so that its first cell does not wait for that."""
        if self._in_job and self._job_gpus is None:
            self._job_gpus = {}
            self._loop.run_in_thread(lambda: job_gpus(self._loop.runtime), self._given)
        if not self.acquired and self._sampler is None:
            self._sampler = Sampler(self._loop, self._sampled, with_links=self._count > 1)
            self._sampler.start()

    def request(self) -> None:
        """Acquire the GPUs, as a cell needs them. After an error another call tries again."""
        if self._state is not _Need.IDLE:
            return
        self._state = _Need.WAITING
        self._queue.join(self._count)
        self.prepare()
        self._decide(is_new=False) if self._claim.can_decide else self._sample()

    def cancel(self) -> None:
        """Stop waiting, as no cell needs the GPUs any more."""
        if self._state is _Need.WAITING:
            self._state = _Need.IDLE
        self._failures = 0
        self._claim.release()
        self._queue.leave()

    def release(self) -> None:
        """Release every GPU that was leased here."""
        self.cancel()
        if self._leases:
            self.uuids, self._state = [], _Need.IDLE
        self._stop_sampling()
        self._transfer.release()
        release_all(self._leases)
        self._leases, self.ignored_leases = [], {}

    def _given(self, names: Dict[str, str]) -> None:
        """The scheduler has given the GPUs with these names, by UUID. They are leased as far as nobody else has the
        leases: kernels outside of the job, which see no process on the GPUs yet, must not take them."""
        if names:
            self._job_gpus, self.uuids = names, list(names)
            with contextlib.suppress(OSError):
                self._job_leases = [lease for lease in map(self._taker.take, names) if lease is not None]
            self._callbacks.on_given()

    def _keep(self, leases: List[Lease]) -> None:
        """Hold these leases, also if this keeper is killed. Raises OSError if the system refuses it."""
        self._leases = leases
        self._transfer.keep(leases)
        self._hold(leases)

    def _hold(self, leases: List[Lease]) -> None:
        self._leases, self.uuids, self._state = leases, [one.uuid for one in leases], _Need.ACQUIRED
        self.ignored_leases = {lease.uuid: "" for lease in leases if lease.ignores_another}

    # -------------------------------------------------------------------------------------- samples

    def _sampled(self, result: Result) -> None:
        if isinstance(result, SmiError):
            return self._failed(result)
        self._failures = 0
        self._claim.add(result)
        if self._state is _Need.WAITING:
            return self._decide()
        if not self._claim.has_all_samples:
            self._sample_in(self._claim.delay())

    def _decide(self, ahead: Optional[List[WaitingKernel]] = None, is_new: bool = True) -> None:
        """Take the GPUs if they are free. `ahead`: the kernels whose turn comes first, if there is no new sample.
        `is_new`: whether the newest sample was taken while the cell waited; else, while others come first, it cannot
        tell what would be left for them."""
        try:
            limit = self._limit()
            # A kernel that must wait holds up nobody, but this user's others see that it is there.
            verdicts = self._claim.verdicts()
            self._queue.announce([] if limit else [one.gpu.uuid for one in verdicts if not one.unusable])
            ahead = self._look() if ahead is None else ahead
            if ahead and not is_new:
                return self._sample()
            outcome = self._claim.decide(ahead, limit)
            free = [one.gpu.uuid for one in verdicts if one.free]
            self._queue.note_untaken(ahead, [one.gpu.uuid for one in verdicts], free)
            if isinstance(outcome, ClaimPending):
                self._callbacks.on_waiting(outcome.text)
                return self._sample_in(outcome.delay)
            self._keep(outcome.leases)
        except SmiError as error:
            return self._failed(error)
        except OSError as error:
            self.release()
            return self._callbacks.on_error(
                str(SmiError("system", f"the GPUs cannot be leased: {error}", WITHOUT))
            )
        self.ignored_leases.update({uuid: str(holder) for uuid, holder in outcome.ignored.items()})
        self._queue.leave()
        self._stop_sampling()
        self._callbacks.on_acquired()

    def _look(self) -> List[WaitingKernel]:
        return self._queue.look(self._claim.seen_leases())

    def _limit(self) -> str:
        """Return why the kernel must wait whatever is free, by the site's policy; "" if it need not."""
        if self._gpus_per_user is None:
            return ""
        return wait_reason(self._gpus_per_user, self._count, self._queue.share_before())

    def _failed(self, error: SmiError) -> None:
        """Retry an error that may pass; any other is the waiting cell's error."""
        if self._state is not _Need.WAITING:
            return
        self._failures += 1
        if self._failures <= RETRIES.get(error.code, 0):
            self._queue.withdraw()
            self._callbacks.on_waiting(str(error))
            return self._sample_in(RETRY_AFTER)
        self.cancel()
        self._callbacks.on_error(str(error))

    def _sample_in(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()  # so that only one sample is ever due
        self._timer = self._loop.later(seconds, self._sample)

    def _sample(self) -> None:
        """Take a sample, unless no GPU is in reach."""
        if self._state is _Need.WAITING:
            ahead = self._look()
            named = all(procfs.knows_user(kernel.uid) for kernel in ahead)  # else a sample looks the names up
            if named and self._claim.is_out_of_reach(ahead, self._limit()):
                return self._decide(ahead)  # only the queue may have changed
        if self._sampler is not None:
            self._sampler.start()

    def _stop_sampling(self) -> None:
        if self._sampler is not None:
            self._sampler.close()
            self._sampler = None
