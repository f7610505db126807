"""Samples of the node's GPUs and their leases, taken in a thread because nvidia-smi or rocm-smi may take seconds.

This module does not know which GPUs count as free; judge.py decides that.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple, Union

from ..system import procfs
from ..system.agent_runtime import AgentRuntime
from .devices.gpu import WITHOUT, Gpu, SmiError
from .devices.gpu_reader import gpu_reader
from .devices.smi_runner import TIMEOUT
from .devices.topology import Topology
from .judge import DEFAULT_CRITERIA, Verdict, judge
from .requirements import ANY_GPU, Requirements
from .sharing.lease import Holder, LeaseReader, gpu_of
from .sharing.wait_queue import QueueReader

if TYPE_CHECKING:  # attach, which calls judge_now, runs without pyzmq
    from ..system.loop import Loop

_CLOSE_TIMEOUT = 2.0


class Sample(NamedTuple):
    """All GPUs and all leases at one moment. `time`: of the monotonic clock, when the reading began."""

    time: float
    gpus: List[Gpu]
    leases: Mapping[str, Holder]  # by the names of the leases; last those whose holders ignore another lease
    links: Mapping[Tuple[int, int], int] = {}  # see topology.py
    notebooks: Mapping[str, str] = {}  # of this user's kernels that wait, by id

    def holders(self) -> Dict[str, Holder]:
        """Return the holder of each leased GPU, by UUID; of two, the one that ignores the other's lease."""
        return {gpu_of(name): holder for name, holder in self.leases.items()}


Result = Union[Sample, SmiError]


class SampleReader:
    """Reads GPUs and leases, repeatedly. Not for use by several threads at a time."""

    def __init__(self, runtime: AgentRuntime, with_links: bool = False) -> None:
        """`with_links`: also read the links between the GPUs, once."""
        self._runtime = runtime
        self._links: Optional[Topology] = None if with_links else {}
        self._smi, self._leases = gpu_reader(runtime), LeaseReader(runtime)
        self._queue = QueueReader(runtime)

    def read(self, stop: Optional[threading.Event] = None) -> Sample:
        """Take a sample; blocks for up to twice TIMEOUT seconds. Raises SmiError if the GPUs cannot be read, also when
        `stop` is set."""
        # The directory service may take long: the event loop shows only names that were looked up here.
        for kernel in self._queue.read():
            procfs.user_name(kernel.uid)
        stop = stop or threading.Event()
        begin = self._runtime.monotonic()
        gpus = self._smi.read(TIMEOUT, stop)
        if self._links is None:
            self._links = self._smi.read_links(TIMEOUT, stop)
        leases = self._leases.read([gpu.uuid for gpu in gpus if gpu.uuid])
        return Sample(begin, gpus, leases, self._links, self._queue.own_notebooks())


def judge_now(runtime: AgentRuntime, needs: Requirements = ANY_GPU) -> List[Verdict]:
    """Take as many samples as verdicts need, and judge each GPU; blocks meanwhile. Raises SmiError if the GPUs cannot
    be read."""
    reader, samples = SampleReader(runtime), []
    while True:
        samples.append(reader.read())
        verdicts = judge([sample.gpus for sample in samples], needs, samples[-1].holders())
        if not any(verdict.pending for verdict in verdicts) or len(samples) == DEFAULT_CRITERIA.samples:
            return verdicts
        runtime.sleep(max(0.0, samples[-1].time + DEFAULT_CRITERIA.interval - runtime.monotonic()))


class Sampler:
    """Takes samples in a thread, one at a time, and delivers each in the event loop until `close`."""

    def __init__(self, loop: Loop, on_result: Callable[[Result], None], with_links: bool = False) -> None:
        """`on_result` gets each sample, or the error because of which there is none."""
        self._loop = loop
        self._on_result = on_result
        self._reader = SampleReader(loop.runtime, with_links)
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

    def _take(self) -> Result:
        try:
            return self._reader.read(self._closing)
        except SmiError as error:
            return error
        except OSError as error:  # no descriptors are left
            return SmiError("system", f"the GPUs and leases cannot be read: {error}", WITHOUT)
        finally:
            self._thread_ended.set()

    def _deliver(self, result: Result) -> None:
        self._sampling = False
        if not self._closing.is_set():
            self._on_result(result)
