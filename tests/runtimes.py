"""The system's clocks and random numbers, for tests of what takes a Runtime."""

from __future__ import annotations

from functools import partial

from jupyter_gpu_kernel.wire import compose
from jupyter_gpu_kernel.wire.runtime import Runtime

RUNTIME = Runtime()
make = partial(compose.make, RUNTIME)
