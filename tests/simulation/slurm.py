"""A cluster with Slurm: what its commands print on the login node, and the one node on which jobs run.

Real: what the hub does for kernels in jobs (`hub/slurm`, `hub/jobs`). Simulated: the controller with its jobs, and the
process of a job, which ends with its last kernel. A script of the hub is answered as a whole, by the commands in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from jupyter_gpu_kernel.errors import ConnectError
from jupyter_gpu_kernel.hub.transport.connection import Completed

from .world import EPOCH, World

if TYPE_CHECKING:
    from .kernel import ModelKernel
    from .node import Node

LOGIN, HOST = "login", "c0"
_AWAY = b"slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n"
_LOOK_EVERY = 1.0
_ACTIVE = ("PENDING", "RUNNING")
WAITS = 1800.0
"""Seconds that the process of a job waits for its first kernel."""


class ModelJob:
    """One job. `ready`: when its process answers on the node; `kernels`: the kernels that were started in it; `gpus`:
    the numbers of its GPUs."""

    def __init__(self, number: int, name: str) -> None:
        self.id, self.name = str(number), name
        self.state = "PENDING"
        self.ready = self.began = 0.0
        self.kernels: set[str] = set()
        self.gpus: list[int] = []
        self.listed_until = float("inf")


class Slurm:
    """The controller. `run` answers a script; `end` ends a job."""

    def __init__(self, world: World, node: Node) -> None:
        self.world, self.node = world, node
        self.random = world.random("Slurm")
        self.jobs: dict[str, ModelJob] = {}
        self.away_until = self.lost_until = 0.0
        """Until when the controller does not answer, and until when the answers of commands are lost."""
        self.on_end: Callable[[bool], None] = lambda runs: None

    @property
    def active(self) -> list[ModelJob]:
        """The jobs that have not ended."""
        return [job for job in self.jobs.values() if job.state in _ACTIVE]

    def process_of(self, job_id: str) -> ModelJob | None:
        """Return the job if its process answers."""
        job = self.jobs.get(job_id)
        runs = job is not None and job.state == "RUNNING" and job.ready <= self.world.now
        return job if runs else None

    def environ(self, job_id: str) -> dict[str, str]:
        """Return the variables of the processes in this job; "": of those in none."""
        if not job_id:
            return {}
        numbers = ",".join(map(str, self.jobs[job_id].gpus))
        return {"SLURM_JOB_ID": job_id, **({"CUDA_VISIBLE_DEVICES": numbers} if numbers else {})}

    def check_gpus(self, kernel: ModelKernel, cell: str) -> None:
        """A kernel begins to execute a cell: in a job it has those GPUs that were given, while the job runs."""
        if job := self.jobs.get(kernel.job_id):
            given = self.node.uuids([str(number) for number in job.gpus])
            if kernel.gpus != given or job.state != "RUNNING":
                has = f"{cell} runs in kernel {kernel.pid} with {kernel.gpus}"
                self.world.fail("not the job's GPUs", f"{has}, but job {job.id} ({job.state}) has {given}")

    def heal(self) -> None:
        """The controller answers from now on."""
        self.away_until = self.lost_until = 0.0

    # ------------------------------------------------------------------------------------ jobs

    def end(self, job: ModelJob, state: str) -> None:
        """The job ends, with all its processes."""
        if state != "COMPLETED":
            self.on_end(job.state == "RUNNING")
        if job.state == "RUNNING":
            self.node.end_processes(job.kernels)
        self.world.note("job", job.id, state)
        job.state, job.listed_until = state, self.world.now + self.random.choice((0.0, 5.0, 300.0))

    def _submit(self, name: str) -> ModelJob:
        job = ModelJob(len(self.jobs) + 17, name)
        self.jobs[job.id] = job
        self.world.note("job", job.id, "submitted")
        self.world.later(self.random.choice((0.5, 2.0, 10.0, 25.0)), self._begin, job)
        return job

    def _free_gpus(self) -> list[int]:
        """Return the GPUs that no job has. Slurm knows nothing of processes outside of jobs."""
        given = [number for job in self.active for number in job.gpus]
        return (
            []
            if self.node.gpus is None
            else [one.index for one in self.node.gpus.gpus if one.index not in given]
        )

    def _begin(self, job: ModelJob) -> None:
        wanted = self.node.gpus.wanted if self.node.gpus is not None else 0
        if job.state == "PENDING" and len(free := self._free_gpus()) < wanted:
            self.world.later(_LOOK_EVERY, self._begin, job)
        elif job.state == "PENDING":
            job.gpus = free[:wanted]
            self.world.note("job", job.id, "RUNNING", *job.gpus)
            job.state, job.began = "RUNNING", self.world.now
            job.ready = self.world.now + self.random.choice((0.2, 1.0, 4.0))
            self._look(job)

    def _look(self, job: ModelJob) -> None:
        if job.state != "RUNNING":
            return
        is_unused = not job.kernels and self.world.now > job.began + WAITS
        if is_unused or (job.kernels and not any(self.node.has_processes(one) for one in job.kernels)):
            return self.end(job, "COMPLETED")
        self.world.later(_LOOK_EVERY, self._look, job)

    # ------------------------------------------------------------------------------------ commands

    def run(self, script: bytes) -> Completed:
        """Return what the commands in this script print."""
        text = script.decode()
        if "found()" in text:
            return Completed(0, b"user|alice\nfolder|\nconf|\nversion|slurm 24.05\n", b"")
        if self.world.now < self.away_until:
            return Completed(1, b"1000\n\naccounting:\n" if "accounting:" in text else b"", _AWAY)
        done = Completed(0, self._answer(text).encode(), b"")
        if self.world.now < self.lost_until:
            raise ConnectError("the connection was lost", hop=LOGIN)
        return done

    def _answer(self, text: str) -> str:
        if "sbatch --parsable" in text:
            name = text.partition("\n#SBATCH --job-name=")[2].partition("\n")[0]
            known = next((job for job in self.active if job.name == name), None)
            return f"{(known or self._submit(name)).id}\n"
        if "scancel" in text:
            named = re.search(r"scancel -u \S+ \S+ -n (\S+)", text) or re.search(
                r" -n (\S+) </dev/null", text
            )
            numbered = re.search(r'" (\d+) </dev/null', text)
            for job in self.active:
                if (named and job.name == named[1]) or (numbered and job.id == numbered[1]):
                    self.end(job, "CANCELLED")
            return ""
        if ended := re.search(r"^job=(\d+) name=(\S+)$", text, re.MULTILINE):
            return self._show(self.jobs.get(ended[1]))
        if "squeue" in text:
            return "".join(map(self._row, self._listed())) + self._waiting() * ("PENDING" in text)
        return ""

    def _listed(self) -> list[ModelJob]:
        return [job for job in self.jobs.values() if job.listed_until >= self.world.now]

    def _row(self, job: ModelJob) -> str:
        waits = job.state == "PENDING"
        end = "N/A" if waits else f"{int(EPOCH + job.began + 3600)}"
        host = "n/a" if waits else HOST
        return f"+{job.id}|{job.state}|None|N/A|{end}|gpu|{host}|{'' if waits else HOST}|{job.name}\n"

    def _waiting(self) -> str:
        return "".join(f"-{job.id}|gpu|100\n" for job in self.active if job.state == "PENDING")

    def _show(self, job: ModelJob | None) -> str:
        if job is None:
            return "1000\n\naccounting:\n"
        facts = f"JobState={job.state} Reason=None ExitCode=0:0 BatchHost={HOST} TimeLimit=01:00:00"
        if job.listed_until < self.world.now:  # only the accounting knows it
            return f"1000\n\naccounting:\n{facts} MinMemoryNode=1G CancelledBy=\n"
        return f"1000\nJobId={job.id} JobName={job.name} UserId=alice(1000) {facts}\naccounting:\n"


class Disk:
    """In place of DiskThread: what is to be written is written at once."""

    def call(self, function: Callable[[], object]) -> None:
        """Call the function."""
        function()

    async def done(self, within: float | None = None) -> None:
        """All calls have been made."""
