"""Reads the node's GPUs: with nvidia-smi, or with rocm-smi if there is no nvidia-smi."""

from __future__ import annotations

import threading
from typing import List, Optional, Sequence

from ....wire.runtime import Runtime
from ...process_control import ProcessControl
from . import nvidia_smi, rocm_smi
from .gpu import Gpu
from .nvidia_smi import NvidiaSmi
from .rocm_smi import RocmSmi
from .smi_runner import find_program
from .topology import Topology
from .visible_devices import AMD, NVIDIA

TIMEOUT = nvidia_smi.TIMEOUT


class GpuReader:
    """The GPUs of one vendor. Not for use by several threads at a time."""

    def __init__(self, runtime: Runtime, processes: ProcessControl) -> None:
        self._nvidia = NvidiaSmi(runtime, processes)
        self._rocm = RocmSmi(runtime, processes)

    @property
    def lacking(self) -> List[str]:
        """The fields that the driver does not know, as far as was tried."""
        return self._nvidia.lacking

    def leave_out(self, fields: Sequence[str]) -> None:
        """Do not try these fields, as the driver does not know them: that takes one more call each."""
        self._nvidia.leave_out(fields)

    def read(self, timeout: float = TIMEOUT, stop: Optional[threading.Event] = None) -> List[Gpu]:
        """Return all GPUs, ordered by index, within `timeout` seconds. Raises SmiError, also when `stop` is set."""
        return (self._rocm if device_variable() == AMD else self._nvidia).read(timeout, stop)

    def read_links(self, timeout: float = TIMEOUT, stop: Optional[threading.Event] = None) -> Topology:
        """Return the links between the GPUs, {} if they are unknown. Raises SmiError when `stop` is set."""
        return {} if device_variable() == AMD else self._nvidia.read_links(timeout, stop)


def device_variable() -> str:
    """Return the name of the variable that makes this node's GPUs visible: NVIDIA or AMD in visible_devices.py."""
    if find_program(nvidia_smi.PROGRAM) or not find_program(rocm_smi.PROGRAM, rocm_smi.PLACES):
        return NVIDIA
    return AMD
