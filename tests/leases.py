"""Reads the leases of a node once, as a keeper reads them again and again."""

from __future__ import annotations

from collections.abc import Iterable

from jupyter_gpu_kernel.agent.gpus.lease import Holder, LeaseReader


def read_leases(uuids: Iterable[str], timeout: float = 0.3) -> dict[str, Holder]:
    """The holders of the leased GPUs among these."""
    return LeaseReader().read(uuids, timeout)
