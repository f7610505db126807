"""The process of a job, without a scheduler: `agent job` with the environment that Slurm gives, in a folder of ours."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from keepers import AGENT, Hub, Place
from waiting import DEADLINE, eventually

from jupyter_gpu_kernel.agent.refused import Refused

JOB = "17"


class Job:
    """A running job, and kernels in it."""

    def __init__(
        self, place: Place, before: Sequence[str] = (), output: Path | None = None, **environ: str
    ) -> None:
        """`before`: the command that starts it; `output`: the file with its output."""
        self.place = place
        self._controller = place.path / "scontrol.txt"
        programs = place.path / "bin"
        programs.mkdir()
        (programs / "scontrol").write_text(f"#!/bin/sh\nexec cat {self._controller}\n")
        (programs / "scontrol").chmod(0o755)
        environ = {"PATH": f"{programs}:{os.environ['PATH']}", **environ}
        self.output = output or place.path / f"slurm-{JOB}.out"
        given = {
            "SLURM_JOB_ID": JOB,
            "SLURMD_NODENAME": "gpu1",
            "SLURM_JOB_NODELIST": "gpu[1-2]",
            "SLURM_JOB_PARTITION": "gpu",
        }
        env = {**os.environ, "JUPYTER_GPU_KERNEL_ROOT": str(place.path), **given, **environ}
        with open(self.output, "wb") as file:
            self.process = subprocess.Popen(
                [*before, sys.executable, "-c", AGENT.format(["job"]), "job"],
                stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=env, start_new_session=True,
            )  # fmt: skip
        self._folder = place.path / "jobs" / JOB
        self._hubs: list[Hub] = []

    def set_scontrol_output(self, line: str) -> None:
        """What `scontrol show` prints from now on."""
        self._controller.write_text(line)

    def serves(self) -> None:
        """Waits until it can be asked."""
        eventually(lambda: (self._folder / "job").exists() or self.process.poll() is not None, "a job")

    def start(self, kernel_id: str, **settings: Any) -> Hub:
        """A kernel in this job."""
        hub = self.place.start(kernel_id, job=JOB, **settings)
        self._hubs.append(hub)
        return hub

    def keeper(self, kernel_id: str) -> int:
        """The process of its first keeper."""
        reported = eventually(lambda: self.place.story(kernel_id, "start"), "the keeper has told its start")
        return int(reported[0]["keeper"])

    def status(self) -> dict[str, Any]:
        return dict(self.place.handlers.handle({"do": "job", "job": JOB})["job"])

    def is_gone(self) -> bool:
        try:
            self.status()
        except Refused as error:
            return error.code == "job"
        return False

    def ends(self) -> int:
        """Its exit status, once it has ended by itself."""
        return self.process.wait(DEADLINE)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def clear(self) -> None:
        """Ends it."""
        for hub in self._hubs:
            hub.sock.close()
        self.place.clear()
        self.kill()


@pytest.fixture
def job(place: Place) -> Iterator[Job]:
    """A job that runs."""
    job = Job(place)
    job.serves()
    yield job
    job.clear()
