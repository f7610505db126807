"""The status of a kernel, as hubs and `ps` get it."""

from __future__ import annotations

import socket
from typing import Any, Callable, Dict

from ...wire import PROTOCOL
from ...wire.messages import Lane, keeper_message
from ...wire.runtime import Runtime
from ...wire.texts import COMMAND
from ..exit.report import ExitReport
from ..gpus.manager import GpuManager
from ..process.kernel_process import KernelProcess
from ..procfs import boot_id
from .server import KeeperServer


class Status:
    """`state`: starting, waiting, idle, busy or ended. `become` changes it and tells the hub."""

    def __init__(
        self,
        runtime: Runtime,
        settings: Dict[str, Any],
        kernel: KernelProcess,
        exit_report: ExitReport,
        server: KeeperServer,
        gpus: Callable[[], GpuManager],
    ) -> None:
        self._runtime = runtime
        self.state = "starting"
        self._since = runtime.time()
        self._extra: Dict[str, Any] = {}
        self._settings = settings
        self._kernel = kernel
        self._gpus = gpus
        self._exit_report = exit_report
        self._server = server

    def become(self, state: str, **extra: Any) -> None:
        """Change the state, and tell the hub. `extra`: fields of this state that the hub gets as well."""
        self.state, self._since, self._extra = state, self._runtime.time(), extra
        self.tell()

    def seen(self, state: str) -> None:
        """Change the state without telling the hub, which sees it in the kernel's messages."""
        if state != self.state:
            self.state, self._since = state, self._runtime.time()

    def tell(self, lane: Lane = Lane.ORDERED) -> None:
        """Send the status to the hub that is attached, or to the next one."""
        self._server.send(lane, keeper_message(event="state", **dict(self.json(), **self._extra)))

    def facts(self) -> Dict[str, Any]:
        """What a front end's first cell shows: `json()` and "program", how the user runs our commands."""
        return dict(self.json(), program=self._settings.get("program") or COMMAND)

    def json(self) -> Dict[str, Any]:
        """The row of `ps`. With an ended kernel, also the reason of its end."""
        reason = self._exit_report.reason._asdict() if self.state == "ended" else {}
        return {
            **reason,
            "id": str(self._settings["id"]),
            "name": self._settings.get("name", ""),
            "node": socket.gethostname(),
            "state": self.state,
            "gpus": self._gpus().uuids,
            "gpu_names": self._gpus().names,
            "pid": self._kernel.pid,
            "notebook": self._settings.get("notebook", ""),
            "attached": self._server.attached,
            "since": self._since,
            "started": self._settings.get("started", 0),
            "boot": boot_id(),
            "protocol": PROTOCOL,
        }
