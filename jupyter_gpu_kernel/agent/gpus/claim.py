"""From wanting GPUs to having them: sample beside the keeper's loop, judge, lease, measure again.

`Sampler` does what may block (nvidia-smi, other holders, the directory service) in a thread; `Claim` decides
and is driven by the keeper, which owns the clock. Must not know kernels, cells or messages.
"""

from __future__ import annotations

import contextlib
import queue
import random
import socket
import threading
import time
from collections import deque
from typing import Any, Deque, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from .judge import DEFAULTS, Settings, Verdict, choose, judge, require, waiting_text
from .lease import Details, Holder, Lease, LeaseReader, release_all, take_all
from .nvidia_smi import TIMEOUT, NvidiaSmi
from .nvidia_smi_csv import Gpu


class Sample(NamedTuple):
    """All GPUs and all leases at one moment. `time`: of time.monotonic(), when the reading began."""

    time: float
    gpus: List[Gpu]
    leases: Dict[str, Holder]


def take_sample(
    smi: NvidiaSmi, leases: LeaseReader, timeout: float = TIMEOUT, stop: Optional[threading.Event] = None
) -> Sample:
    """Blocks up to `timeout` seconds and a little. Raises SmiError."""
    begin = time.monotonic()
    gpus = smi.read(timeout, stop)
    return Sample(begin, gpus, leases.read(gpu.uuid for gpu in gpus if gpu.uuid))


def survey(
    allowed: Optional[Sequence[str]] = None, settings: Settings = DEFAULTS, timeout: float = TIMEOUT
) -> List[Verdict]:
    """What we would say of each GPU now, for people to look at; blocks for all samples. Raises SmiError."""
    smi, leases = NvidiaSmi(), LeaseReader()
    samples = [take_sample(smi, leases, timeout)]
    while len(samples) < settings.samples:
        time.sleep(settings.interval)
        samples.append(take_sample(smi, leases, timeout))
    gpus = [sample.gpus for sample in samples]
    return judge(gpus, leases=samples[-1].leases, allowed=allowed, settings=settings)


class Sampler:
    """Takes samples in a thread, so that a loop never waits: `start`, poll `fileno`, then `result`."""

    def __init__(self, timeout: float = TIMEOUT) -> None:
        self._timeout = timeout
        self._smi, self._leases = NvidiaSmi(), LeaseReader()
        self._stop = threading.Event()
        self._results: queue.Queue[Union[Sample, Exception]] = queue.Queue()
        self._bell, self._ringer = socket.socketpair()
        self._bell.setblocking(False)
        self._thread: Optional[threading.Thread] = None

    def fileno(self) -> int:
        """Readable when there is a `result`."""
        return self._bell.fileno()

    def start(self) -> None:
        """Begins a sample, unless one is on its way or waits to be fetched."""
        if self._thread is None and not self._stop.is_set():
            self._thread = threading.Thread(target=self._work, name="gpu sampler", daemon=True)
            self._thread.start()

    def result(self) -> Optional[Sample]:
        """The sample that was started, or None if it is not there yet. Raises SmiError if there is none."""
        try:
            outcome = self._results.get_nowait()
        except queue.Empty:
            return None
        self._thread = None
        with contextlib.suppress(BlockingIOError):
            self._bell.recv(16)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def close(self) -> None:
        """Ends nvidia-smi if it runs. Forget `fileno` before."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=2.0)
        if self._thread is None or not self._thread.is_alive():  # else it still has the ringer: leave both
            self._bell.close()
            self._ringer.close()

    def _work(self) -> None:
        outcome: Union[Sample, Exception]
        try:
            outcome = take_sample(self._smi, self._leases, self._timeout, self._stop)
        except Exception as error:  # raised again by `result`, in the loop's thread
            outcome = error
        self._results.put(outcome)
        self._ringer.send(b".")


class Waiting(NamedTuple):
    """Not yet. `text`: for the user. `pause`: seconds until the next sample should be started."""

    text: str
    pause: float
    verdicts: List[Verdict]


class Taken(NamedTuple):
    """The GPUs are ours while their leases live; they are the caller's to answer for and to release."""

    gpus: List[Gpu]
    leases: List[Lease]


class Claim:
    """One kernel's claim to `count` GPUs: all at once or none, never a part while waiting.

    `watch` samples from the kernel's start on; `decide` when a cell wants the GPUs, and `step` with each
    sample from then on, until it says Taken. Leases are taken between two measurements: the second one sees
    who was quicker without a lease. `release` whenever you stop before: a sampler's SmiError, too.
    """

    def __init__(
        self,
        count: int,
        who: Mapping[str, Any],
        *,
        details: Optional[Details] = None,
        allowed: Optional[Sequence[str]] = None,
        settings: Settings = DEFAULTS,
        place: str = "",
    ) -> None:
        self.count = count
        self.ahead = 0  # GPUs that the user's own kernels get first; the caller knows
        self._who, self._details = who, details
        self._allowed = allowed
        self._settings = settings
        self._place = place
        self._samples: Deque[Sample] = deque(maxlen=settings.samples)
        self._leases: List[Lease] = []
        self._leased_at = 0.0

    @property
    def watched(self) -> bool:
        """Whether there are samples enough, and new enough, to decide on."""
        return len(self._recent()) >= self._settings.samples

    def name(self, uuid: str) -> str:
        """ "GPU 0 (NVIDIA A100)"; the UUID where no sample had that GPU."""
        known = (gpu for sample in reversed(self._samples) for gpu in sample.gpus if gpu.uuid == uuid)
        return str(next(known, uuid))

    def pause(self) -> float:
        """Seconds until the next sample should be started, as long as it is not `watched`."""
        last = self._samples[-1].time if self._samples else 0.0
        return max(0.0, last + self._settings.interval - time.monotonic())

    def watch(self, sample: Sample) -> None:
        """Remembers a sample."""
        self._samples.append(sample)

    def step(self, sample: Sample) -> Union[Waiting, Taken]:
        """`watch` and `decide`."""
        self.watch(sample)
        return self.decide()

    def decide(self) -> Union[Waiting, Taken]:
        """What to do now. Raises SmiError (few) when waiting is hopeless; nothing is held then."""
        recent = self._recent()
        if not recent:
            return Waiting("Looking at the GPUs.", 0.0, [])
        others = {uuid: holder for uuid, holder in recent[-1].leases.items() if uuid not in self._uuids()}
        gpus = [sample.gpus for sample in recent]
        verdicts = judge(gpus, leases=others, allowed=self._allowed, settings=self._settings)
        try:
            require(verdicts, self.count)
        except Exception:
            self.release()
            raise
        return self._confirm(recent[-1], verdicts) if self._leases else self._try(verdicts)

    def release(self) -> None:
        """Gives back what is held between the two measurements; for whoever gives up waiting."""
        release_all(self._leases)
        self._leases = []

    def _try(self, verdicts: List[Verdict]) -> Waiting:
        chosen = choose(verdicts, self.count, self.ahead)
        leases = take_all([gpu.uuid for gpu in chosen], self._who, self._details) if chosen else None
        if leases is None:  # none is free, or somebody was quicker
            return self._waiting(verdicts)
        self._leases, self._leased_at = leases, time.monotonic()
        return Waiting(
            f"Checking once more that nobody else uses {' and '.join(map(str, chosen or ()))}.", 0.0, verdicts
        )

    def _confirm(self, sample: Sample, verdicts: List[Verdict]) -> Union[Waiting, Taken]:
        if sample.time < self._leased_at:
            return Waiting("Checking once more that nobody else uses the GPUs.", 0.0, verdicts)
        held = self._uuids()
        free = [verdict.gpu for verdict in verdicts if verdict.free and verdict.gpu.uuid in held]
        if len(free) < self.count:
            self.release()
            return self._waiting(verdicts)
        taken = Taken(free, self._leases)
        self._leases = []
        return taken

    def _waiting(self, verdicts: List[Verdict]) -> Waiting:
        # The jitter keeps two who wait from meeting at every turn.
        pause = random.uniform(*self._settings.wait) if self.watched else self.pause()
        return Waiting(waiting_text(verdicts, self.count, self._place, self.ahead), pause, verdicts)

    def _uuids(self) -> Tuple[str, ...]:
        return tuple(lease.uuid for lease in self._leases)

    def _recent(self) -> List[Sample]:
        oldest = time.monotonic() - self._settings.fresh
        return [sample for sample in self._samples if sample.time >= oldest]
