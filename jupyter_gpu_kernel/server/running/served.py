"""Which remote kernels this Jupyter server has: Jupyter's id of each, by ours."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...provisioner import RemoteGPUProvisioner


def served_ids(kernel_manager: Any, here: Iterable[dict[str, Any]]) -> dict[str, str]:
    """Return {our id: Jupyter's}. `here`: the hub's rows of the kernels of front ends on this machine.

    A kernel that the provisioner serves is known to it; one whose kernelspec has argv alone, to the hub.
    """
    known = set(kernel_manager.list_kernel_ids())
    by_hub = {one["id"]: one["kernel_id"] for one in here if one.get("kernel_id")}
    return {
        ours: theirs
        for ours, theirs in {**by_hub, **RemoteGPUProvisioner.served()}.items()
        if theirs in known
    }
