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
        "what a killed hub has answered in place of a kernel in a job is answered again",
        "hub.kernel.core.pending_request",
        "if one.waits or one.delivery is not Delivery.ALL]",
        "if one.waits]",
    ),
]
