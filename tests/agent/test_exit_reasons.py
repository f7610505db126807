"""Every way a kernel can end, from the facts to the words; and the files that some of the facts come from."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from practice_gpus import PROGRAMS
from runtimes import RUNTIME
from waiting import DEADLINE, eventually

from jupyter_gpu_kernel.agent.exit import node_checks
from jupyter_gpu_kernel.agent.exit.node_checks import (
    Cgroup,
    gpu_problem,
    kills_sessions,
    memory_daemon,
    node_mib,
    node_oom_kills,
    scheduler_job,
    unwritable_folders,
)
from jupyter_gpu_kernel.agent.exit.reason import EndFacts, KeeperFacts, crash_site, explain, explain_keeper
from jupyter_gpu_kernel.agent.gpus.devices.gpu_reader import gpu_reader

KILLED, TERMED, SEGFAULT, ABORTED, BUS = -9, -15, -11, -6, -7
ROOT = {"kind": "root", "pid": 7, "uid": 0, "user": "root", "command": "reaper", "clock": "12:00:00"}
SLURM = dict(ROOT, kind="scheduler", command="slurmstepd", action="survived", in_use=True)
EARLYOOM = dict(ROOT, kind="memory", user="nobody", command="earlyoom", action="survived", in_use=True)


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (EndFacts(0, requested="restart"), ["restarted"]),
        (EndFacts(KILLED, requested="shutdown", stop_reason="idle for 2 h"), ["shut down", "idle for 2 h"]),
        (EndFacts(KILLED, signal_sent=9), ["its front end", "SIGKILL"]),
        (
            EndFacts(KILLED, cgroup_oom_kills=1, node_oom_kills=1, limit_mib=2048),
            ["the limit of 2.0 GiB", "--mem"],
        ),
        (
            EndFacts(KILLED, cgroup_oom_kills=1),
            ["the node had no memory left", "oom_kill", "smaller batches"],
        ),
        (EndFacts(KILLED, node_oom_kills=1), ["probably out of memory"]),
        (EndFacts(KILLED, sigterm=EARLYOOM), ["earlyoom killed it", "12:00:00"]),
        (EndFacts(KILLED, memory_daemon="earlyoom", memory_available=0.04), ["probably earlyoom", "only 4%"]),
        (EndFacts(KILLED, memory_available=0.04), ["probably because memory was short", "only 4%"]),
        (EndFacts(KILLED, memory_daemon="earlyoom", memory_available=0.5), ["unknown sender"]),
        (
            EndFacts(KILLED, sigterm=SLURM, job="Slurm job 17"),
            ["the scheduler", "the end of Slurm job 17", "slurmstepd"],
        ),
        (EndFacts(KILLED, sigterm=dict(SLURM, kind="container")), ["the container's runtime"]),
        (EndFacts(KILLED, job="Slurm job 17"), ["with Slurm job 17", "sacct"]),
        (EndFacts(KILLED), ["unknown sender", "administrators"]),
        (
            EndFacts(TERMED, sigterm=dict(ROOT, action="ended", in_use=False)),
            ["root (pid 7, reaper)", "not in use", "hold()"],
        ),
        (
            EndFacts(TERMED, sigterm=dict(ROOT, kind="owner", action="ended", in_use=True)),
            ["a second SIGTERM", "5 s"],
        ),
        (EndFacts(TERMED, sigterm=dict(EARLYOOM, action="ended")), ["earlyoom ended it", "memory was short"]),
        (EndFacts(TERMED, guard=False), ["the guard was off"]),
        (
            EndFacts(SEGFAULT, stderr="Fatal Python error: Segmentation fault\n\n"),
            ["segmentation fault", "which library"],
        ),
        (EndFacts(ABORTED), ["abort"]),
        (
            EndFacts(BUS, unwritable=["/dev/shm: No space left on device"]),
            ["bus error", "/dev/shm: No space", "Make room"],
        ),
        (
            EndFacts(ABORTED, gpu_problem="GPU 3 has fallen off"),
            ["abort", "GPU 3 has fallen off", "administrators"],
        ),
        (EndFacts(0), ["exit()", "status 0"]),
        (
            EndFacts(3, stderr="Traceback (most recent call last):\n  x\nOSError: gone"),
            ["status 3", "OSError: gone"],
        ),
        (
            EndFacts(1, unwritable=["/home/ada: Disk quota exceeded"]),
            ["status 1", "Disk quota exceeded", "Make room"],
        ),
        (EndFacts(-signal.SIGHUP), ["SIGHUP"]),
        (EndFacts(-40), ["signal 40"]),
    ],
)
def test_a_death_in_words(facts, words):
    death = explain(facts)
    assert [word for word in words if word not in str(death)] == [], str(death)
    assert death.cause and not death.cause.endswith(".") and not death.evidence.endswith(".")


def test_a_memory_shortage_is_not_blamed_for_what_its_user_asked():
    assert "memory" not in str(
        explain(EndFacts(KILLED, requested="restart", cgroup_oom_kills=3, memory_available=0.01))
    )


def test_the_site_of_a_crash():
    trace = textwrap.dedent("""\
        an earlier line
        Fatal Python error: Segmentation fault

        Thread 0x00007f01 (most recent call first):
          File "/usr/lib/python3/threading.py", line 9 in wait

        Current thread 0x00007f02 (most recent call first):
          File "/venv/lib/torch/cuda.py", line 519 in launch
          File "/tmp/ipykernel_7/123.py", line 3 in step
          File "/venv/lib/IPython/core/interactiveshell.py", line 3823 in run_code
          File "/usr/lib/python3/runpy.py", line 1 in run

        Extension modules: numpy (total: 1)
        """)
    site = "Segmentation fault ← launch (/venv/lib/torch/cuda.py, line 519) ← step (the cell, line 3)"
    assert crash_site(trace) == site
    assert crash_site("Fatal Python error: Aborted\n\n<no Python frame>\n") == "Aborted"
    assert crash_site("nothing of that kind") == ""


START = {"event": "start", "boot": "b1", "cgroup": "/user.slice/user-1000.slice/session-4.scope"}
TERM = {"event": "signal", "text": "the keeper got SIGTERM and stays"}


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (KeeperFacts(START, {}, "b2", "at 10:00"), ["rebooted at 10:00", "boot id"]),
        (KeeperFacts(dict(START, boot="b1/7"), {}, "b1/70", "at 10:00"), ["rebooted at 10:00", "boot id"]),
        (
            KeeperFacts(START, {}, "b1", kills_sessions=True),
            ["SSH session", "session-4.scope", "enable-linger"],
        ),
        (KeeperFacts(START, TERM, "b1"), ["SSH session"]),
        (KeeperFacts(START, TERM, "b1", kills_sessions=False), ["keeper was killed"]),
        (KeeperFacts(START, TERM, "b1", lingers=True), ["keeper was killed"]),
        (
            KeeperFacts(dict(START, cgroup="/job", job="Slurm job 17"), {}, "b1"),
            ["killed with Slurm job 17", "sacct"],
        ),
        (
            KeeperFacts(dict(START, cgroup="/ssh"), SLURM, "b1"),
            ["killed with a job of the scheduler", "SIGTERM from the scheduler came before"],
        ),
        (
            KeeperFacts(dict(START, cgroup="/job", job="Slurm job 17"), SLURM, "b1"),
            ["killed with Slurm job 17", "SIGTERM from the scheduler"],
        ),
        (KeeperFacts({}, {"event": "drop"}, ""), ["keeper was killed", "logout", "enable-linger"]),
        (KeeperFacts({}, {}, ""), ["keeper was killed"]),
    ],
)
def test_a_keepers_death_in_words(facts, words):
    assert [word for word in words if word not in str(explain_keeper(facts))] == []


# --- memory and cgroups


def tree(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text + "\n")


def test_a_cgroup_of_version_2(tmp_path):
    tree(tmp_path / "proc/7")
    (tmp_path / "proc/7/cgroup").write_text("0::/job/step\n")
    tree(tmp_path / "fs/job", memory__max=str(512 << 20))
    tree(
        tmp_path / "fs/job/step",
        memory__max="max",
        memory__current=str(100 << 20),
        memory__events="low 0\noom 3\noom_kill 2\noom_group_kill 0",
    )
    group = Cgroup(7, tmp_path / "proc", tmp_path / "fs")
    assert (group.limit_mib(), group.used_mib(), group.oom_kills()) == (512, 100, 2)


def test_a_cgroup_of_version_1_seen_from_a_container(tmp_path):
    """Its name is the host's; what is mounted is our part."""
    tree(tmp_path / "proc/7")
    (tmp_path / "proc/7/cgroup").write_text("5:cpu,cpuacct:/\n4:memory:/docker/abc\n0::/\n")
    tree(
        tmp_path / "fs/memory",
        memory__limit_in_bytes=str(1 << 30),
        memory__usage_in_bytes=str(1 << 20),
        memory__oom_control="oom_kill_disable 0\nunder_oom 0\noom_kill 1",
    )
    group = Cgroup(7, tmp_path / "proc", tmp_path / "fs")
    assert (group.limit_mib(), group.used_mib(), group.oom_kills()) == (1024, 1, 1)
    (tmp_path / "fs/memory/memory.limit_in_bytes").write_text("9223372036854771712\n")
    assert group.limit_mib() is None


def test_what_cannot_be_read_is_not_known(tmp_path):
    group = Cgroup(7, tmp_path, tmp_path)
    assert (group.limit_mib(), group.used_mib(), group.oom_kills()) == (None, None, None)
    assert node_mib(tmp_path / "none") is None and node_oom_kills(tmp_path / "none") is None


def test_this_nodes_memory():
    available, total = node_mib() or (0, 0)
    assert 0 < available <= total


def test_what_logind_does_at_the_end_of_a_session(tmp_path):
    tree(tmp_path / "usr", logind__conf="[Login]\n#KillUserProcesses=yes\n")
    assert kills_sessions([tmp_path / "usr", tmp_path / "etc"]) is None
    tree(tmp_path / "etc", logind__conf="[Login]\nKillUserProcesses=no\n")
    assert kills_sessions([tmp_path / "usr", tmp_path / "etc"]) is False
    tree(tmp_path / "etc/logind.conf.d", site__conf="[Login]\nKillUserProcesses = yes\n")
    assert kills_sessions([tmp_path / "usr", tmp_path / "etc"]) is True


# --- what is looked for at an end


@pytest.mark.skipif(os.getuid() != 0 or not shutil.which("unshare"), reason="needs the right to mount")
def test_a_full_disk_is_found(tmp_path):
    code = "import sys; from jupyter_gpu_kernel.agent.exit.node_checks import unwritable_folders as check; "
    code += "from jupyter_gpu_kernel.agent.system.agent_runtime import AgentRuntime; "
    code += "print(check(AgentRuntime(), sys.argv[1:]))"
    script = 'mount -t tmpfs -o size=64k none "$1" && exec "$2" -c "$3" "$1" "$4" /nowhere'
    full, roomy = tmp_path / "full", tmp_path / "roomy"
    full.mkdir()
    roomy.mkdir()
    command = ["unshare", "-m", "sh", "-c", script, "sh", str(full), sys.executable, code, str(roomy)]
    printed = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=60).stdout.decode()
    assert printed.strip() == str([f"{full}: No space left on device"])
    assert os.listdir(str(roomy)) == []


def test_places_with_room_are_not_full(tmp_path):
    assert unwritable_folders(RUNTIME, [str(tmp_path)]) == []


def test_a_gpu_that_fell_off_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(node_checks, "TIMEOUT", DEADLINE)
    smi, state = gpu_reader(RUNTIME), tmp_path / "gpus.json"
    monkeypatch.setenv("PATH", f"{PROGRAMS}:{os.path.dirname(sys.executable)}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_NVIDIA_STATE", str(state))
    state.write_text(json.dumps({"gpus": [{"uuid": "GPU-1"}, {"uuid": "GPU-2", "lost": True}]}))
    assert gpu_problem(smi, []) == "" and gpu_problem(smi, ["GPU-1"]) == ""
    assert (
        gpu_problem(smi, ["GPU-1", "GPU-2"])
        == "GPU-2 has fallen off the bus: the driver does not list it any more"
    )
    assert gpu_problem(smi, ["0"]) == "", "as a scheduler has allocated it"
    state.write_text(json.dumps({"gpus": [{"uuid": "GPU-1", "values": {"gpu_recovery_action": "Reset"}}]}))
    assert gpu_problem(smi, ["GPU-1"]) == "GPU 0: an administrator must recover it (nvidia-smi says: Reset)"
    state.write_text(json.dumps({"mode": "mismatch"}))
    assert gpu_problem(smi, ["GPU-1"]).startswith("nvidia-smi fails")
    state.write_text(json.dumps({"gpus": []}))
    assert "finds no GPU" in gpu_problem(smi, ["GPU-1"])


def test_a_memory_daemon_is_known_by_its_name(tmp_path):
    shutil.copy(shutil.which("sleep"), str(tmp_path / "nohang"))
    with subprocess.Popen([str(tmp_path / "nohang"), "60"]) as process:
        try:
            # Its name is set a moment after Popen has seen it start.
            eventually(lambda: memory_daemon() == "nohang", "the daemon's name")
        finally:
            process.kill()


def test_the_job_is_known_by_the_environment():
    assert (
        scheduler_job({"SLURM_JOB_ID": "17"}),
        scheduler_job({"PBS_JOBID": "3.pbs"}),
        scheduler_job({}),
    ) == (
        "Slurm job 17",
        "PBS job 3.pbs",
        "",
    )
