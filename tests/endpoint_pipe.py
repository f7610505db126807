"""A pair of endpoints, and the frames between them."""

from __future__ import annotations

from jupyter_gpu_kernel.wire.stream.endpoint import Endpoint
from jupyter_gpu_kernel.wire.stream.frames import Frame


class Pipe:
    """Two ends and the frames between them; a cut loses what is on its way."""

    def __init__(self, hub: Endpoint, keeper: Endpoint) -> None:
        self.ends = (hub, keeper)
        self.got: tuple[list[bytes], list[bytes]] = ([], [])
        self.way: tuple[list[Frame], list[Frame]] = ([], [])
        self.steps = 0

    def connect(self) -> None:
        for end in self.ends:
            end.opened(3)

    def cut(self) -> None:
        for end, way in zip(self.ends, self.way, strict=True):
            end.closed()
            way.clear()

    def step(self, side: int, deliver: int) -> None:
        """One end writes what it may; at most `deliver` frames reach it. Each third time it acknowledges anyway."""
        self.steps += 1
        if self.steps % 3 == 0:
            self.ends[side].acknowledge()
        self.way[1 - side].extend(self.ends[side].outgoing())
        for _ in range(min(deliver, len(self.way[side]))):
            self.got[side].extend(self.ends[side].receive(self.way[side].pop(0)))

    def settle(self) -> None:
        for _ in range(100_000):
            self.step(0, 50)
            self.step(1, 50)
            if not any(self.way) and not any(end.outbox.size for end in self.ends):
                return
        raise AssertionError(f"never at rest: {self.ends}")
