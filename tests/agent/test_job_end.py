"""A job's end, as its kernel's user learns of it: in time, at signals, and why."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from jobs import JOB, Job, job
from keepers import Hub, Place
from runtimes import ManualLoop
from waiting import eventually

from jupyter_gpu_kernel.agent.job.slurm_job import Controller, SlurmJob, parse_facts, read_job
from jupyter_gpu_kernel.agent.keeper.limits.kernel_job import EndNotices
from jupyter_gpu_kernel.wire.messages import Channel, Message, keeper_message
from jupyter_gpu_kernel.wire.slurm import expand
from jupyter_gpu_kernel.wire.texts import duration

pytestmark = pytest.mark.full

__all__ = ["job"]
HOOK = """
import gpu_kernel, time
@gpu_kernel.on_sigterm
def save(): print("saved", flush=True)
"""
WAIT = "print('begun', flush=True)\nwhile True: time.sleep(0.02)"
TIMEOUT = "JobId=17 JobName=x JobState=TIMEOUT Reason=TimeLimit EndTime=2030-01-31T12:00:00 PreemptTime=None"


def shown(hub: Hub, text: str) -> str:
    """What the kernel's cells have shown when this is in it."""

    def has_text(message: Message) -> bool:
        return message.msg_type == "stream" and text in str(message.content())

    hub.until(has_text)
    return "".join(str(one.content().get("text", "")) for one in hub.got if one.channel is Channel.IOPUB)


def test_signals_to_the_job_run_the_functions_in_its_kernels(place: Place, job: Job) -> None:
    hub = job.start("first", sigterm="survive")
    hub.run(HOOK)
    kernel = int(hub.run("import os; print(os.getpid())"))
    hub.ask(WAIT)
    shown(hub, "begun")
    for pid in (kernel, job.keeper("first"), job.process.pid):  # as `scancel --full` does
        os.kill(pid, signal.SIGUSR1)
    assert "SIGUSR1 to Slurm job 17 from" in shown(hub, "saved")
    job.set_scontrol_output(TIMEOUT)
    job.process.terminate()
    text = shown(hub, "time limit")
    assert "SIGTERM to Slurm job 17 from" in text and "SIGKILL follows" in text
    assert "Slurm job 17 ends: it has reached its time limit." in text
    reported = [(entry.get("signal"), entry.get("why")) for entry in place.story("first", "job")]
    assert ("SIGUSR1", None) in reported and ("SIGTERM", None) in reported
    assert (None, "it has reached its time limit") in reported
    assert job.process.poll() is None, "the kernel may compute until SIGKILL"


@pytest.mark.parametrize(
    "unblock", ["", "import signal; signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})\n"]
)
def test_a_sigterm_to_job_and_kernel_runs_the_functions_once(place: Place, job: Job, unblock: str) -> None:
    """Slurm's process tracking decides whether the kernel gets it, too. A thread that starts a process unblocks SIGTERM
    for a moment, and then its sender is unknown."""
    hub = job.start("first")
    hub.run(HOOK)
    daemon = place.path / "slurmstepd"
    shutil.copy("/bin/sh", daemon)
    kernel = int(hub.run("import os; print(os.getpid())"))
    go = place.path / "go"
    code = f"import os\nprint('begun', flush=True)\nwhile not os.path.exists({str(go)!r}): time.sleep(0.02)"
    cell = hub.ask(unblock + code)
    shown(hub, "begun")
    kill = f"kill -TERM {job.process.pid} {kernel}; read -r _"
    with subprocess.Popen([str(daemon), "-c", kill], stdin=subprocess.PIPE):
        shown(hub, "saved")
        eventually(lambda: place.story("first", "sigterm"), "the kernel's guard has reported")
        eventually(lambda: place.story("first", "job"), "and the job's process")
    go.touch()
    hub.reply(cell)
    texts = [str(one.content().get("text", "")) for one in hub.got if one.channel is Channel.IOPUB]
    assert "".join(texts).count("saved") == 1
    assert "".join(texts).count("SIGTERM") == 1


def test_the_end_comes_from_the_hub_if_the_node_does_not_tell(place: Place, job: Job) -> None:
    hub = job.start("first")
    assert hub.run("import gpu_kernel; print(gpu_kernel.hosts())") == "['gpu1', 'gpu2']\n"
    hub.tell(keeper_message(do="job", end_time=int(time.time()) + 2000))
    hub.tell(keeper_message(do="job", end_time=int(time.time()) + 200))  # its limit was changed
    hub.until(lambda one: one.channel is Channel.KEEPER and (one.content().get("job") or {}).get("end_time"))
    hub.ask("1")
    display = hub.until(lambda one: one.msg_type == "display_data")
    assert "Slurm job 17 ends at" in str(display.content())
    left = hub.run("import gpu_kernel; print(gpu_kernel.status()['job']['seconds_left'])")
    assert 0 < int(left.split()[-1]) <= 200
    assert "17 in the partition gpu, on gpu1, gpu2; it ends at" in hub.run("%gpu")


def test_a_time_limit_that_was_changed_is_told(place: Place) -> None:
    now = int(time.time())
    job = Job(place, SLURM_JOB_END_TIME=str(now + 2000))
    job.serves()
    try:
        hub = job.start("first")
        assert hub.run("import gpu_kernel; print(gpu_kernel.hosts())") == "['gpu1', 'gpu2']\n"
        end = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now + 200))
        job.set_scontrol_output(f"JobId=17 JobState=RUNNING EndTime={end}")
        job.process.send_signal(signal.SIGUSR1)  # has the controller asked
        hub.until(
            lambda one: (
                one.channel is Channel.KEEPER and f'"end_time": {now + 200}' in json.dumps(one.content())
            )
        )
        hub.ask("1")
        hub.until(lambda one: one.msg_type == "display_data" and "Slurm job 17 ends at" in str(one.content()))
        left = hub.run("import gpu_kernel; print(gpu_kernel.status()['job']['seconds_left'])")
        assert 0 < int(left.split()[-1]) <= 200
        assert "17 in the partition gpu, on gpu1, gpu2; it ends at" in hub.run("%gpu")
    finally:
        job.clear()


def test_an_end_that_only_the_controller_knows(place: Place, job: Job) -> None:
    job.set_scontrol_output("JobId=17 JobState=RUNNING EndTime=2030-01-31T12:00:00")
    job.start("first")
    job.process.send_signal(signal.SIGUSR1)  # has it asked
    eventually(lambda: job.status()["end_time"] == 1896091200, "the end is known")


def test_gpus_are_as_slurm_gave_them(place: Place) -> None:
    given = {"CUDA_VISIBLE_DEVICES": "1,0", "ROCR_VISIBLE_DEVICES": "1,0", "GPU_DEVICE_ORDINAL": "1,0"}
    job = Job(place, **given)
    job.serves()
    try:
        hub = job.start("first", gpus=2)
        code = f"import os; print([os.environ.get(name) for name in {list(given)!r}])"
        assert hub.run(code) == "['1,0', '1,0', '1,0']\n"
        assert not place.story("first", "wait")
    finally:
        job.clear()


def test_a_job_without_gpus(place: Place, job: Job) -> None:
    hub = job.start("first", gpus=1)
    assert hub.run("import os; print(os.environ.get('CUDA_VISIBLE_DEVICES'))") == "None\n"


HOSTS = [
    ("gpu1", ["gpu1"]),
    ("gpu[1-3,7]", ["gpu1", "gpu2", "gpu3", "gpu7"]),
    ("login,gpu[08-10]", ["login", "gpu08", "gpu09", "gpu10"]),
    ("r[1-2]n[1-2],login", ["r1n1", "r1n2", "r2n1", "r2n2", "login"]),
    ("n[098-101]", ["n098", "n099", "n100", "n101"]),
    ("", []),
]


@pytest.mark.parametrize(("text", "hosts"), HOSTS)
def test_lists_of_hosts(text: str, hosts: list[str]) -> None:
    assert expand(text) == hosts


@pytest.mark.skipif(shutil.which("scontrol") is None, reason="scontrol is not installed")
@pytest.mark.parametrize("text", [text for text, _ in HOSTS if text])
def test_lists_of_hosts_are_read_as_by_slurm(text: str, tmp_path: Path) -> None:
    config = tmp_path / "slurm.conf"
    config.write_text("ClusterName=x\nSlurmctldHost=localhost\n")
    command = ["scontrol", "show", "hostnames", text]
    output = subprocess.check_output(command, text=True, env={**os.environ, "SLURM_CONF": str(config)})
    assert expand(text) == output.split()


@pytest.mark.parametrize("text", ["gpu[1", "gpu1]", "gpu[a-b]", "gpu[3-1]", "gpu[[1]]", "a,,b", "gpu[]"])
def test_what_is_no_list_of_hosts(text: str) -> None:
    with pytest.raises(ValueError):
        expand(text)


@pytest.mark.parametrize(
    ("line", "facts", "why"),
    [
        ("JobId=1 JobState=RUNNING EndTime=2030-01-31T12:00:00 PreemptTime=None", (1896091200, False), ""),
        (TIMEOUT, (None, False), "time limit"),
        ("JobState=COMPLETING Reason=TimeLimit EndTime=2030-01-31T12:00:00", (None, False), "time limit"),
        ("JobState=COMPLETING Reason=None EndTime=2030-01-31T12:00:00", (None, False), "scancel"),
        ("JobState=COMPLETING Reason=None PreemptTime=2030-01-31T12:00:00", (None, True), "preemption"),
        ("JobState=CANCELLED EndTime=Unknown", (None, False), "scancel"),
        ("JobState=PREEMPTED", (None, False), "preemption"),
        ("JobState=RUNNING PreemptTime=2030-01-31T12:00:00", (None, True), "preemption"),
        ("JobId=1 JobState=RUNNING JobName=a JobState=TIMEOUT", (None, False), ""),
        ("slurm_load_jobs error: Invalid job id specified", (None, False), ""),
        ("", (None, False), ""),
    ],
)
def test_what_the_controller_tells(line: str, facts: tuple[int | None, bool], why: str) -> None:
    read = parse_facts(line)
    assert (read.end_time, read.preempted) == facts
    assert why in read.why_it_ends and bool(why) == bool(read.why_it_ends)


def test_notices_come_once_and_again_when_the_end_is_moved() -> None:
    notices = EndNotices()
    assert not notices.due(0, 1000)
    assert notices.delay(0, 1000) == 60
    assert notices.delay(0, 930) == 30
    assert notices.due(100, 1000) and not notices.due(101, 1000)
    assert notices.due(800, 1000) and notices.due(945, 1000) and not notices.due(999, 1000)
    assert not notices.due(999, 3000)
    assert notices.due(2700, 3000), "extended"
    moved = EndNotices()
    assert moved.due(100, 1000) and not moved.due(101, 1060)
    assert not moved.due(170, 1060), "it moved by a minute only"
    late = EndNotices()
    assert late.due(0, 30) and not late.due(1, 30), "one notice for all three"
    assert not EndNotices().due(10, 5)


def test_the_controller_is_asked_again_until_it_knows_why_the_job_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "scontrol"
    program.write_text(
        f"#!/bin/sh\ncd {tmp_path}; echo >>asked\n"
        "[ $(wc -l <asked) = 2 ] && echo JobState=PREEMPTED || echo JobState=RUNNING\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    loop, reported = ManualLoop(), []
    slurm_job = SlurmJob(JOB, "gpu", "gpu1", [], end_time=1 << 31)
    controller = Controller(loop, slurm_job, reported.append)
    controller.signalled()

    def tells() -> bool:
        loop.advance(0.6)
        return bool(reported)

    eventually(tells, "why the job ends")
    assert reported == [{"event": "ends", "why": "another job takes its resources (preemption)"}]
    assert len((tmp_path / "asked").read_text()) == 2


def test_a_short_job_does_not_begin_with_a_notice_that_it_ends() -> None:
    for whole, first in [(600, 300), (900, 300), (300, 60), (120, 60)]:
        notices = EndNotices(start=1000)
        end = 1000 + whole
        assert not notices.due(1001, end) and not notices.due(end - first - 1, end), whole
        assert notices.due(end - first, end), whole
    assert EndNotices(start=1000).due(4000, 4500), "a kernel that joins a job later"
    extended = EndNotices(start=1000)
    assert not extended.due(1001, 1600) and not extended.due(1100, 4000)
    assert extended.due(3200, 4000)
    shortened = EndNotices(start=1000)
    assert not shortened.due(1001, 5000) and shortened.due(1100, 1250)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(-5, "0 s"), (59, "59 s"), (300, "5 min"), (3600, "1 h"), (4800, "1 h 20 min"), (90000, "1 d 1 h")],
)
def test_remaining_time_in_words(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_what_slurm_tells_in_the_environment() -> None:
    environ = {"SLURM_JOB_ID": JOB, "SLURM_JOB_NODELIST": "gpu[1-2]", "SLURM_JOB_END_TIME": "1896091200"}
    found = read_job({**environ, "SLURM_JOB_PARTITION": "gpu", "SLURMD_NODENAME": "gpu1"})
    assert found is not None
    assert found._asdict() == {
        "id": JOB, "partition": "gpu", "node": "gpu1", "hosts": ["gpu1", "gpu2"], "end_time": 1896091200,
    }  # fmt: skip
    assert read_job({}) is None
    assert read_job({"SLURM_JOB_ID": "../x"}) is None
