"""The system's clocks and random numbers, for tests of what takes a runtime; and a clock that the test moves."""

from __future__ import annotations

import threading
from functools import partial

from jupyter_gpu_kernel.agent.system.agent_runtime import AgentRuntime
from jupyter_gpu_kernel.agent.system.loop import Loop
from jupyter_gpu_kernel.wire.kernel_messages import compose

RUNTIME = AgentRuntime()
make = partial(compose.make, RUNTIME)


class Clock(AgentRuntime):
    """Time passes only when the test sets `seconds`, or when its thread sleeps; other threads really sleep."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 1000.0
        self._thread = threading.get_ident()

    def monotonic(self) -> float:
        return self.seconds

    def time(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        if threading.get_ident() == self._thread:
            self.seconds += seconds
        else:
            super().sleep(seconds)


class ManualLoop(Loop):
    """A keeper's loop, with a clock that passes in `advance`. `stopped`: somebody called `stop`."""

    def __init__(self) -> None:
        self.clock = Clock()
        super().__init__(self.clock)
        self.stopped = False

    def stop(self) -> None:
        self.stopped = True

    def advance(self, seconds: float = 0.0) -> None:
        """Let that much time pass, and run what is ready or due then."""
        self.clock.seconds += seconds
        self.later(0, super().stop)
        self.run()
