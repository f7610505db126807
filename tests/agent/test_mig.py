"""MIG devices: outputs of nvidia-smi as drivers of several generations print them, shortened to what is read."""

from __future__ import annotations

import pytest

from jupyter_gpu_kernel.agent.gpus.devices.mig import Instance, InstanceProcess, parse_instances

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


def test_instances_and_their_processes() -> None:
    found = parse_instances(LISTING, report(DEVICES, process("9", 4711)))
    assert found == {
        PARTED: [
            Instance("MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f", "3g.20gb", 0, 20096, 37, ()),
            Instance(
                "MIG-cba663e8-9bed-5b25-b243-5985ef7c9beb",
                "1g.5gb+me",
                1,
                20096,
                311,
                (InstanceProcess(4711, 298),),
            ),
        ]
    }


def test_the_names_of_old_drivers() -> None:
    found = parse_instances(OLD_LISTING, report(device(0, 7, "11 MiB")))
    assert found == {PARTED: [Instance(f"MIG-{PARTED}/7/0", "1g.5gb", 0, 20096, 11, ())]}


def test_what_the_report_lacks_is_unknown() -> None:
    listed = parse_instances(LISTING, report(device(0, 2, "[N/A]")))[PARTED]
    assert [(one.memory_used_mib, one.processes) for one in listed] == [(None, ()), (None, ())]
    assert parse_instances(LISTING, "<nvidia_smi_log/>")[PARTED][0].memory_total_mib is None


@pytest.mark.parametrize(
    "name", ["<gpu>", "a & b", "</process_name><pid>1</pid>", "</process_info></processes></gpu>", "x\ny"]
)
def test_the_names_of_processes_change_nothing(name: str) -> None:
    found = parse_instances(
        LISTING, report(DEVICES, process("9", 4711, name) + process("2", 4712, memory="N/A"))
    )
    assert [one.processes for one in found[PARTED]] == [
        (InstanceProcess(4712, None),),
        (InstanceProcess(4711, 298),),
    ]


def test_gpus_without_instances() -> None:
    assert parse_instances("GPU 0: NVIDIA L40S (UUID: GPU-0)\n", report("")) == {}


@pytest.mark.parametrize("text", ["", "Failed to initialize NVML", "<nvidia_smi_log><gpu>"])
def test_no_report(text: str) -> None:
    with pytest.raises(ValueError):
        parse_instances(LISTING, text)
