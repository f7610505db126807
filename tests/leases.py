"""Takes and reads leases of this node, as keepers do."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from runtimes import RUNTIME

from jupyter_gpu_kernel.agent.gpus.sharing.announcements import Details
from jupyter_gpu_kernel.agent.gpus.sharing.lease import Holder, Lease, LeaseReader, LeaseTaker


def take_lease(uuid: str, identity: Mapping[str, Any], details: Details = dict) -> Lease | None:
    """The lease of one GPU; None if another process holds it."""
    return LeaseTaker(RUNTIME, identity, details).take(uuid)


def read_leases(uuids: Iterable[str], timeout: float = 0.3) -> dict[str, Holder]:
    """The holders of the leased GPUs among these."""
    return LeaseReader(RUNTIME).read(uuids, timeout)


@contextlib.contextmanager
def answering(lease: Lease) -> Iterator[None]:
    """The lease answers, as its keeper's loop would have it do; it is released at the end."""
    stop = threading.Event()

    def answer() -> None:
        while not stop.is_set():
            lease.answer()
            stop.wait(0.01)

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        lease.release()
