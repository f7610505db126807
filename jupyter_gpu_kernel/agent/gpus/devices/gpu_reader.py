"""Which program reads the node's GPUs: nvidia-smi, or rocm-smi if there is no nvidia-smi."""

from __future__ import annotations

from typing import Union

from ...system.agent_runtime import AgentRuntime
from . import nvidia_smi, rocm_smi
from .gpu import AMD, NVIDIA
from .nvidia_smi import NvidiaSmi
from .rocm_smi import RocmSmi
from .smi_runner import find_program

GpuReader = Union[NvidiaSmi, RocmSmi]


def gpu_reader(runtime: AgentRuntime) -> GpuReader:
    """Return the reader for the GPUs of this node. It is not for use by several threads at a time."""
    return (RocmSmi if device_variable() == AMD else NvidiaSmi)(runtime)


def device_variable() -> str:
    """Return the name of the variable that makes this node's GPUs visible: NVIDIA or AMD in gpu.py."""
    if find_program(nvidia_smi.PROGRAM) or not find_program(rocm_smi.PROGRAM, rocm_smi.PLACES):
        return NVIDIA
    return AMD
