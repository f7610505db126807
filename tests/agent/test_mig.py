"""MIG devices: outputs of nvidia-smi as drivers of several generations print them, shortened to what is read."""

from __future__ import annotations

from typing import Any, List

import pytest

from jupyter_gpu_kernel.agent.gpus.devices.gpu import Gpu, SmiError
from jupyter_gpu_kernel.agent.gpus.devices.nvidia_smi import mig_devices

WHOLE = "GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77"
PARTED = "GPU-feba7e40-d724-01ff-b00f-3a439a28a6c7"
LISTING = f"""\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: {WHOLE})
GPU 1: NVIDIA A100-SXM4-40GB (UUID: {PARTED})
  MIG 3g.20gb     Device  0: (UUID: MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f)
  MIG 1g.5gb+me   Device  1: (UUID: MIG-cba663e8-9bed-5b25-b243-5985ef7c9beb)
"""
OLD_LISTING = f"""\
GPU 0: A100-SXM4-40GB (UUID: {PARTED})
  MIG 1g.5gb Device 0: (UUID: MIG-{PARTED}/7/0)
"""


def device(number: int, instance: int, used: str) -> str:
    return f"""<mig_device><index>{number}</index>
      <gpu_instance_id>{instance}</gpu_instance_id><compute_instance_id>0</compute_instance_id>
      <fb_memory_usage><total>20096 MiB</total><reserved>0 MiB</reserved><used>{used}</used></fb_memory_usage>
    </mig_device>"""


def process(instance: str, pid: int, name: str = "/usr/bin/python3", memory: str = "298 MiB") -> str:
    return f"""<process_info><gpu_instance_id>{instance}</gpu_instance_id><compute_instance_id>0</compute_instance_id>
      <pid>{pid}</pid><type>C</type><process_name>{name}</process_name><used_memory>{memory}</used_memory></process_info>"""


def report(devices: str, processes: str = "") -> str:
    return f"""<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
  <gpu id="00000000:07:00.0"><mig_mode><current_mig>Disabled</current_mig></mig_mode>
    <mig_devices>None</mig_devices><uuid>{WHOLE}</uuid><processes></processes></gpu>
  <gpu id="00000000:0F:00.0"><mig_mode><current_mig>Enabled</current_mig></mig_mode>
    <mig_devices>{devices}</mig_devices><uuid>{PARTED}</uuid><processes>{processes}</processes></gpu>
</nvidia_smi_log>"""


DEVICES = device(0, 2, "37 MiB") + device(1, 9, "311 MiB")


def parse(listing: str, report: str) -> List[Any]:
    """The UUID, name, memory in all and in use, and the processes with their memory, of each MIG device."""
    gpus = [
        Gpu(0, WHOLE, "A100", 40960, 9, 0, 3, "Default", "Disabled"),
        Gpu(1, PARTED, "A100", 40960, 9, 0, 3, "Default", "Enabled", warning="errors"),
    ]
    found = mig_devices(gpus, listing, report)
    for one in found:
        assert (one.index, one.parent, one.compute_mode, one.warning) == (1, PARTED, "Default", "errors")
        assert (one.utilization, one.mig_mode, one.memory_reserved_mib) == (None, None, None)
    return [
        (
            one.uuid,
            one.name,
            one.memory_total_mib,
            one.memory_used_mib,
            [one[::2][:2] for one in one.processes],
        )
        for one in found
    ]


def test_devices_and_their_processes() -> None:
    assert parse(LISTING, report(DEVICES, process("9", 4711))) == [
        ("MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f", "A100, MIG 3g.20gb, device 0", 20096, 37, []),
        (
            "MIG-cba663e8-9bed-5b25-b243-5985ef7c9beb",
            "A100, MIG 1g.5gb+me, device 1",
            20096,
            311,
            [(4711, 298)],
        ),
    ]


def test_the_names_of_old_drivers() -> None:
    found = parse(OLD_LISTING, report(device(0, 7, "11 MiB")))
    assert found == [(f"MIG-{PARTED}/7/0", "A100, MIG 1g.5gb, device 0", 20096, 11, [])]


def test_what_the_report_lacks_is_unknown() -> None:
    listed = parse(LISTING, report(device(0, 2, "[N/A]")))
    assert [one[2:] for one in listed] == [(20096, None, []), (None, None, [])]
    assert [one[2:] for one in parse(LISTING, "<nvidia_smi_log/>")] == [(None, None, [])] * 2


@pytest.mark.parametrize(
    "name", ["<gpu>", "a & b", "</process_name><pid>1</pid>", "</process_info></processes></gpu>", "x\ny"]
)
def test_the_names_of_processes_change_nothing(name: str) -> None:
    found = parse(LISTING, report(DEVICES, process("9", 4711, name) + process("2", 4712, memory="N/A")))
    assert [one[-1] for one in found] == [[(4712, None)], [(4711, 298)]]


def test_gpus_without_devices() -> None:
    assert parse("GPU 0: NVIDIA L40S (UUID: GPU-0)\n", report("")) == []


@pytest.mark.parametrize("text", ["", "Failed to initialize NVML", "<nvidia_smi_log><gpu>"])
def test_no_report(text: str) -> None:
    with pytest.raises(SmiError, match="unexpected output"):
        parse(LISTING, text)
