"""One job of this hub's kernels: its last known state, its kernels, and what is to happen to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ..kernel.remote_kernel import RemoteKernel
from ..kernel_settings import KernelSettings
from ..node.node import Node
from ..slurm.dialect import JobState
from ..slurm.scheduler import Scheduler


class Job:
    """One job. `kernels`: the kernels in the job, or waiting for the job, that front ends of this hub have."""

    def __init__(self, state: JobState, settings: KernelSettings, login: str, scheduler: Scheduler) -> None:
        """`state`: the job's last known state; `settings`: those of its kernel; `login`: the name of the login node."""
        self.id = state.id
        self.slurm_name = state.name
        """The name of the job in Slurm; `name` is that of the kernelspec."""
        self.settings = settings.at_login()
        self.login = login
        self.scheduler = scheduler
        self.state = state
        self.node: Node | None = None
        self.kernels: list[RemoteKernel] = []
        self.has_detached = False
        """Whether a kernel may run in the job that no front end of this hub has: then the job is not cancelled."""
        self.ending = False
        """Whether the job is being cancelled, or ends with its last kernel: then no other kernel is started in it."""
        self.kept: asyncio.TimerHandle | None = None
        """The timer at whose end the job is cancelled, while it waits for the return of its notebook."""
        self.end_watch: Callable[[], None] | None = None

    @property
    def name(self) -> str:
        """The name of the kernelspec."""
        return self.settings.name
