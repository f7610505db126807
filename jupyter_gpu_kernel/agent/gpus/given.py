"""The GPUs that a scheduler has given to the job in which a kernel runs: used as they are, without samples or leases.

Their variables stay as the scheduler set them. Only their names are read, for what users see.
"""

from __future__ import annotations

import os
from typing import Callable, Dict, List, Tuple

from ..kernel_context import KernelContext
from .devices.gpu import Gpu, SmiError
from .devices.gpu_reader import GpuReader, device_variable
from .judge import allowed_gpus


class GivenGpus:
    """`read()` calls `on_named(uuids)` and then `on_read()`, once. Outside of a job it does nothing."""

    def __init__(
        self,
        context: KernelContext,
        on_named: Callable[[List[str]], None],
        on_read: Callable[[], None],
    ) -> None:
        self.in_job = bool(context.settings.now.job)
        self.names: Dict[str, str] = {}
        """"GPU 0 (NVIDIA A100)", by UUID."""
        self._loop, self._processes = context.loop, context.processes
        self._on_named = on_named
        self._on_read = on_read
        self._begun = False

    def read(self) -> None:
        """Read the names in a thread, unless that was done."""
        if not self.in_job or self._begun:
            return
        self._begun = True
        words = allowed_gpus(os.environ, device_variable()) or []
        if words:
            self._loop.run_in_thread(lambda: self._read(words), self._done)

    def _read(self, words: List[str]) -> Dict[str, str]:
        """The names of these GPUs by UUID; a GPU that cannot be read has the word that Slurm gave."""
        try:
            gpus = GpuReader(self._loop.runtime, self._processes).read()
        except SmiError:
            gpus = []
        return dict(_named(word, gpus) for word in words)

    def _done(self, names: Dict[str, str]) -> None:
        self.names = names
        self._on_named(list(names))
        self._on_read()


def _named(word: str, gpus: List[Gpu]) -> Tuple[str, str]:
    found = next((gpu for gpu in gpus if gpu.is_named(word)), None)
    return (word, word) if found is None else (found.uuid, str(found))
