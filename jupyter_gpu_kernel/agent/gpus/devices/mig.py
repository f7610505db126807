"""MIG: the instances of a partitioned GPU, from `nvidia-smi -L` (their UUIDs) and `nvidia-smi -q -x` (their use).

Pure functions. The two outputs are joined by GPU and number of the instance. Whatever one lacks is unknown, not free.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from typing import Dict, List, NamedTuple, Optional, Tuple

from ....wire.texts import whole_number

_GPU_LINE = re.compile(r"GPU \d+: .* \(UUID: (GPU-[0-9a-f-]+)\)")
# From driver 470 on a MIG device has a UUID of its own; before, it was named by its GPU and its numbers.
_INSTANCE_LINE = re.compile(r"\s+MIG (\S+)\s+Device\s+(\d+): \(UUID: (MIG-[0-9A-Za-z/-]+)\)")
# Other users choose the names of their processes: these are not read.
_PROCESS_NAME = re.compile(r"<process_name>.*?</process_name>(?=\s*<used_memory>)", re.DOTALL)
_MIB = re.compile(r"(\d+) MiB")


class InstanceProcess(NamedTuple):
    """A compute process in an instance. `memory_mib`: None if unknown."""

    pid: int
    memory_mib: Optional[int]


class Instance(NamedTuple):
    """One MIG device. `profile`: as NVIDIA writes it ("3g.20gb"); `number`: on its GPU; memory: None if unknown."""

    uuid: str
    profile: str
    number: int
    memory_total_mib: Optional[int]
    memory_used_mib: Optional[int]
    processes: Tuple[InstanceProcess, ...]


def parse_instances(listing: str, report: str) -> Dict[str, List[Instance]]:
    """Return the MIG devices of each GPU, by the UUID of the GPU.

    listing: The output of `nvidia-smi -L`.
    report: The output of `nvidia-smi -q -x`.
    Raises ValueError if the report is not such an output.
    """
    try:
        root = ElementTree.fromstring(_PROCESS_NAME.sub("", report))
    except ElementTree.ParseError as error:
        raise ValueError(f"not a report of nvidia-smi: {error}") from error
    used = {gpu.findtext("uuid", ""): gpu for gpu in root.iter("gpu")}
    instances: Dict[str, List[Instance]] = {}
    for parent, profile, number, uuid in _listed(listing):
        instances.setdefault(parent, []).append(_instance(uuid, profile, number, used.get(parent)))
    return instances


def _listed(listing: str) -> List[Tuple[str, str, str, str]]:
    """The lines of MIG devices: UUID of the GPU, profile, number of the device, UUID of the device."""
    found, parent = [], ""
    for line in listing.split("\n"):
        gpu, instance = _GPU_LINE.match(line), _INSTANCE_LINE.match(line)
        if gpu:
            parent = gpu[1]
        elif instance and parent:
            found.append((parent, instance[1], instance[2], instance[3]))
    return found


def _instance(uuid: str, profile: str, number: str, gpu: Optional[ElementTree.Element]) -> Instance:
    devices = gpu.iterfind("mig_devices/mig_device") if gpu is not None else ()
    device = next((device for device in devices if device.findtext("index", "") == number), None)
    if gpu is None or device is None:
        return Instance(uuid, profile, int(number), None, None, ())
    ids = _ids(device)
    processes = [process for process in gpu.iterfind("processes/process_info") if _ids(process) == ids]
    return Instance(
        uuid,
        profile,
        int(number),
        _mib(device.findtext("fb_memory_usage/total")),
        _mib(device.findtext("fb_memory_usage/used")),
        tuple(
            InstanceProcess(pid, _mib(process.findtext("used_memory")))
            for process in processes
            for pid in [whole_number(process.findtext("pid", ""))]
            if pid is not None
        ),
    )


def _ids(element: ElementTree.Element) -> Tuple[str, str]:
    return element.findtext("gpu_instance_id", ""), element.findtext("compute_instance_id", "")


def _mib(text: Optional[str]) -> Optional[int]:
    match = _MIB.fullmatch((text or "").strip())
    return whole_number(match[1]) if match else None
