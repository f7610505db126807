"""The first reading of a kernel's GPUs: `attach` begins it while the keeper is still being started.

The keeper gets the reading end of a pipe with its settings, and takes the reading as the first one of its own. If no
reading comes in time, the keeper reads the GPUs itself. Both ends are the same program, so the reading is a pickle.
This module does not know which GPUs count as free.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import threading
from typing import Iterator, List, NamedTuple, Optional

from ...wire.runtime import Runtime
from ..kernel_settings import KernelSettings
from ..system.process_control import ProcessControl
from .allocation import Allocation
from .devices.gpu import Gpu, SmiError
from .devices.gpu_reader import gpu_reader

_MAX_SIZE = 60_000
"""Bytes of a reading: a pipe holds them, so that the writer never waits for the keeper."""
_TIMEOUT = 5.0
"""Seconds that the keeper waits for a reading that neither comes nor fails."""
_POLL_INTERVAL = 0.05


class Reading(NamedTuple):
    """All GPUs at one moment. `time`: of the monotonic clock, when the reading began."""

    time: float
    gpus: List[Gpu]


class EarlyReadings:
    """The end of `attach`: begins the readings for all keepers that are started here."""

    def __init__(self, runtime: Runtime, processes: ProcessControl) -> None:
        self._runtime = runtime
        self._processes = processes

    @contextlib.contextmanager
    def begin(self, settings: KernelSettings) -> Iterator[List[int]]:
        """Begin to read the GPUs for a kernel with these settings, in a thread; yield the descriptors for its keeper:
        one, or none if the keeper reads no GPUs, or in another environment."""
        if settings.job or settings.setup or not (settings.gpus and not Allocation.current().uuids):
            yield []
            return
        read_fd, write_fd = os.pipe()
        threading.Thread(target=self._write, args=(write_fd,), daemon=True).start()
        try:
            yield [read_fd]
        finally:
            os.close(read_fd)

    def _write(self, descriptor: int) -> None:
        """Read the GPUs, and write the reading to the pipe; nothing if that fails: the keeper finds out why."""
        begin, reader = self._runtime.monotonic(), gpu_reader(self._runtime, self._processes)
        with os.fdopen(descriptor, "wb", buffering=0) as pipe, contextlib.suppress(SmiError, OSError):
            data = pickle.dumps(Reading(begin, reader.read()))
            if len(data) <= _MAX_SIZE:
                pipe.write(data)


class EarlyReading:
    """The keeper's end: the reading that `attach` has begun, which can be taken once."""

    def __init__(self, runtime: Runtime, descriptor: int) -> None:
        """`descriptor`: the pipe's reading end; -1 if `attach` has begun no reading."""
        self._runtime = runtime
        self._descriptor = descriptor

    def take(self, stop: threading.Event) -> Optional[Reading]:
        """Return the reading; None if `attach` has begun none, or it fails. Blocks for some seconds at the most."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor < 0:
            return None
        deadline, data = self._runtime.monotonic() + _TIMEOUT, b""
        with os.fdopen(descriptor, "rb", buffering=0) as pipe:
            while len(data) <= _MAX_SIZE:
                if select.select([pipe], [], [], _POLL_INTERVAL)[0]:
                    more = pipe.read(_MAX_SIZE)
                    if not more:
                        return _loaded(data)
                    data += more
                elif stop.is_set() or self._runtime.monotonic() > deadline:
                    break
        return None


def _loaded(data: bytes) -> Optional[Reading]:
    """Return the reading in these bytes; None if `attach` has written none, or not the whole of it."""
    try:
        reading: Reading = pickle.loads(data)
    except (EOFError, pickle.UnpicklingError):
        return None
    return reading
