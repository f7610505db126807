"""What there is to know of a kernel: its state, and the word of it that hubs and `ps` get. It decides nothing."""

from __future__ import annotations

import socket
import time
from typing import Any, Callable, Dict

from ...wire import PROTOCOL
from ...wire.messages import Lane, word
from ...wire.texts import COMMAND
from ..exit.report import ExitReport
from ..gpus.manager import GpuManager
from ..process.kernel_process import KernelProcess
from ..procfs import boot_id
from .server import KeeperServer


class Status:
    """`state`: starting, waiting, idle, busy or ended; `become` another, and hubs hear of it."""

    def __init__(
        self,
        settings: Dict[str, Any],
        kernel: KernelProcess,
        exit_report: ExitReport,
        server: KeeperServer,
        gpus: Callable[[], GpuManager],
    ) -> None:
        self.state = "starting"
        self._since = time.time()
        self._more: Dict[str, Any] = {}
        self._settings = settings
        self._kernel = kernel
        self._gpus = gpus
        self._ending = exit_report
        self._door = server

    def become(self, state: str, **more: Any) -> None:
        """`more`: what belongs to this state and is told with it."""
        self.state, self._since, self._more = state, time.time(), more
        self.tell()

    def seen(self, state: str) -> None:
        """What the kernel says itself, to the hub as well."""
        if state != self.state:
            self.state, self._since = state, time.time()

    def tell(self, lane: Lane = Lane.ORDERED) -> None:
        """To the hub that is there, or to come."""
        self._door.send(lane, word(event="state", **dict(self.json(), **self._more)))

    def facts(self) -> Dict[str, Any]:
        """What a front end's first cell says of this kernel: {…json, program: how the user runs our commands}."""
        return dict(self.json(), program=self._settings.get("program") or COMMAND)

    def json(self) -> Dict[str, Any]:
        """What `ps` shows: {id, name, node, state, gpus, gpu_names, pid, notebook, attached, since,
        started},
        at the end its why."""
        why = self._ending.death._asdict() if self.state == "ended" else {}
        return {
            **why,
            "id": str(self._settings["id"]),
            "name": self._settings.get("name", ""),
            "node": socket.gethostname(),
            "state": self.state,
            "gpus": self._gpus().uuids,
            "gpu_names": self._gpus().names,
            "pid": self._kernel.pid,
            "notebook": self._settings.get("notebook", ""),
            "attached": self._door.attached,
            "since": self._since,
            "started": self._settings.get("started", 0),
            "boot": boot_id(),
            "protocol": PROTOCOL,
        }
