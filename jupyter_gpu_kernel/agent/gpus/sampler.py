"""Samples of the node's GPUs and their leases, taken in a thread because nvidia-smi may take seconds.

This module does not know which GPUs count as free; judge.py decides that.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Callable, Dict, List, NamedTuple, Optional, Sequence, Union

from .judge import DEFAULT_CRITERIA, Criteria, Verdict, judge
from .lease import Holder, LeaseReader
from .nvidia_smi import TIMEOUT, Gpu, NvidiaSmi, SmiError

if TYPE_CHECKING:  # attach, which calls judge_now, runs without pyzmq
    from ..loop import Loop

_CLOSE_TIMEOUT = 2.0


class Sample(NamedTuple):
    """All GPUs and all leases at one moment. `time`: the time.monotonic() at which the reading began."""

    time: float
    gpus: List[Gpu]
    leases: Dict[str, Holder]


def take_sample(
    smi: NvidiaSmi, leases: LeaseReader, timeout: float = TIMEOUT, stop: Optional[threading.Event] = None
) -> Sample:
    """Read GPUs and leases; blocks for up to `timeout` seconds and a little more. Raises SmiError."""
    begin = time.monotonic()
    gpus = smi.read(timeout, stop)
    return Sample(begin, gpus, leases.read(gpu.uuid for gpu in gpus if gpu.uuid))


def judge_now(
    allowed: Optional[Sequence[str]] = None,
    criteria: Criteria = DEFAULT_CRITERIA,
    timeout: float = TIMEOUT,
) -> List[Verdict]:
    """Take as many samples as a verdict needs, and judge each GPU; blocks meanwhile. Raises SmiError."""
    smi, leases = NvidiaSmi(), LeaseReader()
    samples = [take_sample(smi, leases, timeout)]
    while len(samples) < criteria.samples:
        time.sleep(criteria.interval)
        samples.append(take_sample(smi, leases, timeout))
    gpus = [sample.gpus for sample in samples]
    return judge(gpus, leases=samples[-1].leases, allowed=allowed, criteria=criteria)


class Sampler:
    """Takes samples in a thread, one at a time, and delivers each in the event loop until `close`."""

    def __init__(
        self,
        loop: Loop,
        on_sample: Callable[[Sample], None],
        on_error: Callable[[SmiError], None],
        timeout: float = TIMEOUT,
    ) -> None:
        self._loop = loop
        self._on_sample = on_sample
        self._on_error = on_error
        self._timeout = timeout
        self._smi, self._leases = NvidiaSmi(), LeaseReader()
        self._sampling = False
        self._closing = threading.Event()
        self._thread_ended = threading.Event()

    def start(self) -> None:
        """Start a sample, unless one is being taken."""
        if not self._sampling and not self._closing.is_set():
            self._sampling = True
            self._thread_ended.clear()
            self._loop.run_in_thread(self._take, self._deliver)

    def close(self) -> None:
        """Stop sampling, and end nvidia-smi if it runs."""
        self._closing.set()
        if self._sampling:
            self._thread_ended.wait(_CLOSE_TIMEOUT)

    def _take(self) -> Union[Sample, SmiError]:
        try:
            return take_sample(self._smi, self._leases, self._timeout, self._closing)
        except SmiError as error:
            return error
        finally:
            self._thread_ended.set()

    def _deliver(self, result: Union[Sample, SmiError]) -> None:
        self._sampling = False
        if self._closing.is_set():
            return
        if isinstance(result, SmiError):
            self._on_error(result)
        else:
            self._on_sample(result)
