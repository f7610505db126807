"""The variables that say which GPUs a process may use: CUDA's, and those of ROCm.

ROCm's HIP reads HIP_VISIBLE_DEVICES, or CUDA_VISIBLE_DEVICES in its place, after ROCR_VISIBLE_DEVICES, and numbers the
GPUs that this has left from 0 on. So the first two count these GPUs, and only ROCR_VISIBLE_DEVICES names them: torch
reads all three. Pure functions.
"""

from __future__ import annotations

import re
from typing import Dict, List, Mapping, Sequence

NVIDIA, AMD = "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"
"""The variable that names the GPUs, of either vendor."""
_NUMBERED = re.compile(r"AMD-(\d+)")
_AMD_UUID = re.compile(r"GPU-[0-9a-f]{16}|AMD-\d+")  # NVIDIA's are longer


def amd_uuid(unique_id: int, number: int) -> str:
    """Return the UUID of an AMD GPU as ROCm writes it. `number`: its number on the node, if `unique_id` is 0 (none)."""
    return f"GPU-{unique_id:016x}" if unique_id else f"AMD-{number}"


def is_amd(uuid: str) -> bool:
    """Return whether this is the UUID of an AMD GPU."""
    return _AMD_UUID.fullmatch(uuid) is not None


def variables(uuids: Sequence[str], variable: str) -> Dict[str, str]:
    """Return the environment in which exactly these GPUs are visible, in this order. `variable`: NVIDIA or AMD."""
    if variable == NVIDIA:
        return {NVIDIA: ",".join(uuids), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    numbers = ",".join(map(str, range(len(uuids))))
    names = ",".join(_NUMBERED.sub(r"\1", uuid) for uuid in uuids)
    return {AMD: names, "HIP_VISIBLE_DEVICES": numbers, NVIDIA: numbers}


def visible_uuids(environ: Mapping[str, str], variable: str) -> List[str]:
    """Return the GPUs that `variables` has made visible."""
    words = [word for word in environ.get(variable, "").split(",") if word]
    return [f"AMD-{word}" if variable == AMD and word.isdigit() else word for word in words]
