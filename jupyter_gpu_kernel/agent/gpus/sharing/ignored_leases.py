"""Leases that a kernel may ignore, since its user has named their GPUs in the setting `ignore_lease`."""

from __future__ import annotations

from typing import Collection, Dict, Iterable, Mapping, Tuple

from .lease import Holder, gpu_of

UNUSED_FOR = 600.0
"""Seconds without use after which the lease of a holder that answers is ignored."""
_Key = Tuple[str, int, str]  # UUID, pid, kernel id


class IgnoredLeases:
    """Which leases a kernel ignores.

    A lease is an agreement, and somebody may hold one without using its GPU. The holder decides what it answers, but
    not what nvidia-smi shows. So a lease is ignored at once if nobody answers for it, or if its kernel has been idle
    for long by its own word; any other lease only when the GPU has been unused for a while. All other criteria of a
    free GPU stay. Leases of the user's own kernels are never ignored: the user can stop those.

    Call `add` with each sample, then ask `ignores`.
    """

    def __init__(self, uuids: Iterable[str] = ()) -> None:
        self._uuids = frozenset(uuids)
        self._unused_since: Dict[_Key, float] = {}
        self._now = 0.0

    def __bool__(self) -> bool:
        """Whether any lease may be ignored."""
        return bool(self._uuids)

    def add(self, now: float, leases: Mapping[str, Holder], unused: Collection[str], most: float) -> None:
        """Add a sample.

        now: Of a monotonic clock.
        leases: The holders of all leases, by the names of the leases.
        unused: The UUIDs of the GPUs that look unused.
        most: The seconds after which the sample before says nothing about the time in between.
        """
        before = self._unused_since if now - self._now <= most else {}
        self._now, unused = now, self._uuids.intersection(unused)
        keys = [_key(gpu_of(name), holder) for name, holder in leases.items()]
        self._unused_since = {key: before.get(key, now) for key in keys if key[0] in unused}

    def ignores(self, uuid: str, holder: Holder) -> bool:
        """Return whether this lease does not count."""
        if uuid not in self._uuids or _is_own_kernel(holder):
            return False
        if not holder.answers or holder.idle_since is not None:
            return True
        since = self._unused_since.get(_key(uuid, holder))
        return since is not None and self._now - since >= UNUSED_FOR

    def explain(self, uuid: str, holder: Holder) -> Holder:
        """Return the holder of a lease that counts; if it may be ignored later, with a note that says so."""
        if uuid not in self._uuids or _is_own_kernel(holder):
            return holder
        return holder._replace(
            note=f"this lease will be ignored when its GPU has been unused for {UNUSED_FOR / 60:.0f} min"
        )


def _is_own_kernel(holder: Holder) -> bool:
    return holder.yours and holder.id != "?"


def _key(uuid: str, holder: Holder) -> _Key:
    return uuid, holder.pid, holder.id
