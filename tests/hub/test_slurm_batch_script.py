"""The batch script of a job: its options for sbatch; and run by a real bash, with an agent that prints what it got."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from jupyter_gpu_kernel.errors import SettingsError
from jupyter_gpu_kernel.hub.kernel_settings import KernelSettings
from jupyter_gpu_kernel.hub.node import install
from jupyter_gpu_kernel.hub.slurm.commands import batch_script, directives
from jupyter_gpu_kernel.settings import parse

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the script runs on the work node's bash")


def test_the_options_for_sbatch():
    settings = KernelSettings(
        gpus=2, gpu_type="a100", time="4:00:00", partition="gpu", cpus=8, mem="32G", account="p1", qos="long", nodes=2,
        sbatch=("--exclude=gpu7",),
    )  # fmt: skip
    options = directives(settings, "0f3e-1")
    assert options[:2] == ["--job-name=jgk-0f3e-1", "--no-requeue"]
    assert set(options[2:]) == {
        *("--output=/dev/null", "--signal=B:USR1@300", "--gres=gpu:a100:2"),
        *(
            "--nodes=2",
            "--ntasks-per-node=1",
            "--partition=gpu",
            "--time=4:00:00",
            "--cpus-per-task=8",
            "--mem=32G",
        ),
        *("--account=p1", "--qos=long", "--exclude=gpu7"),
    }
    assert options[-1] == "--exclude=gpu7"  # the user's own words count


def test_what_is_not_set_is_left_to_slurm():
    options = directives(KernelSettings(gpus=0, warn_before=0), "1")
    assert [one.partition("=")[0] for one in options] == ["--job-name", "--no-requeue", "--output", "--nodes"]
    assert "--signal=B:USR1@60" in directives(KernelSettings(time="3:00"), "1"), (
        "not before there is something to save"
    )
    assert "--signal=B:USR1@300" in directives(KernelSettings(time="UNLIMITED"), "1")
    assert "--signal=B:USR1@150" in directives(KernelSettings(time="3:00", warn_before=150), "1")
    assert "--signal=B:USR2@60" in directives(KernelSettings(warn_before=60.0, warn_signal="USR2"), "1")
    assert "--gres=gpu:1" in directives(KernelSettings(), "1")


def package() -> install.Package:
    """An agent that prints its arguments and a variable."""
    main = "import os, sys; print(sys.argv[1:], os.environ.get('LOADED'))"
    digest = hashlib.sha256(main.encode()).hexdigest()
    data = f"__main__.py\0{main}".encode()
    return install.Package(f"agent-{digest[:16]}", data, install.pack().install, digest)


def test_the_script_sets_up_installs_and_becomes_the_agent(tmp_path):
    setup = ["umask 022; export LOADED='a module'"]
    settings = {"python": sys.executable, "setup": setup, "env": {"TOKEN": "hunter2"}}
    script = batch_script(KernelSettings.from_json(settings), "0f3e", package())
    assert b"hunter2" not in script and script.startswith(b"#!/bin/bash -l\n#SBATCH --job-name=jgk-0f3e\n")
    tmp_path.chmod(0o700)
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "JUPYTER_GPU_KERNEL_BASE": str(tmp_path)}
    file = tmp_path / "slurm_script"
    file.write_bytes(script)
    for job_id in (f"{os.getpid()}1", f"{os.getpid()}2"):  # the second time the agent is there
        done = subprocess.run(
            ["/bin/bash", "-l", file],
            capture_output=True, text=True, env={**environ, "SLURM_JOB_ID": job_id}, timeout=60,
        )  # fmt: skip
        [output] = Path("/tmp").glob(f"jupyter-gpu-kernel-*-{job_id}.out")
        mode, text = output.stat().st_mode & 0o777, output.read_text()
        output.unlink()
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        assert (mode, text) == (0o600, "['job'] a module\n"), "its name cannot be known in advance"
    [installed] = tmp_path.glob("jupyter-gpu-kernel-*/agent-*")
    assert "print(sys.argv[1:]" in (installed / "__main__.py").read_text()


def test_a_kernelspec_without_a_python_is_refused():
    with pytest.raises(SettingsError, match="names no Python"):
        batch_script(KernelSettings(), "0f3e", package())


SLURM = {"route": ["login"], "slurm": True}


@pytest.mark.parametrize(
    "more",
    [
        {"partition": "gpu,long", "time": "4:00:00", "mem": "32G", "cpus": 8, "nodes": 2},
        {"account": "p1", "qos": "long", "sbatch": ["--constraint=a100&ib", "-x gpu7"], "share_job": True},
        {"warn_before": 3599, "time": "1:00:00"},
        {
            "warn_before": 60,
            "warn_signal": "USR2",
            "keep_job": 0,
            "way": "ssh",
            "mem": "0",
            "time": "UNLIMITED",
        },
    ],
)
def test_settings_of_slurm(more):
    settings = parse({**SLURM, **more}).to_json()
    assert settings == {**SLURM, **more, "gpus": 1}


@pytest.mark.parametrize(
    "bad",
    [
        *(
            {"time": "soon"},
            {"time": "0"},
            {"mem": "much"},
            {"cpus": -1},
            {"nodes": 0},
            {"slurm": 1},
            {"share_job": "yes"},
            {"way": "telnet"},
        ),
        *({"partition": "gpu\n#SBATCH --uid=0"}, {"account": "a b"}, {"qos": "$x"}, {"gpu_type": "a 100"}),
        *(
            {"sbatch": ["constraint"]},
            {"sbatch": ["--x\n#SBATCH --y"]},
            {"sbatch": ["--output=x"]},
            {"sbatch": ["-o x"]},
        ),
        *({"sbatch": ["--signal=B:TERM"]}, {"sbatch": ["--export=API_KEY=sk-proj-Aa1Bb2Cc3Dd4Ee5Ff6Gg7Hh8"]}),
        *(
            {"warn_signal": "KILL"},
            {"warn_before": 70000},
            {"warn_before": 3600, "time": "1:00:00"},
            {"hosts": ["a", "b"]},
            {"min_memory": "20G"},
            {"priority": 3},
        ),
    ],
)
def test_bad_settings_of_slurm(bad):
    with pytest.raises(SettingsError) as caught:
        parse({**SLURM, **bad})
    assert next(iter(bad)) in str(caught.value) and caught.value.remedy


@pytest.mark.parametrize("key", ["partition", "time", "mem", "account", "qos"])
def test_settings_of_slurm_need_slurm(key):
    with pytest.raises(SettingsError, match="“slurm” is not"):
        parse({"route": ["login"], key: "1"})
