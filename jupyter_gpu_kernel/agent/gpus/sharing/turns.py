"""Whose turn it is: the order in which the kernels of all users that wait for this node's GPUs get them.

A user with fewer GPUs comes first, where each kernel of a user counts those before it as if they had theirs already:
twelve kernels of one user do not shut out another user's one. Among equals it is first come, first served; but a user
who had GPUs while the others waited comes after them. Priorities order only a user's own kernels. Every keeper computes
the same order.

Free GPUs are kept for a kernel whose turn it is, and that kernel takes them within seconds. A place that asks for more
GPUs than the node has, or for which enough GPUs have been free for a minute, belongs to a keeper that hangs, or to
somebody who only wants to keep the GPUs free. Such places are passed over, which each keeper finds out by itself.

This module is pure: it reads and takes nothing.
"""

from __future__ import annotations

import math
import zlib
from typing import Collection, Dict, Iterable, List, Mapping, NamedTuple, Sequence, Set, Tuple, Union

from ...system import procfs

KEPT = 3600.0
"""Free GPUs are kept for a kernel that waits for several, but only in every other period of so many seconds: else a
GPU that a program without a lease uses for days would keep all the others idle."""
UNTAKEN_FOR = 60.0
"""Seconds for which a place may leave enough free GPUs untaken."""
_GAP = 60.0
"""Seconds between two looks after which nothing is known of the time in between."""
_TOO_MANY = "it asks for more GPUs than this node has"
_UNTAKEN = "it has left enough free GPUs untaken for a minute"
_Key = Union[int, Tuple[str, int, float]]  # uid; or kernel id, uid, since


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
    passed: str = ""  # why nothing is kept for it: see PassedPlaces

    def can_use(self, uuid: str) -> bool:
        """Return whether the waiting kernel can use this GPU, as far as is known."""
        return bool(self.usable & gpu_bit(uuid))

    def keeps(self, now: float) -> bool:
        """Return whether free GPUs are kept for this kernel at this time."""
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


class PassedPlaces:
    """The places in the queue that are passed over, because nobody takes GPUs for them.

    Call `add` whenever it is known which GPUs are free, and `mark` for the kernels that come first.
    """

    def __init__(self, users: Iterable[str] = ()) -> None:
        """`users`: names or uids. All places of such a user count as one, whatever new places the user takes."""
        self._users = frozenset(users)
        self._untaken_since: Dict[_Key, float] = {}
        self._untaken: Set[_Key] = set()
        self._gpus: List[str] = []
        self._now = 0.0

    def add(
        self, now: float, ahead: Sequence[WaitingKernel], gpus: Collection[str], free: Collection[str]
    ) -> None:
        """Add what a sample shows.

        now: Of a monotonic clock.
        ahead: The kernels that wait, in their order.
        gpus: The UUIDs of all GPUs.
        free: The UUIDs of those that nobody uses.
        """
        before = self._untaken_since if now - self._now <= _GAP else {}
        self._now, self._gpus = now, list(gpus)
        kept = kept_gpus(ahead, free)
        keys = {self._key(kernel) for kernel, uuids in kept if len(uuids) == kernel.gpus}
        self._untaken_since = {key: before.get(key, now) for key in keys}
        present = {self._key(kernel) for kernel in ahead}
        self._untaken = {key for key in self._untaken if key in present or isinstance(key, int)}
        self._untaken |= {key for key, since in self._untaken_since.items() if now - since >= UNTAKEN_FOR}

    def mark(self, ahead: Iterable[WaitingKernel]) -> List[WaitingKernel]:
        """Return the same kernels, with the reason in `passed` of those that are passed over."""
        return [kernel._replace(passed=self._reason(kernel)) for kernel in ahead]

    def names(self, kernel: WaitingKernel) -> bool:
        """Return whether the user of this kernel is one of `users`."""
        return not self._users.isdisjoint({str(kernel.uid), procfs.known_user_name(kernel.uid)})

    def _reason(self, kernel: WaitingKernel) -> str:
        if self._gpus and kernel.usable and sum(map(kernel.can_use, self._gpus)) < kernel.gpus:
            return _TOO_MANY
        return _UNTAKEN if self._key(kernel) in self._untaken else ""

    def _key(self, kernel: WaitingKernel) -> _Key:
        return kernel.uid if self.names(kernel) else (kernel.kernel_id, kernel.uid, kernel.since)


def kept_gpus(ahead: Iterable[WaitingKernel], free: Iterable[str]) -> List[Tuple[WaitingKernel, List[str]]]:
    """Return these kernels with the free GPUs that each of them could take, if GPUs are kept for the kernels before."""
    found, remaining = [], list(free)
    for kernel in ahead:
        uuids = [uuid for uuid in remaining if kernel.can_use(uuid)][: kernel.gpus]
        found.append((kernel, uuids))
        if not kernel.passed:
            remaining = [uuid for uuid in remaining if uuid not in uuids]
    return found
