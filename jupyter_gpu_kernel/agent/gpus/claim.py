"""One kernel's claim to a number of GPUs: from samples to leases.

`Claim` decides what to do after each sample; its caller takes the samples and has the timers. This module does not
know kernels, cells or messages.
"""

from __future__ import annotations

import socket
from collections import deque
from typing import Deque, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Union

from ..system.agent_runtime import AgentRuntime
from .devices.gpu import Gpu
from .judge import DEFAULT_CRITERIA, Criteria, Verdict, choose, judge, require_usable, waiting_text
from .requirements import ANY_GPU, Requirements
from .sampler import Sample
from .sharing.ignored_leases import IgnoredLeases
from .sharing.lease import Holder, Lease, LeaseTaker, gpu_of, release_all
from .sharing.turns import WaitingKernel

FAR_INTERVAL = 15.0
"""Seconds between two samples of a kernel for which no GPU is in reach: thirty kernels that wait do not all run
nvidia-smi all the time."""
_RETRIES = 3
"""How often in a row it samples at once after another kernel was quicker."""


class ClaimPending(NamedTuple):
    """The GPUs are not ours yet. `text` is for the user; the next sample is due in `delay` seconds."""

    text: str
    delay: float


class ClaimGranted(NamedTuple):
    """The GPUs are ours as long as these leases are held, which belong to the caller from now on."""

    leases: List[Lease]
    ignored: Mapping[str, Holder] = {}  # the holders of leases that were ignored, by UUID


class Claim:
    """A claim to GPUs: all at once or none, never a part of them while waiting.

    Call `add` with each sample, and `decide` when a cell needs the GPUs and after each sample from then on, until it
    returns ClaimGranted. The leases are taken between two samples: the second one shows whether somebody has begun
    to use a GPU without a lease. Call `release` to give up the claim, also after a SmiError.
    """

    def __init__(
        self,
        runtime: AgentRuntime,
        taker: LeaseTaker,
        needs: Requirements = ANY_GPU,
        ignored: Iterable[str] = (),
        criteria: Criteria = DEFAULT_CRITERIA,
    ) -> None:
        """`taker` takes the leases; `ignored`: the GPUs whose leases may be ignored."""
        self._count = needs.gpus
        self._runtime = runtime
        self._taker = taker
        self._criteria = criteria
        self._needs = needs
        self._ignored = IgnoredLeases(ignored)
        self._samples: Deque[Sample] = deque(maxlen=criteria.samples)
        self._leases: List[Lease] = []
        self._confirms_from = 0.0  # when a sample may begin that confirms those from before the leases
        self._too_late = 0  # how often in a row another kernel has taken the chosen GPU meanwhile

    @property
    def has_all_samples(self) -> bool:
        """Whether there are as many samples, and recent ones, as a verdict on any GPU needs."""
        return len(self._recent()) >= self._criteria.samples

    @property
    def can_decide(self) -> bool:
        """Whether the samples are enough for a decision: fewer are if enough GPUs are empty."""
        return self.has_all_samples or choose(self.verdicts(), self._count) is not None

    def name(self, uuid: str) -> str:
        """Return the GPU's name, "GPU 0 (NVIDIA A100)"; the UUID if no sample has the GPU."""
        known = (gpu for sample in reversed(self._samples) for gpu in sample.gpus if gpu.uuid == uuid)
        return str(next(known, uuid))

    @property
    def _sample_age(self) -> float:
        """The seconds since the newest sample."""
        return self._runtime.monotonic() - (self._samples[-1].time if self._samples else 0.0)

    def delay(self) -> float:
        """Return the seconds until the next sample is due, while there are not enough samples."""
        hurried = self.has_all_samples or not self.can_decide
        interval = self._criteria.interval if hurried else self._criteria.unhurried
        return max(0.0, interval - self._sample_age)

    def add(self, sample: Sample) -> None:
        """Add a sample."""
        self._samples.append(sample)
        if self._ignored:
            verdicts = judge([sample.gpus], criteria=self._criteria._replace(samples=1))
            unused = [verdict.gpu.uuid for verdict in verdicts if verdict.free]
            self._ignored.add(sample.time, sample.leases, unused, self._criteria.fresh)

    def decide(
        self, ahead: Sequence[WaitingKernel] = (), limit: str = ""
    ) -> Union[ClaimPending, ClaimGranted]:
        """Take the GPUs if they are free.

        ahead: The kernels whose turn comes first.
        limit: Why this kernel must wait even if GPUs are free.

        Raises SmiError (few) when waiting cannot help, and OSError if the system refuses a lease; none is held then.
        """
        recent = self._recent()
        if not recent:
            return ClaimPending("Checking which GPUs are free.", 0.0)
        verdicts = self._judge(recent)
        try:
            require_usable(verdicts, self._count)
        except Exception:
            self.release()
            raise
        if limit:
            self.release()
            return self._pending(verdicts, ahead, limit)
        return self._confirm(recent[-1], verdicts, ahead) if self._leases else self._try(verdicts, ahead)

    def verdicts(self) -> List[Verdict]:
        """Return the verdict on each GPU, by the samples so far."""
        return self._judge(self._recent())

    def seen_leases(self) -> List[Holder]:
        """Return the holder of each leased GPU in the newest sample."""
        return list(self._samples[-1].holders().values()) if self._samples else []

    def is_out_of_reach(self, ahead: Sequence[WaitingKernel], limit: str = "") -> bool:
        """Return whether all GPUs would be for others even if all were free, so that a new sample can wait. The
        arguments are those of `decide`."""
        if self._leases or not self.has_all_samples or self._sample_age >= FAR_INTERVAL:
            return False
        if limit:
            return True
        verdicts = [one._replace(free=not one.unusable) for one in self.verdicts()]
        return choose(verdicts, self._count, ahead) is None

    def release(self) -> None:
        """Release what is held without having been granted; harmless when repeated."""
        release_all(self._leases)
        self._leases = []

    def _judge(self, recent: List[Sample]) -> List[Verdict]:
        leases = self._leases_of_others(recent[-1]) if recent else {}
        return judge([sample.gpus for sample in recent], self._needs, leases, self._criteria)

    def _leases_of_others(self, sample: Sample) -> Dict[str, Holder]:
        own = [lease.name for lease in self._leases]
        others = ((gpu_of(name), holder) for name, holder in sample.leases.items() if name not in own)
        return {
            uuid: self._ignored.explain(uuid, holder)
            for uuid, holder in others
            if not self._ignored.ignores(uuid, holder)
        }

    def _try(self, verdicts: List[Verdict], ahead: Sequence[WaitingKernel]) -> ClaimPending:
        chosen = self._choose(verdicts, ahead)
        leases = self._taker.take_all([gpu.uuid for gpu in chosen]) if chosen else None
        if chosen and leases is None and self._too_late < _RETRIES:
            self._too_late += 1  # the next sample shows which GPUs are left
            delay = self._runtime.random.uniform(0.0, self._criteria.interval)
            return ClaimPending("Checking which GPUs are free.", delay)
        self._too_late = 0
        if leases is None:
            return self._pending(verdicts, ahead)
        self._leases = leases
        first = min(sample.time for sample in self._recent())
        self._confirms_from = max(self._runtime.monotonic(), first + self._criteria.span)
        names = " and ".join(map(str, chosen or ()))
        return ClaimPending(f"Checking once more that nobody else uses {names}.", self._confirmation_delay())

    def _choose(self, verdicts: List[Verdict], ahead: Sequence[WaitingKernel]) -> Optional[List[Gpu]]:
        """Choose free GPUs; those whose leases are ignored only if there are too few others."""
        newest = self._samples[-1]
        unleased = [verdict for verdict in verdicts if verdict.gpu.uuid not in newest.holders()]
        links = dict(newest.links)
        return choose(unleased, self._count, ahead, links) or choose(verdicts, self._count, ahead, links)

    def _confirm(
        self, sample: Sample, verdicts: List[Verdict], ahead: Sequence[WaitingKernel]
    ) -> Union[ClaimPending, ClaimGranted]:
        if sample.time < self._confirms_from:
            text = "Checking once more that nobody else uses the GPUs."
            return ClaimPending(text, self._confirmation_delay())
        own = {lease.uuid: lease for lease in self._leases}
        free = [verdict.gpu for verdict in verdicts if verdict.free and verdict.gpu.uuid in own]
        # On an older sample it may have looked as if enough GPUs were left for those that come first.
        if len(free) < self._count or choose(verdicts, self._count, ahead) is None:
            self.release()
            return self._pending(verdicts, ahead)
        ignoring = [uuid for uuid, lease in own.items() if lease.ignores_another and uuid in sample.leases]
        ignored = {uuid: sample.leases[uuid] for uuid in ignoring}
        granted = ClaimGranted([own[gpu.uuid] for gpu in free], ignored)
        self._leases = []
        return granted

    def _confirmation_delay(self) -> float:
        return max(0.0, self._confirms_from - self._runtime.monotonic())

    def _pending(
        self, verdicts: List[Verdict], ahead: Sequence[WaitingKernel], limit: str = ""
    ) -> ClaimPending:
        # The random part keeps two kernels that wait from trying at the same moment every time.
        wait = self._runtime.random.uniform(*self._criteria.wait)
        delay = wait if self.has_all_samples else self.delay()
        if any(verdict.pending for verdict in verdicts):  # it may be free after a few samples
            delay = min(delay, self._criteria.unhurried)
        node, notebooks = socket.gethostname(), self._samples[-1].notebooks
        return ClaimPending(waiting_text(verdicts, self._count, node, ahead, limit, notebooks), delay)

    def _recent(self) -> List[Sample]:
        oldest = self._runtime.monotonic() - self._criteria.fresh
        return [sample for sample in self._samples if sample.time >= oldest]
