"""Jupyter runs on the login node itself: Slurm's commands run here, and a step leads into the job."""

from __future__ import annotations

import shlex

import pytest
from cells import run, started
from remote import Remote
from slurm import LoopbackSlurm, Slurm
from waiting import eventually


def test_this_machine_is_the_login_node_and_a_step_leads_into_the_job(remote: Remote, slurm: Slurm) -> None:
    if not isinstance(slurm, LoopbackSlurm):
        pytest.skip("the practice cluster's login node is another machine")
    variables = [f"{name}={value}" for name, value in slurm.variables.items()]
    route = {"route": ["localhost"], "via": [shlex.join(["env", *variables])]}
    settings = remote.write("here", provisioner=True, slurm=True, gpus=1, **route).settings
    with started(remote, "here") as (_, client):
        ran = run(client, "import os; print(os.environ['SLURM_JOB_ID']); print('x' * 3_000_000)")
        job, text = ran.text.split()
        assert len(text) == 3_000_000
        assert slurm.job(job)["JobState"] == "RUNNING"
        [row] = remote.ask("ps", specs=[{"name": "here", "settings": settings.to_json()}])
        assert (row["job"]["id"], row["job"]["way"]) == (job, "srun")
    eventually(lambda: not any("|jgk-" in line for line in slurm.jobs()), "the job is cancelled")
