"""Kernels on a node with AMD GPUs. Its rocm-smi prints recorded text: no AMD GPU has run this."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from pathlib import Path

import pytest
from gpu_names import new_uuid
from leases import read_leases
from practice_gpus import *  # noqa: F403 (its fixtures)
from practice_gpus import open_front
from streams import LoopThread, Node, until

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="the agent needs a POSIX system"),
]

UUIDS = sorted(new_uuid(lambda: f"GPU-0000{secrets.token_hex(6)}") for _ in range(2))
CARDS = {
    f"card{number}": {
        "Unique ID": f"0x{uuid[4:].lstrip('0')}",
        "Card series": "Arcturus GL-XL [Instinct MI100]",
        "GPU use (%)": "0",
        "VRAM Total Memory (B)": "34342961152",
        "VRAM Total Used Memory (B)": "6750208",
    }
    for number, uuid in enumerate(UUIDS)
}
SCRIPT = """#!/bin/sh
case "$*" in
    *--showpidgpus*) echo 'No KFD PIDs currently running' ;;
    *--showpids*) echo 'WARNING: No JSON data to report' ;;
    *) echo '%s' ;;
esac
"""
VISIBLE = """import os
print(*(os.environ.get(name) for name in ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")))"""


def test_each_kernel_gets_an_amd_gpu(tmp_path: Path, loop: LoopThread, stack: contextlib.ExitStack) -> None:
    program = tmp_path / "rocm-smi"
    program.write_text(SCRIPT % json.dumps(CARDS))
    program.chmod(0o755)
    with Node(PATH=f"{tmp_path}:/usr/bin:/bin") as node, contextlib.ExitStack() as inner:
        link = loop.link(node)
        remotes = [loop.kernel(link, gpus=1) for _ in range(3)]
        fronts = [open_front(loop, one, inner) for one in remotes]
        hidden = fronts[0].run(VISIBLE, store_history=False).text
        assert hidden == "  \n", "no GPU before the first cell"
        assert [front.run(VISIBLE).text.split() for front in fronts[:2]] == [
            [uuid, "0", "0"] for uuid in UUIDS
        ]
        assert [one.status["gpus"] for one in remotes[:2]] == [[uuid] for uuid in UUIDS]
        assert sorted(read_leases(UUIDS)) == UUIDS
        rows = [line.split() for line in fronts[0].run("%gpu").text.splitlines()]
        assert ["gpus", UUIDS[0]] in rows and ["gpu_names", "GPU", "0"] in [row[:3] for row in rows]
        assert "last_sigterm" not in [row[0] for row in rows], "what is empty is left out"
        rows = loop.run(link.request("gpus"))["gpus"]
        assert [(row["uuid"], row["memory_total_mib"], row["free"]) for row in rows] == [
            (uuid, 32752, False) for uuid in UUIDS
        ]
        cell = fronts[2].client.execute(VISIBLE)
        until(remotes[2], "waiting")
        loop.call(remotes[1].command, "stop")
        assert fronts[2].finish(cell).text.split() == [UUIDS[1], "0", "0"]
