"""How a keeper comes by its kernel's GPUs: samples from the kernel's start on, a claim when a cell wants
them.

It joins sampler, claim, line and leases to the keeper's loop; it knows no cells and no messages.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence

from ..loop import Loop, Timer
from .claim import Claim, Sample, Sampler, Taken, Waiting
from .judge import allowed_gpus, in_allocation
from .lease import Details, Lease, release_all
from .nvidia_smi_csv import SmiError
from .transfer import transfer
from .wait_queue import WaitQueue

RETRIES = 2
"""How often a driver that does not answer is asked again before the cell fails."""
RETRY_AFTER = 5.0


class Acquisition:
    """`begin` with the kernel, `want` at the first user cell; then `taken(uuids, "")` or `taken([],
    problem)`."""

    def __init__(
        self,
        loop: Loop,
        settings: Dict[str, Any],
        folder: Path,
        taken: Callable[[List[str], str], None],
        waiting: Callable[[str], None],
        details: Details,
    ) -> None:
        """`details`: what other kernels of this user are told of the one that has the GPUs."""
        self.count = int(settings.get("gpus", 1))
        self.uuids: List[str] = []
        self.done = self.count == 0
        self.pending = False
        self._loop = loop
        self._taken = taken
        self._waiting = waiting
        self._wanted = False
        self._leases: List[Lease] = []
        self._sampler: Optional[Sampler] = None
        self._next: Optional[Timer] = None
        self._failures = 0
        self._queue = WaitQueue(folder, str(settings["id"]))
        allowed = allowed_gpus(os.environ)
        if self.count and allowed and in_allocation(os.environ):
            self.uuids, self.done = allowed, True
        self._who, self._details = {"id": settings["id"]}, details
        self._claim = Claim(
            self.count, self._who, details=details, allowed=allowed, place=socket.gethostname()
        )

    @property
    def names(self) -> List[str]:
        """Its GPUs as users know them: "GPU 0 (NVIDIA A100)"."""
        return [self._claim.name(uuid) for uuid in self.uuids]

    def environment(self) -> Dict[str, str]:
        """What the kernel's process is born with: its GPUs if it has them already, else none visible."""
        return {"CUDA_VISIBLE_DEVICES": ",".join(self.uuids)}

    def inherit(self, uuids: List[str]) -> List[str]:
        """The kernel has these GPUs from a keeper that was killed. Returns those that others leased since."""
        if self.done or not uuids:
            return []
        taken = {uuid: Lease.take(uuid, self._who, self._details) for uuid in uuids}
        self._hold(uuids, [lease for lease in taken.values() if lease is not None])
        return [uuid for uuid, lease in taken.items() if lease is None]

    def receive(self, sockets: Sequence[socket.socket]) -> bool:
        """Whether the leases of the kernel that this one replaces, by their sockets, are what it needs. Those that it
        does not need are released."""
        leases: List[Lease] = []
        for sock in sockets:
            try:
                leases.append(Lease.of_socket(sock, self._who, self._details))
            except (ValueError, OSError):  # something else was passed
                sock.close()
        if self.done or len(leases) < self.count:
            release_all(leases)
            return False
        self.give_up()
        self._stop_sampling()
        release_all(leases[self.count :])
        self._hold([lease.uuid for lease in leases[: self.count]], leases[: self.count])
        return True

    def hand_over(self, folder: Path, kernel_id: str) -> bool:
        """`give_back`, but what was taken here goes to the keeper with this folder. Whether that is there."""
        taken = transfer(folder, kernel_id, self._leases)
        self.give_back()  # of the leases: our copies of their sockets
        return taken

    def begin(self) -> None:
        """The kernel starts: looks at the GPUs meanwhile, so that the first cell does not wait for that."""
        if not self.done and self._sampler is None:
            self._sampler = Sampler()
            self._loop.watch(self._sampler.fileno(), lambda _: self._sampled())
            self._sampler.start()

    def want(self) -> None:
        """A cell waits for the GPUs. Asked again after a problem: tries again."""
        if self.done or self._wanted:
            return
        self._wanted = True
        self._queue.join(self.count)
        self.begin()
        if self._claim.watched:
            self._claim.ahead = self._queue.ahead()
            self._step(self._claim.decide)
        else:
            assert self._sampler is not None
            self._sampler.start()

    def give_up(self) -> None:
        """No cell waits any more."""
        self._wanted = False
        self._failures = 0
        self._claim.release()
        self._queue.leave()

    @property
    def returnable(self) -> bool:
        """Whether GPUs are held that were taken here, and not given by a scheduler."""
        return bool(self._leases)

    def give_back(self) -> None:
        """Everything taken here is free again; whoever wants GPUs next must take some anew."""
        self.give_up()
        if self._leases:
            self.uuids, self.done = [], False
        self._stop_sampling()
        for lease in self._leases:
            self._loop.forget(lease.fileno())
        release_all(self._leases)
        self._leases = []

    # -------------------------------------------------------------------------------------- samples

    def _sampled(self) -> None:
        assert self._sampler is not None
        try:
            sample = self._sampler.result()
        except SmiError as error:
            return self._failed(error)
        if sample is None:
            return
        if self._wanted:
            self._step(lambda: self._decide(sample))
        else:
            self._claim.watch(sample)
            if not self._claim.watched:
                self._sample_in(self._claim.pause())

    def _decide(self, sample: Sample) -> Waiting | Taken:
        self._claim.ahead = self._queue.ahead()
        return self._claim.step(sample)

    def _step(self, decide: Callable[[], Waiting | Taken]) -> None:
        try:
            outcome = decide()
        except SmiError as error:
            return self._failed(error)
        if isinstance(outcome, Waiting):
            self._waiting(outcome.text)
            return self._sample_in(outcome.pause)
        self._hold([gpu.uuid for gpu in outcome.gpus], outcome.leases)
        self._queue.leave()
        self._stop_sampling()
        self._taken(self.uuids, "")

    def _hold(self, uuids: List[str], leases: List[Lease]) -> None:
        self.uuids, self._leases, self.done = uuids, leases, True
        for lease in leases:
            self._loop.watch(lease.fileno(), lambda _, lease=lease: lease.answer())  # type: ignore[misc]

    def _failed(self, error: SmiError) -> None:
        """Before a cell wants GPUs a failure says nothing yet; then it is the cell's error, unless it may
        pass."""
        if not self._wanted:
            return
        self._failures += 1
        if error.code in ("hang", "driver") and self._failures <= RETRIES:
            self._waiting(str(error))
            return self._sample_in(RETRY_AFTER)
        self.give_up()
        self._taken([], str(error))

    def _sample_in(self, seconds: float) -> None:
        def sample() -> None:
            if self._sampler is not None:
                self._sampler.start()

        if self._next is not None:
            self._next.cancel()  # one chain of samples, however it was begun
        self._next = self._loop.later(seconds, sample)

    def _stop_sampling(self) -> None:
        if self._sampler is not None:
            self._loop.forget(self._sampler.fileno())
            self._sampler.close()
            self._sampler = None
