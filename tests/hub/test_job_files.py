"""What this computer keeps of kernels in jobs, and what the waiting cell shows of a job."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from waiting import DEADLINE, eventually

from jupyter_gpu_kernel.hub.background import DiskThread
from jupyter_gpu_kernel.hub.jobs.job_files import MAX_FILES, JobFile, JobFiles
from jupyter_gpu_kernel.hub.slurm import words
from jupyter_gpu_kernel.hub.slurm.dialect import JobState

NOW = 1_700_000_000.0


def loaded(folder: Path) -> JobFiles:
    """The files of this folder, as a hub that starts reads them."""
    files = JobFiles(folder, DiskThread())
    asyncio.run(files.loaded(DEADLINE))
    return files


def written(folder: Path, *files: JobFile) -> None:
    """The files of these files are there."""
    eventually(lambda: all(loaded(folder).get(one.kernel) == one for one in files), "they are written")


def test_a_notebook_finds_its_newest_job_that_may_still_exist(tmp_path: Path) -> None:
    folder = tmp_path / "jobs"
    files = loaded(folder)
    assert files.find("a100", "/home/ada/a.ipynb") is None
    jobs = [("k1", "1", False), ("k2", "2", False), ("k3", "3", True)]
    saved = [
        JobFile(kernel, job, "a100", "/home/ada/a.ipynb", "login", over=over) for kernel, job, over in jobs
    ]
    for record in saved:
        files.save(record)
    written(folder, *saved)
    for at, record in enumerate(saved):
        os.utime(folder / f"{record.kernel}.json", (NOW + at, NOW + at))
    for known in (files, loaded(folder)):
        found = known.find("a100", "/home/ada/a.ipynb")
        assert found is not None and found.job == "2"
        assert known.find("a100", "/home/ada/b.ipynb") is None and known.find("a100", "") is None
        assert [one.kernel for one in known.of_job("3", "login")] == ["k3"]
        assert known.of_job("3", "another") == []
        assert [one.kernel for one in known.newest_first()] == ["k3", "k2", "k1"]


def test_nobody_waits_for_a_slow_file_system(tmp_path: Path) -> None:
    """The thread that writes is busy at first."""
    disk, released = DiskThread(), threading.Event()
    files = JobFiles(tmp_path, disk)
    asyncio.run(files.loaded(DEADLINE))
    disk.call(released.wait)
    files.save(JobFile("k1", "1"))
    files.save(JobFile("k1", "2"))
    assert files.get("k1").job == "2"
    assert not (tmp_path / "k1.json").exists()
    released.set()
    written(tmp_path, JobFile("k1", "2"))


_HOME_HANGS = """
import asyncio, pathlib, sys
from jupyter_gpu_kernel.hub.background import DiskThread
from jupyter_gpu_kernel.hub.jobs.job_files import JobFile, JobFiles

async def main():
    disk = DiskThread()
    files = JobFiles(pathlib.Path(sys.argv[1]), disk)
    await files.loaded(within=0.01)
    assert files.get("k1") == JobFile("k1") and files.find("a100", "/a.ipynb") is None
    await disk.done(within=0.01)

asyncio.run(main())
"""


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes in folders")
def test_a_home_that_does_not_answer_stops_neither_the_event_loop_nor_the_exit(tmp_path: Path) -> None:
    """The file that is to be read is a pipe that nobody writes."""
    os.mkfifo(tmp_path / "k1.json")
    subprocess.run([sys.executable, "-c", _HOME_HANGS, tmp_path], timeout=DEADLINE, check=True)


def test_a_story_is_one_line_each_and_bounded(tmp_path: Path) -> None:
    files = loaded(tmp_path)
    record = JobFile("k1", "1")
    for number in range(300):
        record = record.with_event(NOW + number, "job", f"state\n{number}")
    files.save(record)
    events = files.get("k1").events
    assert len(events) == 200
    assert events[-1] == {"time": NOW + 299, "event": "job", "text": "state 299"}


def test_old_records_are_removed_and_damaged_ones_are_none(tmp_path: Path) -> None:
    files = loaded(tmp_path)
    for number in range(MAX_FILES + 5):
        files.save(JobFile(f"k{number}", str(number)))
    assert files.get("k4") == JobFile("k4") and files.get("k5").job == "5"
    newest, oldest = tmp_path / f"k{MAX_FILES + 4}.json", tmp_path / "k4.json"
    eventually(lambda: newest.exists() and not oldest.exists(), "all are written, and old ones removed")
    assert len(list(tmp_path.glob("*.json"))) == MAX_FILES
    for text in ("", "{}", "[]", '{"kernel": 1}', "\0", json.dumps(JobFile("k9", "9")._asdict())):
        (tmp_path / "bad.json").write_text(text)
        assert loaded(tmp_path).get("bad") == JobFile("bad")
    assert os.stat(tmp_path / f"k{MAX_FILES}.json").st_mode & 0o077 == 0


def test_the_waiting_cell_shows_reason_place_and_estimate() -> None:
    start = time.mktime((2026, 3, 4, 14, 5, 0, 0, 0, -1))
    job = JobState("12", "PENDING", "Resources", place=3, start_estimate=start)
    assert words.waiting_text("login", job, start - 600).splitlines() == [
        "login: job 12 is PENDING (Resources): it is next, as soon as enough is free, place 3 in the queue, "
        "Slurm estimates its start at 14:05",
        "Interrupt the cell to cancel the job.",
    ]
    late = words.waiting_text("login", job, start + 1)
    assert "estimates" not in late, "an estimate that has passed says nothing"
    assert "Wed 04 Mar 14:05" in words.waiting_text("login", job, start - 86_400)
    away = job._replace(problem="the controller does not answer")
    assert words.waiting_text("login", away, start).splitlines() == [
        "login: job 12 was PENDING (Resources): it is next, as soon as enough is free, place 3 in the queue",
        "Slurm cannot be asked at present: the controller does not answer",
        "Interrupt the cell to cancel the job.",
    ]
