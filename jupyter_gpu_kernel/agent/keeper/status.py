"""The state of a kernel, as hubs, `ps` and other kernels see it."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any, Dict

from ...wire import PROTOCOL
from ...wire.messages import Lane, keeper_message
from ..core.events import Tell
from ..system.procfs import boot_id

if TYPE_CHECKING:
    from .keeper import Keeper

_NOTEBOOK = 100
"""The length of the end of a notebook's path that other kernels show."""


class Status:
    """`state`: starting, waiting, idle, busy or ended. `become` changes it and tells the hub."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._time = keeper.loop.runtime.time
        self.state = "starting"
        self._since = self._time()
        self._extra: Dict[str, Any] = {}
        self._busy_was_reported = False

    def become(self, state: str, **extra: Any) -> None:
        """Change the state, and tell the hub. `extra`: fields of this state that the hub gets as well."""
        self.state, self._since, self._extra = state, self._time(), extra
        self._busy_was_reported = state == "busy"
        self._keeper.gpus.gpu_time.update(state)
        self.tell()

    def seen(self, state: str) -> None:
        """Change the state without telling the hub, which sees it in the kernel's messages, unless the
        successor of a killed keeper has reported to the hub that the kernel is busy."""
        if state != self.state and self._busy_was_reported:
            self.become(state)
        elif state != self.state:
            self.state, self._since = state, self._time()
            self._keeper.gpus.gpu_time.update(state)

    def tell(self, lane: Lane = Lane.ORDERED) -> None:
        """Send the status to the hub that is attached, or to the next one."""
        event = keeper_message(event="state", **dict(self.json(), **self._extra))
        self._keeper.handle(Tell(lane, event))

    def brief(self) -> Dict[str, Any]:
        """What other kernels that wait for this kernel's GPUs show of it. Any user can ask for that repeatedly, so
        no file is read for it."""
        settings = self._keeper.settings.now
        idle_for = self._keeper.idle_timer.idle_for() if self.state == "idle" else None
        return {
            "notebook": settings.notebook[-_NOTEBOOK:],
            "state": self.state,
            "state_since": self._since,
            "idle_since": None if idle_for is None else round(self._time() - idle_for, 1),
        }

    def json(self) -> Dict[str, Any]:
        """The kernel's row of `ps`. If the kernel has ended, the row has also the reason of its end."""
        keeper, settings = self._keeper, self._keeper.settings.now
        reason = keeper.exit_report.reason._asdict() if self.state == "ended" else {}
        return {
            **reason,
            **keeper.gpus.reservation_status,
            **({} if keeper.job is None else {"job": keeper.job.status}),
            "id": settings.id,
            "name": settings.name,
            "node": socket.gethostname(),
            "state": self.state,
            "gpus": keeper.gpus.acquisition.uuids,
            "gpu_names": keeper.gpus.acquisition.names,
            "ignored_leases": keeper.gpus.ignored_leases,
            "pid": keeper.kernel.pid,
            "notebook": settings.notebook,
            "attached": keeper.server.attached,
            "since": self._since,
            "priority": settings.priority,
            "place": keeper.gpus.acquisition.place,
            "started": settings.started,
            "boot": boot_id(),
            "protocol": PROTOCOL,
            "placement": settings.placement,
        }
