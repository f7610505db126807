"""What must be true of GPUs, leases and the queue while kernels share a node."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, NamedTuple

from jupyter_gpu_kernel.agent.gpus.sharing.lease import PREFIX

from . import invariants
from .world import Failure

if TYPE_CHECKING:
    from .episode import Episode
    from .gpus import NodeGpus
    from .hub import UserFrontEnd
    from .keeper import KeeperProcess
    from .oracle import Request
    from .world import Process

PLACES = "jupyter-gpu-kernel/wait/"
_PLACE = re.compile(r"([0-9a-f]+)\.([0-9a-f]+)\.(\d+)\.(-?\d+)\.([0-9a-f]+)\.(.+)")
STARVES = 40.0
"""Seconds in which a kernel gets its GPUs once they are free and nothing fails any more."""
SEEN = 2.0
"""Seconds in which keepers have noticed a place or the end of a lease."""
RELEASED = 1.5
"""Seconds in which a kernel has no lease any more that has ended, or has no GPU any more that was released."""
CLAIMED = 8.0
"""Seconds in which a kernel confirms its claim, or gives it up."""
_QUIET = {"foreign process", "clock jump"}
"""The faults in which whatever is shown arrives at once."""
SHOWN = 5.0
"""Seconds in which a waiting cell shows what it waits for."""


class Place(NamedTuple):
    """A place in the queue, as it is announced."""

    order: tuple[int, int, str]
    gpus: int
    pid: int


class GpuOracle:
    """`observe` from time to time; `check` at the end."""

    def __init__(self, episode: Episode) -> None:
        self._episode = episode
        self._world = episode.world
        self._enough_since: float | None = None
        self._wrong_since: dict[tuple[KeeperProcess, float, str], float] = {}
        self._waits_since: dict[str, float] = {}
        self._must_show: dict[str, Request] = {}
        self._announced_at: dict[str, float] = {}
        self.only_others_wait_since = 0.0
        """Since when all other notebooks wait, so that only the first one can have the GPUs."""

    @property
    def _gpus(self) -> NodeGpus:
        gpus = self._episode.node.gpus
        assert gpus is not None
        return gpus

    def _waiting(self) -> list[KeeperProcess]:
        """Return the keepers that a user's cell lets wait for GPUs."""
        keepers = self._episode.node.keepers.values()
        return [one for one in keepers if one.alive and invariants.waits_for_gpus(one)]

    def _front(self, keeper: KeeperProcess) -> UserFrontEnd | None:
        fronts = self._episode._all_fronts()
        return next((one for one in fronts if one.kernel_id == keeper.kernel_id and one.here), None)

    def observe(self) -> None:
        """Look at all leases, places and waiting cells."""
        waiting = self._waiting()
        self._check_leases(waiting)
        self._check_shown(waiting)
        free = self._gpus.free()
        enough = bool(waiting) and self._episode._healed and len(free) >= self._gpus.wanted
        if not enough:
            self._enough_since = None
        elif self._enough_since is None:
            self._enough_since = self._world.now
        elif self._world.now > self._enough_since + STARVES:
            raise Failure("starves", f"{[one.kernel_id for one in waiting]} while {free} are free")
        ids = [one.kernel_id for one in waiting]
        others = self._episode.others.values()
        if enough or not others or not all(one.kernel_id in ids for one in others):
            self.only_others_wait_since = self._world.now

    def _check_leases(self, waiting: list[KeeperProcess]) -> None:
        """A keeper has leases while its kernel has GPUs, and not longer, unless it is about to be restarted."""
        leases, places = self._gpus.leases(), self.places()
        for keeper in self._episode.node.keepers.values():
            wrong = self._wrong_leases(keeper, leases) if keeper.alive else ""
            has_place = any(one.pid == keeper.pid for one in places)
            wrong = wrong or ("place of nobody" if has_place and keeper not in waiting else "")
            self._check_lasting(keeper, wrong, RELEASED)
            holds = keeper in waiting and keeper.pid in leases.values()
            self._check_lasting(keeper, "lease of a waiting kernel" if holds else "", CLAIMED)

    def _check_lasting(self, keeper: KeeperProcess, wrong: str, seconds: float) -> None:
        """Raise Failure if something has been wrong for so long."""
        now, key = self._world.now, (keeper, seconds, wrong)
        for known in [one for one in self._wrong_since if one[:2] == key[:2] and one != key]:
            del self._wrong_since[known]
        if wrong and now > self._wrong_since.setdefault(key, now) + seconds + self._episode.node.slow:
            raise Failure(wrong, keeper.kernel_id)

    def _wrong_leases(self, keeper: KeeperProcess, leases: dict[str, int]) -> str:
        if invariants.has_ended(keeper) and not keeper.job_id:
            return "lease of an ended kernel" if keeper.pid in leases.values() else ""
        kernel = keeper.keeper.kernel.model
        is_used = kernel is not None and kernel.running and keeper.keeper.requests.up
        needed = set(kernel.gpus) - self._gpus.contested if is_used else set()
        return "" if needed <= leases.keys() else "lease lost"

    def _check_shown(self, waiting: list[KeeperProcess]) -> None:
        """Note which waiting cells must show what they wait for: their front ends were connected all the time."""
        now = {}
        for keeper in waiting:
            front, header = self._front(keeper), invariants.first_waiting_cell(keeper)
            is_connected = (
                front is not None and invariants.is_connected(front) and keeper.keeper.server.attached
            )
            if header is None or not is_connected:
                continue
            name = str(json.loads(header).get("date"))
            now[name] = since = self._waits_since.get(name, self._world.now)
            if self._world.now > since + SHOWN:
                self._must_show[name] = self._world.all_requests[name]
        self._waits_since = now

    def check(self) -> None:
        """Raise Failure if a waiting cell has not shown what it waited for."""
        if self._world.caps or set(self._episode.faults) - _QUIET:
            return
        for name, request in self._must_show.items():
            view = request.client.views.get(name)
            if request.client.gone or request.client.lossy:
                continue
            if view is None or not any("Waiting for" in one or "Checking" in one for one in view.notices):
                raise Failure(
                    "no notice", f"{request} has waited for GPUs, and shows {view and view.notices}"
                )

    # ------------------------------------------------------------------------------------ the queue

    def places(self) -> list[Place]:
        """Return the places in the queue."""
        found = []
        for name, pid in self._episode.node.sockets.announced(PLACES):
            match = _PLACE.fullmatch(name)
            assert match is not None
            found.append(Place((-int(match[4]), int(match[1], 16), match[6]), int(match[3]), pid))
        return found

    def changed(self, process: Process | None, name: str, is_bound: bool) -> None:
        """A process is about to bind this name, or the name has become free."""
        if name.startswith("\0" + PREFIX):
            if is_bound and process is not None:
                self._check_turn(self._episode.node.sockets.pid_of(process))
                self._gpus.taken_at = self._world.now
            elif not is_bound:
                self._check_passed_on(name[len(PREFIX) + 1 :])
        elif name.startswith("\0" + PLACES) and is_bound:
            self._announced_at.setdefault(name.rpartition(".")[2], self._world.now)
        elif name.startswith("\0" + PLACES):
            self._announced_at.pop(name.rpartition(".")[2], None)

    def _check_passed_on(self, uuid: str) -> None:
        """The lease of a GPU ends. The GPUs of a kernel that is replaced pass to the next one, if that exists."""
        keepers = self._episode.node.keepers
        for keeper in keepers.values():
            following = keepers.get(invariants.replaced_by(keeper, uuid)) if keeper.alive else None
            if following is not None and following.alive and not following.system.loop.stopped:
                self._world.fail("GPU not passed on", f"{uuid} of {keeper.kernel_id}")

    def _check_turn(self, pid: int) -> None:
        """A process takes a lease: those who come first must not lack it. All kernels here are of one user."""
        gpus, now = self._gpus, self._world.now
        places = self.places()
        mine = next((one for one in places if one.pid == pid), None)
        if mine is None or now - gpus.taken_at < SEEN or "clock jump" in self._episode.faults:
            return
        held = list(gpus.leases().values())
        first = [
            one
            for one in places
            if one.order < mine.order
            and held.count(one.pid) < one.gpus
            and now - self._announced_at.get(one.order[2], now) > SEEN
        ]
        if first and len(gpus.free(pid)) - sum(one.gpus for one in first) < mine.gpus:
            self._world.fail("out of turn", f"{mine.order} before {[one.order for one in first]}")
