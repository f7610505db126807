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


CLEAR = ("iopub", [b"clear"])


def begun(size: int) -> CellDelivery:
    """A cell of which the page has received one message of so many bytes, and not the next one."""
    delivery = CellDelivery()
    delivery.continue_at("first")
    delivery.sent_cells["cell"] = None
    delivery.begin({"msg_id": "cell"}, "session", CLEAR)
    delivery.add(("iopub", [b"1" * size]), is_idle=False)
    delivery.add(("iopub", [b"2"]), is_idle=False)
    delivery.confirm(1)
    return delivery


def test_only_another_page_gets_what_the_page_before_has_received() -> None:
    delivery = begun(1)
    delivery.continue_at("first")
    assert delivery.unconfirmed == [("iopub", [b"2"])]
    delivery.continue_at("second")
    assert delivery.unconfirmed == [CLEAR, ("iopub", [b"1"]), ("iopub", [b"2"])]


def test_of_a_cell_with_much_output_the_next_page_gets_what_was_not_received() -> None:
    delivery = begun(20 * 1024 * 1024)
    delivery.continue_at("second")
    assert delivery.unconfirmed == [("iopub", [b"2"])]


def test_nothing_is_kept_of_a_cell_that_a_page_has_received_to_its_end() -> None:
    delivery = begun(1)
    delivery.add(("shell", [b"reply"]), is_idle=False)
    delivery.add(("iopub", [b"idle"]), is_idle=True)
    delivery.confirm(3)
    delivery.continue_at("second")
    assert delivery.is_finished and not delivery.unconfirmed
