"""The process of a job: kernels are its children, and end with it."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from guarded import needs_root
from jobs import JOB, Job, job
from keepers import Place
from waiting import eventually

from jupyter_gpu_kernel.agent.job.process import _remove_stale
from jupyter_gpu_kernel.agent.paths import Root
from jupyter_gpu_kernel.agent.refused import Refused
from jupyter_gpu_kernel.agent.system import procfs

__all__ = ["job"]


def test_a_kernel_in_a_job_has_its_environment_and_ends_it(place: Place, job: Job) -> None:
    hub = job.start("first", setup=["exit 1"])  # the batch script runs set-up lines
    assert hub.run("import os; print(os.environ['SLURM_JOB_NODELIST'])") == "gpu[1-2]\n"
    status = job.status()
    assert status["kernels"] == ["first"]
    assert status["hosts"] == ["gpu1", "gpu2"]
    assert status["log"]["path"] == str(job.output)
    hub.sock.close()
    job.start("second").sock.close()
    place.handlers.handle({"do": "stop", "kernel": "first"})
    eventually(lambda: job.status()["kernels"] == ["second"], "the first has left")
    place.handlers.handle({"do": "stop", "kernel": "second"})
    assert job.ends() == 0
    assert "the last kernel has ended" in job.output.read_text()
    assert job.is_gone()
    assert not (place.path / "jobs" / JOB).exists()


def test_every_process_is_below_the_job(place: Place, job: Job) -> None:
    hub = job.start("first")
    pids = [int(hub.run("import os; print(os.getpid())")), job.keeper("first")]
    for pid in pids:
        while pid != job.process.pid:
            assert pid > 1
            pid = int(_status(pid)["PPid"])


def _status(pid: int) -> dict[str, str]:
    with open(f"/proc/{pid}/status") as file:
        return dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)


def test_a_notebook_gets_the_kernel_that_it_has_left_in_the_same_job_only(place: Place, job: Job) -> None:
    notebook = {"notebook": "/n.ipynb", "name": "gpu", "gpus": 0}
    job.start("first", **notebook).sock.close()
    with pytest.raises(Refused, match="job 99"):
        place.handlers.open("second", {"create": {**notebook, "job": "99"}})
    kernel_id, sock = place.handlers.open("third", {"create": {**notebook, "job": JOB}})
    sock.close()
    assert kernel_id == "first"


def test_keepers_in_a_job_block_no_signal(place: Place, job: Job) -> None:
    job.start("first")
    status = _status(job.keeper("first"))
    assert int(status["SigBlk"], 16) == 0


def test_nothing_runs_on_after_a_killed_job(place: Place, job: Job) -> None:
    hub = job.start("first")
    started = "import subprocess; print(subprocess.Popen(['sleep', '600'], start_new_session=True).pid)"
    pids = [int(hub.run("import os; print(os.getpid())")), int(hub.run(started).split()[-1])]
    pids.append(job.keeper("first"))
    hub.ask("import time; time.sleep(600)")
    job.kill()
    hub.leave()
    eventually(lambda: not any(map(procfs.start_ticks, pids)), "all have ended")
    assert place.story("first", "job")[-1]["text"] == "the job in which this kernel ran is over"
    assert not place.folder("first").exists()


def test_keeper_and_job_are_killed_together(place: Place, job: Job) -> None:
    hub = job.start("first")
    kernel = int(hub.run("import os; print(os.getpid())"))
    keeper = job.keeper("first")
    os.kill(keeper, signal.SIGSTOP)  # it must not end the kernel
    job.kill()
    os.kill(keeper, signal.SIGKILL)
    eventually(lambda: not procfs.start_ticks(kernel), "the kernel has ended")
    assert not place.story("first", "succession")
    assert place.story("first", "end")[-1]["cause"] == "the job in which it ran is over"


def test_a_killed_keeper_has_a_successor_in_the_job(place: Place, job: Job) -> None:
    job.start("first").sock.close()
    os.kill(job.keeper("first"), signal.SIGKILL)
    eventually(lambda: place.story("first", "succession"), "a successor")
    eventually(lambda: job.status()["kernels"] == ["first"], "it has joined")
    place.handlers.handle({"do": "stop", "kernel": "first"})
    assert job.ends() == 0


def test_a_job_that_no_kernel_comes_to_ends(place: Place) -> None:
    job = Job(place, JUPYTER_GPU_KERNEL_JOB_WAIT="0")
    assert job.ends() == 0
    assert "no kernel was started in time" in job.output.read_text()


def test_sigterm_ends_a_job_without_kernels(place: Place, job: Job) -> None:
    job.process.terminate()
    assert job.ends() == 0


def test_a_requeued_job_ends(place: Place) -> None:
    job = Job(place, SLURM_RESTART_COUNT="1")
    assert job.ends() == 0
    assert "requeued" in job.output.read_text()


def test_a_job_that_is_not_there(place: Place) -> None:
    with pytest.raises(Refused) as refused:
        place.start("first", job="18")
    assert refused.value.code == "job"
    assert not place.folder("first").exists()


def test_a_kernel_that_does_not_start_in_a_job(place: Place, job: Job) -> None:
    with pytest.raises(Refused) as refused:
        job.start("first", python="/no/python")
    assert refused.value.code == "keeper"
    hub = job.start("second")  # it serves on
    assert hub.run("print(1)") == "1\n"


@needs_root
def test_a_job_with_a_tmp_of_its_own(place: Place) -> None:
    """As Slurm's plugin job_container/tmpfs gives it to jobs."""
    private = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs x /mnt; exec "$0" "$@"']
    job = Job(place, before=private)
    job.serves()
    try:
        (place.path / "jobs" / JOB / "job").unlink()
        with pytest.raises(Refused, match=r"has a /tmp of its own on .*, which this connection does not see"):
            job.status()
    finally:
        job.kill()


def test_a_full_disk_ends_no_job(place: Place) -> None:
    job = Job(place, output=Path("/dev/full"))
    job.serves()
    hub = job.start("first")
    job.process.send_signal(signal.SIGUSR1)
    eventually(lambda: place.story("first", "job"), "the signal has come")
    assert hub.run("print(1)") == "1\n"
    job.clear()


def test_folders_of_killed_jobs_are_removed_but_none_of_a_job_that_starts(place: Place) -> None:
    root = Root(place.path)
    for job_id in ("15", "16"):
        root.make_job(job_id)
    os.utime(root.job("15"), (1, 1))
    _remove_stale(root, time.time())
    assert root.jobs() == ["16"]
