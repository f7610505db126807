"""The planted bugs, by the part that has them: see `mutants`."""

from __future__ import annotations

from .gpus import GPUS
from .hosts import HOSTS
from .hub import HUB
from .keeper import KEEPER
from .mended import MENDED
from .slurm import SLURM
from .two_computers import TWO_COMPUTERS
from .wire import WIRE

MUTANTS = [*MENDED, *WIRE, *HUB, *KEEPER, *GPUS, *TWO_COMPUTERS, *HOSTS, *SLURM]
