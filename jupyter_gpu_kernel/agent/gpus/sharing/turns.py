"""Whose turn it is: the order in which the kernels of all users that wait for this node's GPUs get them.

A user with fewer GPUs comes first, where each kernel of a user counts those before it as if they had theirs already:
twelve kernels of one user do not shut out another user's one. Among equals it is first come, first served; but a user
who had GPUs while the others waited comes after them. Priorities order only a user's own kernels. Pure functions: every
keeper computes the same order.
"""

from __future__ import annotations

import math
import zlib
from typing import Dict, Iterable, List, Mapping, NamedTuple, Tuple

KEPT = 3600.0
"""Free GPUs are kept for a kernel that waits for several, but only in every other period of so many seconds: else a
GPU that a program without a lease uses for days would keep all the others idle."""


class WaitingKernel(NamedTuple):
    """A kernel that waits for `gpus` GPUs, since a time in seconds since the epoch (infinity: it is not plausible)."""

    kernel_id: str
    uid: int
    since: float
    gpus: int
    priority: int = 0  # among the kernels of the same user; the highest first
    usable: int = 0  # the sum of `gpu_bit` of the GPUs that it can use
    pid: int = 0
    turn: float = 0.0  # until when its user had GPUs while it waited, in seconds since the epoch
    passed: str = ""  # why nothing is kept for it (passed_places.py)

    def can_use(self, uuid: str) -> bool:
        """Whether it can use this GPU, as far as is known."""
        return bool(self.usable & gpu_bit(uuid))

    def keeps(self, now: float) -> bool:
        """Whether free GPUs are kept for it at this time."""
        return self.gpus == 1 or (self.since < math.inf and int((now - self.since) / KEPT) % 2 == 0)


def gpu_bit(uuid: str) -> int:
    """Return one of 64 bits for a GPU. Where two GPUs have the same one, at worst one GPU too many is kept."""
    return 1 << zlib.crc32(uuid.encode()) % 64


def gpu_bits(uuids: Iterable[str]) -> int:
    """Return the bits of these GPUs together. Their indices would not do: in a device cgroup they start at 0."""
    bits = 0
    for uuid in uuids:
        bits |= gpu_bit(uuid)
    return bits


def own_order(kernel: WaitingKernel) -> Tuple[int, float, str]:
    """Return the key of the order among the kernels of one user."""
    return -kernel.priority, kernel.since, kernel.kernel_id


def in_turn(waiting: Iterable[WaitingKernel], held: Mapping[int, int]) -> List[WaitingKernel]:
    """Return the kernels in the order in which they get GPUs; `held`: how many each user (uid) has leased."""
    shares: Dict[int, int] = dict(held)
    ranked: List[Tuple[bool, int, float, float, str, WaitingKernel]] = []
    for kernel in sorted(waiting, key=own_order):
        share = shares.get(kernel.uid, 0)
        comes = max(kernel.since, kernel.turn)
        ranked.append((kernel.since == math.inf, share, comes, kernel.since, kernel.kernel_id, kernel))
        shares[kernel.uid] = share + kernel.gpus
    return [kernel for *_, kernel in sorted(ranked)]


def waiting_before(
    mine: WaitingKernel, others: Iterable[WaitingKernel], held: Mapping[int, int]
) -> List[WaitingKernel]:
    """Return those of the others that get GPUs before my kernel, and can use some of the same GPUs.

    All of them take part in the order, which is the same for every keeper: else two kernels could wait for each other.
    """
    order = in_turn([mine, *others], held)
    return [one for one in order[: order.index(mine)] if one.usable & mine.usable]
