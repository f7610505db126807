"""What the keeper does when it is asked: by the attached hub (commands), or on any connection to its socket (requests).

A request comes from `attach`, or from the kernel itself (`%gpu`), and has a reply. A command has none. `Status` is what
hubs and `ps` get of the kernel.
"""

from __future__ import annotations

import signal
import socket
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Protocol

from ...wire import PROTOCOL
from ...wire.fields import FieldError, items, number, text
from ...wire.messages import MAX_CLIENTS, Channel, Lane, Message, keeper_message
from ...wire.queues import MAX_MESSAGE
from ...wire.runtime import Runtime
from ...wire.texts import COMMAND
from ..exit.report import ExitReport
from ..gpus.manager import GpuManager
from ..loop import Loop
from ..process.kernel_process import KernelProcess
from ..process.signals import Pause
from ..procfs import boot_id
from ..relay.relay import Relay
from ..story import Limited, Story
from .lifetime import IdleTimer, Replacement
from .server import KeeperServer

MAX_CELLS = 100_000
"""Cells in one command."""
UNKNOWN_STATE = "?"
"""The state of a cell from a hub that does not tell it."""
_OWNER_KEYS = ("owner", "by")
Handler = Callable[[Dict[str, Any]], Optional[Dict[str, Any]]]


class UnansweredCell(NamedTuple):
    """An execute_request that the hub has no reply for. `state`: the last one that front ends have been sent."""

    request: Message
    state: str

    @classmethod
    def read(cls, cell: Any) -> UnansweredCell:
        """Read {"client", "parts" (as text), "said" (the last state that front ends have received)}."""
        if not isinstance(cell, dict):
            raise FieldError("a cell that is no object")
        texts = [text({"part": part}, "part", most=MAX_MESSAGE) for part in items(cell, "parts", 4, least=4)]
        parts = tuple(part.encode("utf-8", "surrogateescape") for part in texts)
        request = Message(Channel.SHELL, number(cell, "client", most=MAX_CLIENTS), parts)
        text(request.header(), "msg_id")
        request.content()
        return cls(request.unparsed(), text(cell, "said", UNKNOWN_STATE))


class KeeperParts(Protocol):
    """The parts and methods of a keeper that the handlers use."""

    settings: Dict[str, Any]
    loop: Loop
    story: Story
    server: KeeperServer
    relay: Relay
    status: Status
    pause: Pause
    idle_timer: IdleTimer
    replacement: Replacement

    def stop(self, why: str) -> None: ...
    def restart(self, why: str) -> None: ...
    def send_signal(self, number: int) -> None: ...
    def update_settings(self, changes: Mapping[str, str]) -> None: ...
    def set_unanswered(self, cells: List[UnansweredCell], count: int) -> None: ...


class CommandHandlers:
    """Executes commands of the hub: {"do": …}. Unknown ones are ignored. FieldError for malformed ones."""

    def __init__(self, keeper: KeeperParts) -> None:
        self._keeper = keeper
        self._limited_story = Limited(keeper.story, keeper.loop.time)
        self._handlers: Dict[str, Callable[[Dict[str, Any]], None]] = {
            "interrupt": self._interrupt,
            "heard": lambda command: keeper.relay.aborts.failure_seen(text(command, "reply")),
            "restart": lambda _: keeper.restart("restarted by the user"),
            "revive": self._revive,
            "kill": self._signal,
            "signal": self._signal,
            "stop": lambda command: keeper.stop(text(command, "why", "on request")),
            "tell": self._tell,
            "notebook": self._notebook,
            "unanswered": self._unanswered,
        }

    def handle(self, command: Dict[str, Any]) -> None:
        """Execute one command."""
        handler = self._handlers.get(text(command, "do"))
        if handler is not None:
            handler(command)

    def _interrupt(self, command: Dict[str, Any]) -> None:
        cells = map(str, items(command, "cells", MAX_CELLS, default=[]))
        self._keeper.relay.interrupt(cells, late=command.get("late") is True)

    def _revive(self, _: Dict[str, Any]) -> None:
        if self._keeper.status.state == "ended":
            self._keeper.restart("started again by the user")

    def _signal(self, command: Dict[str, Any]) -> None:
        self._keeper.send_signal(number(command, "number", signal.SIGKILL, least=1, most=signal.NSIG - 1))

    def _tell(self, command: Dict[str, Any]) -> None:
        self._limited_story.tell(text(command, "event", most=64), text(command, "text"))

    def _notebook(self, command: Dict[str, Any]) -> None:
        notebook = text(command, "notebook")
        self._limited_story.tell("notebook", f"the kernel's notebook is {notebook}", notebook=notebook)
        self._keeper.update_settings({"notebook": notebook})
        self._keeper.status.tell()

    def _unanswered(self, command: Dict[str, Any]) -> None:
        cells = [UnansweredCell.read(cell) for cell in items(command, "cells", MAX_CELLS)]
        self._keeper.set_unanswered(cells, number(command, "count", 0))


class RequestHandlers:
    """Handles requests: {"do": …}; each has a reply. FieldError for malformed ones."""

    def __init__(self, keeper: KeeperParts) -> None:
        self._keeper = keeper
        self._restart_after = ""  # the msg_id of a cell
        self._handlers: Dict[str, Handler] = {
            "status": lambda _: {**keeper.status.json(), **self._owner()},
            "stop": self._stop,
            "pause": self._pause,
            "resume": lambda _: keeper.pause.end(),
            "return": self._return,
            "owner": lambda _: self._owner(),
            "missed": lambda request: keeper.relay.reattach.missed_cells(request),
            "fresh": self._fresh,
            "journal": lambda request: keeper.relay.reattach.journal(request),
        }

    def handle(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """The reply to one request."""
        do = text(request, "do")
        handler = self._handlers.get(do)
        if handler is None:
            return {"error": {"code": "unknown", "text": f"unknown request: {do!r}"}}
        return handler(request) or {"ok": True}

    def replied(self, msg_id: str) -> None:
        """The reply to this cell has been sent: restart the kernel if the cell has asked for that."""
        if self._restart_after and msg_id == self._restart_after:
            self._restart_after = ""
            self._keeper.loop.later(0, lambda: self._keeper.restart("%gpu fresh: a new kernel"))

    def _owner(self) -> Dict[str, Any]:
        """The owner of this kernel, and the protocol that this keeper speaks."""
        return {"protocol": PROTOCOL, **{key: self._keeper.settings.get(key, "") for key in _OWNER_KEYS}}

    def _stop(self, request: Dict[str, Any]) -> None:
        """`replaced_by`: the kernel that its notebook has instead, and that gets the GPUs."""
        self._keeper.replacement.set_replaced_by(text(request, "replaced_by", ""))
        self._keeper.stop(text(request, "why", "on request"))

    def _pause(self, _: Dict[str, Any]) -> None:
        if self._keeper.relay.busy:
            self._keeper.pause.begin_when(lambda: not self._keeper.server.attached)

    def _return(self, request: Dict[str, Any]) -> None:
        """Another front end attaches: output that the last one has not received is kept for it. If that one is still
        attached, it is detached."""
        keeper = self._keeper
        changes = {key: text(request, key) for key in ("notebook", *_OWNER_KEYS) if key in request}
        by = changes.get("by") or "another front end"
        if keeper.server.attached:
            keeper.story.tell("takeover", f"taken over by {by}")
            keeper.server.detach()
        else:
            notebook = changes.get("notebook") or keeper.settings.get("notebook", "")
            keeper.story.tell(
                "return", f"a front end returned: {changes.get('notebook') or by}", notebook=notebook
            )
        keeper.update_settings(changes)
        keeper.idle_timer.used()
        keeper.pause.end()
        keeper.relay.front_end_returned(keeper.server.withdraw(), list(map(str, request.get("others", []))))

    def _fresh(self, request: Dict[str, Any]) -> None:
        """The kernel asks for a restart, after the reply to the cell that does."""
        self._restart_after = text(request, "cell")


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
