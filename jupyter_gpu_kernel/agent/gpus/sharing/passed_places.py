"""Places in the queue that are passed over, because nobody takes GPUs for them. Pure.

Free GPUs are kept for a kernel whose turn it is, and that kernel takes them within seconds. A place that asks for more
GPUs than the node has, or for which enough GPUs have been free for a minute, belongs to a keeper that hangs, or to
somebody who only wants to keep the GPUs free. Each keeper finds this out by itself: the order stays the same for all.
"""

from __future__ import annotations

from typing import Collection, Dict, Iterable, List, Sequence, Set, Tuple, Union

from ... import procfs
from .turns import WaitingKernel

UNTAKEN_FOR = 60.0
"""Seconds for which a place may leave enough free GPUs untaken."""
_GAP = 60.0
"""Seconds between two looks after which nothing is known of the time in between."""
_TOO_MANY = "it asks for more GPUs than this node has"
UNTAKEN = "it has left enough free GPUs untaken for a minute"
Place = Tuple[str, int]
"""The kernel's id, and its uid."""
_Key = Union[int, Tuple[str, int, float]]  # uid; or kernel id, uid, since


class PassedPlaces:
    """Call `add` whenever it is known which GPUs are free, and `mark` for the kernels that come first."""

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
        keys = {self._key(kernel) for kernel in _which_could_take(ahead, list(free))}
        self._untaken_since = {key: before.get(key, now) for key in keys}
        present = {self._key(kernel) for kernel in ahead}
        self._untaken = {key for key in self._untaken if key in present or isinstance(key, int)}
        self._untaken |= {key for key, since in self._untaken_since.items() if now - since >= UNTAKEN_FOR}

    def mark(self, ahead: Iterable[WaitingKernel], untaken: Collection[Place] = ()) -> List[WaitingKernel]:
        """Return the same kernels, with the reason in `passed` of those that are passed over.

        `untaken`: places of which another kernel of this user has found out that they leave free GPUs untaken.
        """
        return [kernel._replace(passed=self._reason(kernel, untaken)) for kernel in ahead]

    def names(self, kernel: WaitingKernel) -> bool:
        """Whether the user of this kernel is one of `users`."""
        return not self._users.isdisjoint({str(kernel.uid), procfs.known_user_name(kernel.uid)})

    def _reason(self, kernel: WaitingKernel, untaken: Collection[Place]) -> str:
        if self._gpus and kernel.usable and sum(map(kernel.can_use, self._gpus)) < kernel.gpus:
            return _TOO_MANY
        is_untaken = self._key(kernel) in self._untaken or (kernel.kernel_id, kernel.uid) in untaken
        return UNTAKEN if is_untaken else ""

    def _key(self, kernel: WaitingKernel) -> _Key:
        return kernel.uid if self.names(kernel) else (kernel.kernel_id, kernel.uid, kernel.since)


def _which_could_take(ahead: Sequence[WaitingKernel], free: List[str]) -> List[WaitingKernel]:
    """Return the kernels for which enough GPUs are free beside those kept for the kernels before them."""
    found = []
    for kernel in ahead:
        kept = [uuid for uuid in free if kernel.can_use(uuid)][: kernel.gpus]
        if kept and len(kept) == kernel.gpus:
            found.append(kernel)
        if not kernel.passed:
            free = [uuid for uuid in free if uuid not in kept]
    return found
