"""What this computer keeps of kernels in jobs, and what the waiting cell shows of a job."""

from __future__ import annotations

import os
import time
from pathlib import Path

from jupyter_gpu_kernel.hub.jobs import wait_text
from jupyter_gpu_kernel.hub.jobs.records import MAX_RECORDS, Record, Records
from jupyter_gpu_kernel.hub.slurm.dialect import JobState

NOW = 1_700_000_000.0


def test_a_notebook_finds_its_newest_job_that_may_still_exist(tmp_path: Path) -> None:
    records = Records(tmp_path / "jobs")
    assert records.find("a100", "/home/ada/a.ipynb") is None
    for at, (kernel, job, over) in enumerate([("k1", "1", False), ("k2", "2", False), ("k3", "3", True)]):
        records.save(Record(kernel, job, "a100", "/home/ada/a.ipynb", "login", over=over))
        os.utime(tmp_path / "jobs" / f"{kernel}.json", (NOW + at, NOW + at))
    found = records.find("a100", "/home/ada/a.ipynb")
    assert found is not None and found.job == "2"
    assert records.find("a100", "/home/ada/b.ipynb") is None and records.find("a100", "") is None
    assert [one.kernel for one in records.of_job("3", "login")] == ["k3"]
    assert records.of_job("3", "another") == []
    assert [one.kernel for one in records.of_kernelspec("a100", "login")] == ["k3", "k2", "k1"]


def test_a_story_is_one_line_each_and_bounded(tmp_path: Path) -> None:
    records = Records(tmp_path)
    record = Record("k1", "1")
    for number in range(300):
        record = record.told(NOW + number, "job", f"state\n{number}")
    records.save(record)
    events = records.get("k1").events
    assert len(events) == 200
    assert events[-1] == {"time": NOW + 299, "event": "job", "text": "state 299"}


def test_old_records_are_removed_and_damaged_ones_are_none(tmp_path: Path) -> None:
    records = Records(tmp_path)
    for number in range(MAX_RECORDS + 5):
        records.save(Record(f"k{number}", str(number)))
    assert len(list(tmp_path.glob("*.json"))) == MAX_RECORDS
    for text in ("", "{}", "[]", '{"kernel": 1}', "\0"):
        (tmp_path / "bad.json").write_text(text)
        assert records.get("bad") == Record("bad")
    assert os.stat(tmp_path / f"k{MAX_RECORDS}.json").st_mode & 0o077 == 0


def test_the_waiting_cell_shows_reason_place_and_estimate() -> None:
    start = time.mktime((2026, 3, 4, 14, 5, 0, 0, 0, -1))
    job = JobState("12", "PENDING", "Resources", place=3, start_estimate=start)
    assert wait_text.waiting("login", job, start - 600).splitlines() == [
        "login: job 12 is PENDING (Resources): it is next, as soon as enough is free, place 3 in the queue, "
        "Slurm estimates its start at 14:05",
        "Interrupt the cell to cancel the job.",
    ]
    late = wait_text.waiting("login", job, start + 1)
    assert "estimates" not in late, "an estimate that has passed says nothing"
    assert "Wed 04 Mar 14:05" in wait_text.waiting("login", job, start - 86_400)
    away = job._replace(problem="the controller does not answer")
    assert "Slurm cannot be asked at present: the controller" in wait_text.waiting("login", away, start)
