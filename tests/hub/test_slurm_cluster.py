"""The Slurm of the tests (tests/slurm.py) does what tests of kernels in jobs rely on."""

from __future__ import annotations

import subprocess

from slurm import Slurm
from waiting import DEADLINE


def ssh(slurm: Slurm, host: str, command: str) -> str:
    words = ["ssh", "-F", slurm.settings["config"], host, command]
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=DEADLINE).stdout


def test_the_login_node_has_slurms_commands_and_leads_to_a_jobs_node(slurm: Slurm) -> None:
    script = '#!/bin/bash -l\necho "gpus=$CUDA_VISIBLE_DEVICES" > "$HOME/seen"; exec sleep 100\n'
    options = f"--parsable --output=/dev/null --no-requeue --gres=gpu:2 --nodelist={slurm.nodes[0]}"
    job = ssh(slurm, "login", f"printf '{script}' | sbatch {options}").strip()
    assert slurm.wait_for(job, "RUNNING")["BatchHost"] == slurm.nodes[0]
    assert (
        ssh(slurm, slurm.nodes[0], "cd; until test -s seen; do sleep 0.1; done; cat seen; rm seen")
        == "gpus=0,1\n"
    )
    slurm.run("scancel", job)
    slurm.wait_for(job, "CANCELLED")


def test_a_job_loses_its_node(slurm: Slurm) -> None:
    job = slurm.submit("exec sleep 100", "--no-requeue", f"--nodelist={slurm.nodes[1]}", "--output=/dev/null")
    slurm.wait_for(job, "RUNNING")
    slurm.lose(slurm.nodes[1])
    slurm.wait_for(job, "NODE_FAIL")
