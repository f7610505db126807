"""The state of a kernel, as hubs, `ps` and other kernels see it."""

from __future__ import annotations

import socket
from typing import Any, Dict, Optional

from ...wire import PROTOCOL
from ...wire.messages import Lane, keeper_message
from ..exit.report import ExitReport
from ..gpus.manager import GpuManager
from ..job.member import Membership
from ..kernel_context import KernelContext
from ..process.kernel_process import KernelProcess
from ..procfs import boot_id
from .idle_timer import IdleTimer, cuda_is_open
from .server import KeeperServer

_NOTEBOOK = 100
"""The length of the end of a notebook's path that other kernels show."""


class Status:
    """`state`: starting, waiting, idle, busy or ended. `become` changes it and tells the hub."""

    def __init__(
        self,
        context: KernelContext,
        kernel: KernelProcess,
        exit_report: ExitReport,
        server: KeeperServer,
        gpus: GpuManager,
        idle_timer: IdleTimer,
        job: Optional[Membership] = None,
    ) -> None:
        """`job`: in which the kernel runs."""
        self._runtime = runtime = context.loop.runtime
        self._job = job
        self.state = "starting"
        self._since = runtime.time()
        self._extra: Dict[str, Any] = {}
        self._settings = context.settings
        self._kernel = kernel
        self._gpus = gpus
        self._exit_report = exit_report
        self._server = server
        self._idle_timer = idle_timer

    @property
    def pid(self) -> int:
        """The kernel's process, 0 if there is none."""
        return self._kernel.pid

    @property
    def attached(self) -> bool:
        """Whether a front end is attached."""
        return self._server.attached

    @property
    def has_opened_gpus(self) -> bool:
        """Whether the kernel's process has opened GPUs, or may have: then they are free only after its end."""
        return cuda_is_open(self.pid)

    @property
    def usage(self) -> Dict[str, Any]:
        """For how long the kernel has had its GPUs, and for how long of it a cell ran, since the story tells of it."""
        return self._gpus.gpu_time.unreported()

    def become(self, state: str, **extra: Any) -> None:
        """Change the state, and tell the hub. `extra`: fields of this state that the hub gets as well."""
        self.state, self._since, self._extra = state, self._runtime.time(), extra
        self._gpus.gpu_time.update(state)
        self.tell()

    def seen(self, state: str) -> None:
        """Change the state without telling the hub, which sees it in the kernel's messages."""
        if state != self.state:
            self.state, self._since = state, self._runtime.time()
            self._gpus.gpu_time.update(state)

    def tell(self, lane: Lane = Lane.ORDERED) -> None:
        """Send the status to the hub that is attached, or to the next one."""
        self._server.send(lane, keeper_message(event="state", **dict(self.json(), **self._extra)))

    def brief(self) -> Dict[str, Any]:
        """What other kernels show of this one, whose GPUs they wait for. Any user can ask for it again and again, so
        nothing is read for it."""
        settings = self._settings.now
        idle_for = self._idle_timer.idle_for() if self.state == "idle" else None
        return {
            "notebook": (settings.notebook or settings.reserved_for)[-_NOTEBOOK:],
            "state": self.state,
            "state_since": self._since,
            "idle_since": None if idle_for is None else round(self._runtime.time() - idle_for, 1),
        }

    def json(self) -> Dict[str, Any]:
        """The row of `ps`. With an ended kernel, also the reason of its end."""
        settings = self._settings.now
        reason = self._exit_report.reason._asdict() if self.state == "ended" else {}
        return {
            **reason,
            **self._gpus.standby_status,
            **({} if self._job is None else {"job": self._job.status()}),
            "id": settings.id,
            "name": settings.name,
            "node": socket.gethostname(),
            "state": self.state,
            "gpus": self._gpus.acquisition.uuids,
            "gpu_names": self._gpus.acquisition.names,
            "ignored_leases": self._gpus.ignored_leases,
            "pid": self.pid,
            "notebook": settings.notebook,
            "attached": self.attached,
            "since": self._since,
            "priority": settings.priority,
            "place": self._gpus.acquisition.place,
            "started": settings.started,
            "boot": boot_id(),
            "protocol": PROTOCOL,
            "placement": settings.placement,
        }
