"""Reads the node's NVIDIA GPUs with `nvidia-smi`, also when one of them is lost or in MIG mode.

The instances of a GPU in MIG mode are from `nvidia-smi -L` (their UUIDs) and `nvidia-smi -q -x` (their use), which are
joined by GPU and number of the instance. Whatever one of them lacks is unknown, not free. This module knows no leases
and no kernels, and not which GPUs count as free.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import threading
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Iterator, List, Optional, Sequence, Tuple

from ....wire.texts import one_line, whole_number
from ...system.agent_runtime import AgentRuntime
from ...system.procfs import read_text
from .gpu import WITHOUT, Gpu, GpuProcess, SmiError, process_on_gpu
from .nvidia_csv import INVALID_FIELD, NO_DEVICES, OPTIONAL, app_query, checked, fields_of, parse, query
from .smi_runner import TIMEOUT, SmiOutput, SmiRunner
from .topology import Topology, parse_topology

_GPU_LINE = re.compile(r"GPU \d+: .* \(UUID: (GPU-[0-9a-f-]+)\)")
# From driver 470 on a MIG device has a UUID of its own; before, it was named by its GPU and its numbers.
_INSTANCE_LINE = re.compile(r"\s+MIG (\S+)\s+Device\s+(\d+): \(UUID: (MIG-[0-9A-Za-z/-]+)\)")
# Other users choose the names of their processes: these are not read.
_PROCESS_NAME = re.compile(r"<process_name>.*?</process_name>(?=\s*<used_memory>)", re.DOTALL)
_MIB = re.compile(r"(\d+) MiB")
PROGRAM = "nvidia-smi"
_MAX_GPUS = 32  # the indices to try when a lost GPU makes nvidia-smi refuse to list any
_AT_ONCE = 8  # each call may take seconds
_LOST = re.compile(r"^.*(?:Unable to determine the device handle|(?<!\[)GPU is lost).*$", re.MULTILINE)
_VERSION = Path("/proc/driver/nvidia/version")


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


class NvidiaSmi:
    """The node's nvidia-smi, and what is known of it: the fields it lacks, the GPUs it has lost.

    Not for use by several threads at a time.
    """

    def __init__(self, runtime: AgentRuntime) -> None:
        self._runtime = runtime
        self._runner = SmiRunner(runtime, PROGRAM)
        self._fields = fields_of(read_text(_VERSION))
        self._only: List[str] = []  # the indices to query if a GPU is lost; empty: all
        self._lost: List[Gpu] = []

    def read(self, timeout: float = TIMEOUT, stop: Optional[threading.Event] = None) -> List[Gpu]:
        """Return all GPUs, ordered by index, within `timeout` seconds. Raises SmiError, also when `stop` is set."""
        deadline = self._runtime.monotonic() + timeout
        run = functools.partial(self._runner.run, deadline=deadline, stop=stop or threading.Event())
        isolated = False
        while True:
            # Both run at once, so that the two answers describe the same moment.
            gpus, apps = run([query("gpu", self._fields, self._only), app_query(self._only)])
            invalid = INVALID_FIELD.search(gpus.text)
            if invalid and invalid[1] in OPTIONAL and invalid[1] in self._fields:
                self._fields.remove(invalid[1])
            elif not isolated and _LOST.search(gpus.text + apps.text):
                self._isolate(run)
                isolated = True
            else:
                break
        found = parse(checked(*gpus), checked(*apps), self._fields) + self._lost
        if any(gpu.mig_mode == "Enabled" for gpu in found):
            listing, report = run([["-L"], ["-q", "-x"]])
            found += mig_devices(found, checked(*listing), checked(*report))
        return sorted(found, key=lambda gpu: (gpu.index, bool(gpu.parent)))

    def read_links(self, timeout: float = TIMEOUT, stop: Optional[threading.Event] = None) -> Topology:
        """Return the links between the GPUs, {} if nvidia-smi cannot tell. Raises SmiError when `stop` is set."""
        deadline = self._runtime.monotonic() + timeout
        try:
            (answer,) = self._runner.run([["topo", "-m"]], deadline, stop or threading.Event())
        except SmiError as error:
            if error.code == "stopped":
                raise
            return {}
        return parse_topology(answer.text)

    def _isolate(self, run: functools.partial[List[SmiOutput]]) -> None:
        """Query the GPUs one by one, as nvidia-smi shows none if a lost one is among them."""
        self._only, self._lost = [], []
        for first in range(0, _MAX_GPUS, _AT_ONCE):
            indices = range(first, first + _AT_ONCE)
            answers = run([query("gpu", self._fields, [str(index)]) for index in indices])
            for index, answer in zip(indices, answers):
                lost = _LOST.search(answer.text)
                if lost:
                    problem = f"the driver has lost it: {one_line(lost[0])}"
                    self._lost.append(Gpu(index, "", "?", problem=problem))
                elif NO_DEVICES not in answer.text:
                    self._only.append(str(index))
            if NO_DEVICES in answers[-1].text:
                break
        if not self._only:
            self._lost = []
            raise SmiError(
                "driver", "the driver has lost the node's GPUs", f"The node needs a reboot. {WITHOUT}"
            )
