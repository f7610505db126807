"""Partitions as sinfo shows them, and what `add --slurm` chooses: outputs of Slurm 22.05, and other forms."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_gpu_kernel.errors import SettingsError
from jupyter_gpu_kernel.hub.kernel_settings import KernelSettings
from jupyter_gpu_kernel.hub.slurm.partitions import SlurmCluster, choose, cluster, gpus
from jupyter_gpu_kernel.hub.transport.connection import Output

SINFO = """\
cn1|cpu*|idle|(null)|0/128/0/128|257000|7-00:00:00|1-00:00:00|up
gpu1|gpu|mixed|gpu:a100:2(S:0-1)|2/14/0/16|64000|1-00:00:00|1:00:00|up
gpu2|gpu|idle|gpu:rtx3090:4|0/16/0/16|64000|1-00:00:00|1:00:00|up
gpu3|gpu|down*|gpu:rtx3090:4|0/0/16/16|64000|1-00:00:00|1:00:00|up
gpu1|long|mixed|gpu:a100:2(S:0-1)|2/14/0/16|64000|infinite|n/a|up
big1|big|allocated|gpu:a100_80gb:8,shard:16|128/0/0/128|1000000+|12:00:00|1:00:00|up
old1|old|idle|gpu:2|0/8/0/8|32000|1-00:00:00|1:00:00|down
used|gpu1|gpu:a100:1(IDX:0)
used|gpu2|gpu:rtx3090:0(IDX:N/A)
used|big1|gpu:a100_80gb:8(IDX:0-7),shard:0
memory|CPU|1000
"""


def read(text: str = SINFO) -> SlurmCluster:
    found = cluster(Output(0, tuple(text.splitlines()), ""))
    assert found is not None
    return found


def test_partitions_nodes_and_gpus_are_read():
    found = read()
    assert [one.name for one in found.partitions] == [
        "cpu",
        "big",
        "gpu",
        "long",
        "old",
    ]  # the default one first
    known = {one.name: one for one in found.partitions}
    assert known["cpu"].default and known["cpu"].kinds == [] and not known["old"].up
    assert (known["gpu"].longest, known["gpu"].limit, known["long"].longest) == (86400, "1-00:00:00", None)
    assert known["gpu"].to_json()["gpus"] == [
        {"type": "a100", "per_node": 2, "total": 2, "used": 1, "free": 1},
        {"type": "rtx3090", "per_node": 4, "total": 8, "used": 0, "free": 4},  # gpu3 does not respond
    ]
    hosts = {host.name: (host, names) for host, names in found.hosts}
    assert hosts["gpu1"][1] == ["gpu", "long"] and len(hosts) == 6
    assert hosts["big1"][0].memory_mib == 1000000 and hosts["big1"][0].cpus_used == 128
    assert found.memory == "1000 MiB for each CPU"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("(null)", {}),
        ("gpu:2", {"": 2}),
        ("gpu:a100:2(S:0-1)", {"a100": 2}),
        ("gpu:a100:3(IDX:0-1,3),gpu:h100:1(IDX:0)", {"a100": 3, "h100": 1}),
        ("gpu:1g.5gb:7,gpu:a100:1,mps:100", {"1g.5gb": 7, "a100": 1}),
        ("gpu:a100:2(IDX:N/A)", {"a100": 2}),
        ("gpu:\x1b[2J:2,gpu:x:99999999", {}),
    ],
)
def test_generic_resources(text, found):
    assert gpus(text) == found


def test_malformed_rows_are_left_out():
    assert read("$(id)|gpu|idle|gpu:1|0/1/0/1|1|1:00:00|1:00:00|up\ngpu1|a b|idle|").partitions == ()
    assert cluster(Output(1, (), "error")) is None


CHOICES = [
    (
        {},
        {"partition": "gpu", "time": "4:00:00"},
        "as cpu, the default, cannot run such a job: it has no GPUs",
    ),
    ({"gpus": 0}, {"partition": "cpu", "time": "4:00:00"}, "the cluster's default"),
    (
        {"gpu_type": "3090"},
        {"partition": "gpu", "gpu_type": "rtx3090", "time": "4:00:00"},
        "cannot run such a job",
    ),
    (
        {"gpu_type": "A100", "partition": "gpu"},
        {"partition": "gpu", "gpu_type": "a100", "time": "4:00:00"},
        "1000 MiB",
    ),
    ({"gpus": 2, "gpu_type": "a100", "time": "3-0"}, {"partition": "long", "gpu_type": "a100"}, "cannot run"),
    ({"gpus": 8, "time": "10:00:00", "mem": "64G"}, {"partition": "big"}, "cannot run such a job"),
    ({"partition": "gpu,long", "time": "30"}, {"partition": "gpu,long"}, "1000 MiB"),
    ({"partition": "gpu", "time": "1-0"}, {"partition": "gpu"}, "1000 MiB"),  # the partition's limit
    ({"partition": "gpu", "nodes": 2}, {"partition": "gpu", "time": "4:00:00"}, "time limit is 4:00:00"),
]


@pytest.mark.parametrize(("settings", "chosen", "note"), CHOICES)
def test_what_is_chosen(settings: dict[str, Any], chosen: dict[str, Any], note: str):
    choice = choose(read(), KernelSettings.from_json({"gpus": 1, **settings}), "login")
    assert choice.settings == chosen and note in " ".join(choice.notes)


REFUSED = [
    ({"partition": "nosuch"}, "no partition nosuch", "cpu (the default), big, gpu, long, old"),
    ({"partition": "cpu"}, "it has no GPUs", "gpu: 2 a100 a node, 4 rtx3090 a node"),
    ({"partition": "old"}, "it is not in use", "--partition"),
    ({"partition": "gpu", "time": "2-0"}, "its time limit is 1-00:00:00", "--time"),
    ({"partition": "gpu", "time": "UNLIMITED"}, "its time limit is 1-00:00:00", "--time"),
    ({"partition": "gpu", "gpu_type": "h100"}, "no type of GPU h100 in the partition gpu", "a100, rtx3090"),
    ({"gpu_type": "00"}, "several types of GPU contain 00", "a100, a100_80gb"),
    ({"partition": "gpu", "gpus": 8}, "at most 4 GPUs of one type", "--gpus"),
    ({"partition": "gpu", "gpus": 3, "gpu_type": "a100"}, "at most 2 GPUs of the type a100", "--gpus"),
    ({"partition": "gpu", "gpu_type": "a100", "nodes": 2}, "it has 1 such nodes", "--nodes"),
    ({"gpus": 9}, "could never run here: cpu: it has no GPUs", "--gpus"),
]


@pytest.mark.parametrize(("settings", "cause", "remedy"), REFUSED)
def test_what_can_never_run_is_refused_with_the_valid_values(settings, cause, remedy):
    with pytest.raises(SettingsError) as caught:
        choose(read(), KernelSettings.from_json({"gpus": 1, **settings}), "login")
    assert cause in caught.value.cause and remedy in caught.value.remedy and caught.value.hop == "login"


def test_a_cluster_whose_types_are_unknown():
    text = "n1|gpu*|idle|gpu:2|0/8/0/8|32000|1-00:00:00|1:00:00|up"
    assert choose(read(text), KernelSettings(gpus=2), "login").settings["partition"] == "gpu"
    with pytest.raises(SettingsError, match=r"no type of GPU a100[\s\S]*leave out --gpu-type"):
        choose(read(text), KernelSettings(gpus=2, gpu_type="a100"), "login")
