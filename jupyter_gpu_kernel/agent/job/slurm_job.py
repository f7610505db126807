"""What Slurm tells the process of a job by variables: the job, its hosts, and when its time limit is reached.

The controller is not asked, as some sites refuse that on a job's node. A time limit that was changed comes from the
hub, which asks on the login node.
"""

from __future__ import annotations

import contextlib
from typing import Any, Dict, List, Mapping, NamedTuple, Optional

from ...wire.slurm import expand
from ..paths import is_job_id


class SlurmJob(NamedTuple):
    """One job of Slurm. `end_time`: in seconds since the epoch; None if the end is unknown."""

    job_id: str
    partition: str
    node: str
    hosts: List[str]
    end_time: Optional[int]

    def json(self) -> Dict[str, Any]:
        """Return the job as keepers and `attach` receive it."""
        fields = self._asdict()
        return {"id": fields.pop("job_id"), **fields}


def read_job(environ: Mapping[str, str]) -> Optional[SlurmJob]:
    """Return the job to which a process with this environment belongs; None if it belongs to no job of Slurm."""
    job_id = environ.get("SLURM_JOB_ID", "")
    if not is_job_id(job_id):
        return None
    hosts: List[str] = []
    with contextlib.suppress(ValueError):
        hosts = expand(environ.get("SLURM_JOB_NODELIST", ""))
    return SlurmJob(
        job_id,
        environ.get("SLURM_JOB_PARTITION", ""),
        environ.get("SLURMD_NODENAME", ""),
        hosts,
        _end_time(environ.get("SLURM_JOB_END_TIME", "")),
    )


def _end_time(text: str) -> Optional[int]:
    """Return SLURM_JOB_END_TIME as a number. In a job without a limit the variable is missing, or far away."""
    return int(text) if text.isdigit() and 0 < int(text) < 1 << 33 else None
