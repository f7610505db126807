"""UUIDs for practice GPUs.

All processes that run tests at the same time share one node's queue of kernels that wait for GPUs. A GPU is one of 64
bits there, so kernels could wait for each other although their GPUs differ. Each process has bits of its own, and uses
them in turn: the GPUs of one test have different bits.
"""

from __future__ import annotations

import itertools
import os
import uuid
from collections.abc import Callable

from jupyter_gpu_kernel.agent.gpus.sharing.turns import gpu_bit

_PROCESSES = min(32, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))
_PROCESS = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % _PROCESSES
_BITS = itertools.cycle(1 << bit for bit in range(_PROCESS, 64, _PROCESSES))


def new_uuid(draw: Callable[[], str] = lambda: f"GPU-{uuid.uuid4()}") -> str:
    """A GPU that no other test has. `draw`: a random name of the right form."""
    bit = next(_BITS)
    return next(name for name in iter(draw, "") if gpu_bit(name) == bit)
