"""Samples of the node's GPUs and their leases, taken in a thread because nvidia-smi or rocm-smi may take seconds.

This module does not know which GPUs count as free; judge.py decides that.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from ...wire.runtime import Runtime
from .. import procfs
from ..process_control import ProcessControl
from .devices.gpu import WITHOUT, Gpu, SmiError
from .devices.gpu_reader import gpu_reader
from .devices.smi_runner import TIMEOUT
from .devices.topology import Topology
from .early_reading import EarlyReading
from .judge import DEFAULT_CRITERIA, Criteria, Verdict, judge
from .requirements import ANY_GPU, Requirements
from .sharing.lease import Holder, LeaseReader, gpu_of
from .sharing.wait_queue import QueueReader

if TYPE_CHECKING:  # attach, which calls judge_now, runs without pyzmq
    from ..loop import Loop

_CLOSE_TIMEOUT = 2.0


class Sample(NamedTuple):
    """All GPUs and all leases at one moment. `time`: of the monotonic clock, when the reading began."""

    time: float
    gpus: List[Gpu]
    leases: Dict[str, Holder]
    links: Mapping[Tuple[int, int], int] = {}  # see topology.py
    ignoring: Mapping[str, Holder] = {}  # the holders that ignore a lease, by the names of their own ones
    notebooks: Mapping[str, str] = {}  # of this user's kernels that wait, by id

    def all_leases(self) -> Dict[str, Holder]:
        """Return the holder of each leased GPU; of two, the one that ignores the other's lease."""
        return {**self.leases, **{gpu_of(name): holder for name, holder in self.ignoring.items()}}


class SampleReader:
    """Reads GPUs and leases, repeatedly. Not for use by several threads at a time."""

    def __init__(
        self, runtime: Runtime, processes: ProcessControl, with_links: bool = False, early: int = -1
    ) -> None:
        """`with_links`: also read the links between the GPUs, once. `early`: see EarlyReading."""
        self._early = EarlyReading(runtime, early)
        self._runtime = runtime
        self._links: Optional[Topology] = None if with_links else {}
        self._smi, self._leases = gpu_reader(runtime, processes), LeaseReader(runtime)
        self._queue = QueueReader(runtime)

    def read(self, timeout: float = TIMEOUT, stop: Optional[threading.Event] = None) -> Sample:
        """Take a sample; blocks for up to `timeout` seconds and a little more. Raises SmiError if it fails."""
        # The directory service may take long: the event loop shows only names that were looked up here.
        for kernel in self._queue.read():
            procfs.user_name(kernel.uid)
        stop = stop or threading.Event()
        early = self._early.take(stop)
        begin = self._runtime.monotonic() if early is None else early.time
        gpus = self._smi.read(timeout, stop) if early is None else early.gpus
        if self._links is None:
            self._links = self._smi.read_links(timeout, stop)
        uuids = [gpu.uuid for gpu in gpus if gpu.uuid]
        leases = self._leases.read(uuids)
        ignoring, notebooks = self._leases.read_ignoring(leases), self._queue.own_reports().notebooks
        return Sample(begin, gpus, leases, self._links, ignoring, notebooks)


def take_samples(
    runtime: Runtime,
    processes: ProcessControl,
    criteria: Criteria = DEFAULT_CRITERIA,
    enough: Callable[[List[Sample]], bool] = lambda samples: False,
) -> List[Sample]:
    """Take as many samples as a verdict on any GPU needs, or until they are `enough`; blocks meanwhile. Raises SmiError
    if the GPUs cannot be read."""
    reader = SampleReader(runtime, processes)
    samples = [reader.read()]
    while len(samples) < criteria.samples and not enough(samples):
        runtime.sleep(max(0.0, samples[-1].time + criteria.interval - runtime.monotonic()))
        samples.append(reader.read())
    return samples


def judge_now(
    runtime: Runtime,
    processes: ProcessControl,
    allowed: Optional[Sequence[str]] = None,
    criteria: Criteria = DEFAULT_CRITERIA,
    needs: Requirements = ANY_GPU,
) -> List[Verdict]:
    """Take as many samples as a verdict needs, and judge each GPU; blocks meanwhile.

    Raises SmiError if `nvidia-smi` fails.
    """
    samples = take_samples(runtime, processes, criteria)
    gpus = [sample.gpus for sample in samples]
    return judge(gpus, leases=samples[-1].all_leases(), allowed=allowed, criteria=criteria, needs=needs)


class Sampler:
    """Takes samples in a thread, one at a time, and delivers each in the event loop until `close`."""

    def __init__(
        self,
        loop: Loop,
        processes: ProcessControl,
        on_sample: Callable[[Sample], None],
        on_error: Callable[[SmiError], None],
        timeout: float = TIMEOUT,
        with_links: bool = False,
        early: int = -1,
    ) -> None:
        self._loop = loop
        self._on_sample = on_sample
        self._on_error = on_error
        self._timeout = timeout
        self._reader = SampleReader(loop.runtime, processes, with_links, early)
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
            return self._reader.read(self._timeout, self._closing)
        except SmiError as error:
            return error
        except OSError as error:  # no descriptors are left
            return SmiError("system", f"the GPUs and leases cannot be read: {error}", WITHOUT)
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
