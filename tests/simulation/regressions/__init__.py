"""Plans that have shown a bug, which was mended: what `shrink` left of the seed that found it; by subject."""

from __future__ import annotations

from ..plan import Plan
from . import (
    front_ends,
    gpus,
    hosts,
    hubs_killed,
    interrupts,
    jobs,
    keepers_killed,
    kernels_lost,
    rare,
    rare_gpus,
    two_computers,
)
from .common import BASE

__all__ = ["BASE", "PLANS"]
_SUBJECTS = (
    front_ends,
    gpus,
    hosts,
    hubs_killed,
    interrupts,
    jobs,
    keepers_killed,
    kernels_lost,
    rare,
    rare_gpus,
    two_computers,
)
PLANS: dict[str, Plan] = {name: plan for subject in _SUBJECTS for name, plan in subject.PLANS.items()}
