"""One job of this hub's kernels: its last known state, its kernels, and what happens to it without them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from ..kernel.remote_kernel import RemoteKernel
from ..kernel_settings import KernelSettings
from ..node.node import Node
from ..slurm.dialect import JobState
from ..slurm.scheduler import Scheduler


class OurJob:
    """One job of a kernel. `kernels`: those that front ends of this hub have in it."""

    def __init__(self, state: JobState, settings: KernelSettings, login: str, scheduler: Scheduler) -> None:
        """`state`: its last known state; `settings`: those of the kernel; `login`: the login node's name."""
        self.id = state.id
        self.slurm_name = state.name
        self.settings = settings.at_login()
        self.login = login
        self.scheduler = scheduler
        self.state = state
        self.node: Node | None = None
        self.kernels: list[RemoteKernel] = []
        self.has_detached = False
        """Whether a kernel may run in it that no front end of this hub has: then it is not cancelled."""
        self.ending = False
        """Whether it is being cancelled, or ends with its last kernel: then no other kernel is started in it."""
        self.kept: asyncio.TimerHandle | None = None
        self.watchers: list[Callable[[], None]] = []
        self.end_watch: Callable[[], None] | None = None

    @property
    def name(self) -> str:
        """The name of the kernelspec."""
        return self.settings.name

    def describe(self) -> dict[str, Any]:
        """Return it for `--json`."""
        return describe(self.state)


def describe(state: JobState) -> dict[str, Any]:
    """Return a job for `--json`: {id, state, reason, place, start_estimate, partition, node, end_time}."""
    keys = ("id", "state", "reason", "place", "start_estimate", "partition", "node", "end_time")
    return {key: getattr(state, key) for key in keys}
