"""Takes and reads leases of this node, as keepers do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from runtimes import RUNTIME

from jupyter_gpu_kernel.agent.gpus.announcements import Details
from jupyter_gpu_kernel.agent.gpus.lease import Holder, Lease, LeaseReader, LeaseTaker


def take_lease(uuid: str, identity: Mapping[str, Any], details: Details = dict) -> Lease | None:
    """The lease of one GPU; None if another process holds it."""
    return LeaseTaker(RUNTIME, identity, details).take(uuid)


def read_leases(uuids: Iterable[str], timeout: float = 0.3) -> dict[str, Holder]:
    """The holders of the leased GPUs among these."""
    return LeaseReader(RUNTIME).read(uuids, timeout)
