"""Whose turn it is: the order in which the kernels of all users that wait for this node's GPUs get them.

A user with fewer GPUs comes first, where each kernel of a user counts those before it as if they had theirs already:
twelve kernels of one user do not shut out another user's one. Among equals it is first come, first served. Each user
orders the own kernels by priority. Pure functions: every keeper comes to the same order by itself.
"""

from __future__ import annotations

from typing import Dict, Iterable, List, Mapping, NamedTuple, Tuple


class Waiting(NamedTuple):
    """A kernel that waits for `gpus` GPUs, since a time in seconds since the epoch."""

    kernel_id: str
    uid: int
    since: float
    gpus: int
    priority: int = 0  # among the kernels of the same user; the highest first
    usable: int = 0  # a bit for the index of each GPU that it can use; 0: all

    def can_use(self, index: int) -> bool:
        """Whether it can use the GPU with this index."""
        return not self.usable or bool(self.usable >> index & 1)


def in_turn(waiting: Iterable[Waiting], held: Mapping[int, int]) -> List[Waiting]:
    """Return the kernels in the order in which they get GPUs; `held`: how many each user (uid) has leased."""
    shares: Dict[int, int] = dict(held)
    ranked: List[Tuple[int, float, str, Waiting]] = []
    for kernel in sorted(waiting, key=lambda one: (-one.priority, one.since, one.kernel_id)):
        share = shares.get(kernel.uid, 0)
        ranked.append((share, kernel.since, kernel.kernel_id, kernel))
        shares[kernel.uid] = share + kernel.gpus
    return [kernel for *_, kernel in sorted(ranked)]


def waiting_before(kernel_id: str, waiting: Iterable[Waiting], held: Mapping[int, int]) -> List[Waiting]:
    """Return the kernels that get GPUs before this one; none if it does not wait."""
    order = in_turn(waiting, held)
    place = next((at for at, kernel in enumerate(order) if kernel.kernel_id == kernel_id), 0)
    return order[:place]
