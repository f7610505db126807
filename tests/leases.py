"""Takes and reads leases of this node, as keepers do."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from runtimes import RUNTIME

from jupyter_gpu_kernel.agent.gpus.sharing.announcements import Details
from jupyter_gpu_kernel.agent.gpus.sharing.lease import Holder, Lease, LeaseReader, LeaseTaker
from jupyter_gpu_kernel.agent.gpus.sharing.lease_transfer import PassedLeases

ROOT = str(Path(__file__).parents[1])


def take_lease(uuid: str, identity: Mapping[str, Any], details: Details = dict) -> Lease | None:
    """The lease of one GPU; None if another process holds it."""
    return LeaseTaker(RUNTIME, identity, details).take(uuid)


def read_leases(uuids: Iterable[str], timeout: float = 0.3) -> dict[str, Holder]:
    """The holders of the leased GPUs among these."""
    return LeaseReader(RUNTIME).read(uuids, timeout)


def passed_leases(uuids: Iterable[str], kernel_id: str = "before") -> PassedLeases:
    """Leases that this kernel has taken, and that only the sockets hold by now."""
    sockets = []
    for lease in [take_lease(one, {"id": kernel_id}) for one in uuids]:
        assert lease is not None
        sockets.append(socket.socket(fileno=os.dup(lease.announcement.fileno())))
        lease.release()
    return PassedLeases(kernel_id, sockets)


def run_in_own_network(code: str, *arguments: str, env: Mapping[str, str] | None = None) -> str:
    """What this Python code prints where no other process has announced anything."""
    command = ["unshare", "--net"] if os.getuid() == 0 else ["unshare", "--map-root-user", "--net"]
    if subprocess.run([*command, "true"], capture_output=True).returncode != 0:
        pytest.skip("no network namespace can be made here")
    command += [sys.executable, "-c", code, *arguments]
    return subprocess.check_output(command, text=True, cwd=ROOT, env=env)


@contextlib.contextmanager
def answering(lease: Lease) -> Iterator[None]:
    """The lease answers, as its keeper's loop would have it do; it is released at the end."""
    stop = threading.Event()

    def answer() -> None:
        while not stop.is_set():
            lease.announcement.answer()
            stop.wait(0.01)

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        lease.release()
