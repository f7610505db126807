"""What Slurm's variables tell of a job. Pure."""

from __future__ import annotations

import contextlib
from typing import Any, Dict, List, Mapping, NamedTuple, Optional

from ...wire.hostlist import expand
from ..paths import is_job_id


class Allocation(NamedTuple):
    """One job of Slurm. `end_time`: in seconds since the epoch; None if it is unknown. `gpus`: those that Slurm gave,
    as in CUDA_VISIBLE_DEVICES or ROCR_VISIBLE_DEVICES; None if it says nothing of GPUs."""

    job_id: str
    partition: str
    node: str
    hosts: List[str]
    end_time: Optional[int]
    gpus: Optional[str]

    def json(self) -> Dict[str, Any]:
        """As it is sent."""
        fields = self._asdict()
        return {"id": fields.pop("job_id"), **fields}


def read_allocation(environ: Mapping[str, str]) -> Optional[Allocation]:
    """Return the job that has this environment; None if it is none of Slurm."""
    job_id = environ.get("SLURM_JOB_ID", "")
    if not is_job_id(job_id):
        return None
    hosts: List[str] = []
    with contextlib.suppress(ValueError):
        hosts = expand(environ.get("SLURM_JOB_NODELIST", ""))
    given = [environ.get(name) for name in ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")]
    return Allocation(
        job_id,
        environ.get("SLURM_JOB_PARTITION", ""),
        environ.get("SLURMD_NODENAME", ""),
        hosts,
        _end_time(environ.get("SLURM_JOB_END_TIME", "")),
        next((value for value in given if value is not None), None),
    )


def _end_time(text: str) -> Optional[int]:
    """SLURM_JOB_END_TIME; a job without a limit has none, or a time far away."""
    return int(text) if text.isdigit() and 0 < int(text) < 1 << 33 else None
