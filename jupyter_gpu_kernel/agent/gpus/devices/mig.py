"""MIG: the instances of a partitioned GPU, from `nvidia-smi -L` (their UUIDs) and `nvidia-smi -q -x` (their use).

The two outputs are joined by GPU and number of the instance. Whatever one of them lacks is unknown, not free.
"""

from __future__ import annotations

import dataclasses
import re
import xml.etree.ElementTree as ElementTree
from typing import Iterator, List, Optional, Sequence, Tuple

from ....wire.texts import whole_number
from .gpu import WITHOUT, Gpu, GpuProcess, SmiError, process_on_gpu

_GPU_LINE = re.compile(r"GPU \d+: .* \(UUID: (GPU-[0-9a-f-]+)\)")
# From driver 470 on a MIG device has a UUID of its own; before, it was named by its GPU and its numbers.
_INSTANCE_LINE = re.compile(r"\s+MIG (\S+)\s+Device\s+(\d+): \(UUID: (MIG-[0-9A-Za-z/-]+)\)")
# Other users choose the names of their processes: these are not read.
_PROCESS_NAME = re.compile(r"<process_name>.*?</process_name>(?=\s*<used_memory>)", re.DOTALL)
_MIB = re.compile(r"(\d+) MiB")


def mig_devices(gpus: Sequence[Gpu], listing: str, report: str) -> List[Gpu]:
    """Return the MIG devices of these GPUs.

    listing: The output of `nvidia-smi -L`.
    report: The output of `nvidia-smi -q -x`.
    Raises SmiError (driver) if the report is not such an output.
    """
    try:
        root = ElementTree.fromstring(_PROCESS_NAME.sub("", report))
    except ElementTree.ParseError as error:
        raise SmiError("driver", f"unexpected output of nvidia-smi -q -x: {error}", WITHOUT) from error
    known = {gpu.uuid: gpu for gpu in gpus}
    reports = {gpu.findtext("uuid", ""): gpu for gpu in root.iter("gpu")}
    return [
        _device(known[parent], reports.get(parent), profile, number, uuid)
        for parent, profile, number, uuid in _listed(listing)
        if parent in known
    ]


def _listed(listing: str) -> List[Tuple[str, str, str, str]]:
    """Return the lines of MIG devices: UUID of the GPU, profile, number of the device, UUID of the device."""
    found, parent = [], ""
    for line in listing.split("\n"):
        gpu, instance = _GPU_LINE.match(line), _INSTANCE_LINE.match(line)
        if gpu:
            parent = gpu[1]
        elif instance and parent:
            found.append((parent, instance[1], instance[2], instance[3]))
    return found


def _device(gpu: Gpu, report: Optional[ElementTree.Element], profile: str, number: str, uuid: str) -> Gpu:
    """Return a MIG device of a GPU, of which this is the report."""
    name = f"{gpu.name}, MIG {profile}, device {number}"
    unknown = dataclasses.replace(
        gpu, uuid=uuid, name=name, parent=gpu.uuid, mig_mode=None, utilization=None,
        memory_total_mib=None, memory_used_mib=None, memory_reserved_mib=None, processes=(),
    )  # fmt: skip
    devices = report.iterfind("mig_devices/mig_device") if report is not None else ()
    device = next((device for device in devices if device.findtext("index", "") == number), None)
    if report is None or device is None:
        return unknown
    return dataclasses.replace(
        unknown,
        memory_total_mib=_mib(device.findtext("fb_memory_usage/total")),
        memory_used_mib=_mib(device.findtext("fb_memory_usage/used")),
        processes=tuple(_processes(report, _ids(device))),
    )


def _processes(report: ElementTree.Element, ids: Tuple[str, str]) -> Iterator[GpuProcess]:
    """Yield the compute processes in the device with these ids."""
    for process in report.iterfind("processes/process_info"):
        pid = whole_number(process.findtext("pid", ""))
        if pid is not None and _ids(process) == ids:
            yield process_on_gpu(pid, _mib(process.findtext("used_memory")))


def _ids(element: ElementTree.Element) -> Tuple[str, str]:
    return element.findtext("gpu_instance_id", ""), element.findtext("compute_instance_id", "")


def _mib(text: Optional[str]) -> Optional[int]:
    match = _MIB.fullmatch((text or "").strip())
    return whole_number(match[1]) if match else None
