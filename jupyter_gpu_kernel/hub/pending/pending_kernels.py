"""The kernels of this hub that have a starter, and what commands show and do as long as these have not been started.

A kernel that has not been started is on no node: its row of `ps` is made here, and `stop` and `priority` act on it
here.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

from ...errors import KernelStartError
from ..kernel.remote_kernel import RemoteKernel
from .starter import KernelStarter

NO_CELLS = {"priority": 0, "place": None, "cells": 0, "last_cell": None}
"""What `ps` tells of a kernel that has run no cell."""
_NOT_IN_ROWS = ("error", "kernel_id", "route", "python", "given_python")


class PendingKernels:
    """`begin` adds a kernel. Iterating yields those that have not been started, and may be."""

    def __init__(self) -> None:
        self._starters: weakref.WeakKeyDictionary[RemoteKernel, KernelStarter] = weakref.WeakKeyDictionary()

    def __iter__(self) -> Iterator[RemoteKernel]:
        pending = (one for one in list(self._starters) if one.late_start.pending)
        return (one for one in pending if not (one.closed or one.end_wanted))

    def starter(self, remote: RemoteKernel) -> KernelStarter | None:
        """Return what starts this kernel; None if it is no such kernel."""
        return self._starters.get(remote)

    def begin(self, starter: KernelStarter, remote: RemoteKernel, *, adopted: bool) -> None:
        """Let the starter start this kernel when its user runs a cell."""
        self._starters[remote] = starter
        starter.begin(remote, adopted=adopted)

    @property
    def reserved(self) -> dict[str, str]:
        """The ids of keepers that only wait for GPUs on one of several hosts, and of the kernels that wait by them."""
        starters = list(self._starters.items())
        return {one: remote.kernel_id for remote, starter in starters for one in starter.reservations()}

    def rows(self) -> dict[str, dict[str, Any]]:
        """Return the rows of `ps`, by the kernels' ids."""
        return {one.kernel_id: _row(one) for one in self}

    def find(self, kernel_id: str) -> RemoteKernel | None:
        """Return the kernel with this id, if it has not been started."""
        return next((one for one in self if one.kernel_id == kernel_id), None)

    def stop(self, kernel_id: str) -> bool:
        """Shut down the kernel with this id. Return False if there is none that has not been started."""
        remote = self.find(kernel_id)
        if remote is None:
            return False
        cause, remedy = "the kernel was stopped before it was started", "Start it again to run the cell."
        remote.late_start.failed(KernelStartError(cause, hop=remote.link.name, remedy=remedy))
        remote.shut_down_before_start(restart=False)
        return True

    async def set_priority(self, kernel_id: str, priority: int) -> dict[str, Any] | None:
        """Change the priority of the kernel with this id. Return {"node", "priority", "place"}; None if there is no
        such kernel that has not been started."""
        remote = self.find(kernel_id)
        if remote is None:
            return None
        await self._starters[remote].set_priority(priority)
        return {"node": remote.link.name, "priority": priority, "place": remote.status.get("place")}


def _row(remote: RemoteKernel) -> dict[str, Any]:
    notebook = remote.settings.notebook
    known = {"attached": True, "attached_from": "", "notebook": notebook, "job": None, **remote.describe()}
    place = known.get("place") or (known["job"] or {}).get("place") or None
    row = {**NO_CELLS, **known, "place": place, "cells": remote.late_start.cells}
    return {key: value for key, value in row.items() if key not in _NOT_IN_ROWS}
