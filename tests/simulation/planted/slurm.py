"""Bugs in the start of a kernel in a job, and in what becomes of the job."""

from __future__ import annotations

from ..mutants import Mutant

SLURM = [
    Mutant(
        "the job of an interrupted cell is not cancelled",
        "hub.jobs.job_table",
        "        self._begin_end(job, self._cancel(job, why))\n",
        "        self._forget(job)\n",
    ),
    Mutant(
        "a job whose submission was not confirmed is forgotten",
        "hub.jobs.job_starter",
        "        self._table.withdraw(job_name(script), self._scheduler, login)\n        return None\n",
        "        return None\n",
    ),
    Mutant(
        "a kernel whose hub was killed does not look for its job",
        "hub.jobs.job_table",
        "        return adopted or self.files.find(name, notebook) is not None\n",
        "        return False\n",
    ),
    Mutant(
        "Slurm is not asked again when its controller did not answer",
        "hub.slurm.job_queue",
        "            unchanged = self._asked - self._failed_since\n",
        "            unchanged = 1e9\n            return 1e9\n",
    ),
    Mutant(
        "a kernel in a job that a killed hub has used counts as one that was not started",
        "hub.kernel.remote_kernel",
        " and not (self._end.was_up or self.core.relay.table.in_flight)",
        "",
    ),
    Mutant(
        "a kernel whose job has ended while its hub was killed is started anew, with what that hub had sent",
        "hub.jobs.job_starter",
        "            return await self._end(remote, self._table.former(remote, login))\n",
        "            return self._undo(remote)\n",
    ),
    Mutant(
        "the next hub answers before all front ends of a killed hub have connected",
        "hub.kernel.starter",
        "        await remote.attach_timing.begun.wait()\n",
        "",
    ),
    Mutant(
        "a kernel that was closed while its job was looked for submits one, and withdraws it",
        "hub.kernel.remote_kernel",
        "not (self.closed or self.core.held)",
        "not self.core.held",
    ),
    Mutant(
        "a job is kept for its notebook after it has ended",
        "hub.jobs.job_table",
        "            if state.over and job.kept is not None:\n",
        "            if False:\n",
    ),
    Mutant(
        "a kernel outside of jobs takes a GPU that a job has",
        "agent.gpus.acquisition",
        "for lease in map(self._taker.take, names) if lease",
        "for lease in [] if lease",
    ),
    Mutant(
        "a kernel in a job is shown other GPUs than the job has",
        "agent.gpus.acquisition",
        "        return {} if self._in_job else variables(",
        "        return variables(",
    ),
]
