"""The kernels of `jupyter gpu-kernel serve`, without any node."""

from __future__ import annotations

import asyncio
from typing import Any

from jupyter_gpu_kernel.server.serve.delivery import CellDelivery
from jupyter_gpu_kernel.server.serve.kernels import RemoteKernels


class Kernels(RemoteKernels):
    """`started`: the kernels that start, or have started. They start when `answers` is set; “fast” starts at once."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = {name: {"id": name, "name": "spec"} for name in ("slow", "fast")}
        self.answers = asyncio.Event()
        self.started: list[str] = []

    async def start_kernel(self, *, kernel_id: str, **options: Any) -> str:  # type: ignore[override]
        self.started.append(kernel_id)
        if kernel_id == "slow":
            await self.answers.wait()
        self._kernels[kernel_id] = object()
        return kernel_id


def test_a_kernel_that_is_slow_to_attach_to_delays_no_other_and_is_attached_once() -> None:
    async def attach() -> list[str]:
        kernels = Kernels()
        slow = [asyncio.ensure_future(kernels.attach("slow")) for _ in range(2)]
        await asyncio.sleep(0)
        await asyncio.wait_for(kernels.attach("fast"), 10)
        kernels.answers.set()
        await asyncio.gather(*slow)
        return kernels.started

    assert asyncio.run(attach()) == ["slow", "fast"]


def test_what_the_page_of_a_kernel_missed_is_forgotten_when_the_kernel_ends() -> None:
    kernels = RemoteKernels()
    kernels.deliveries["ended"] = CellDelivery()
    kernels.remove_kernel("ended")
    assert not kernels.deliveries
