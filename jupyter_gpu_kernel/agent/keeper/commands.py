"""What the keeper does when it is asked: by the attached hub (commands), or on any connection to its socket (requests).

A request comes from `attach`, or from the kernel itself (`%gpu`), and has a reply. A command has none. `Status` is the
state of the kernel, as hubs, `ps` and other kernels see it.
"""

from __future__ import annotations

import signal
import socket
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, List

from ...wire import MAX_PRIORITY, PROTOCOL
from ...wire.fields import FieldError, items, load_object, number, text, texts
from ...wire.messages import MAX_CLIENTS, Channel, Lane, Message, keeper_message
from ...wire.stream.queues import MAX_MESSAGE
from ..core.events import FrontEndReturned, HistoryRead, MissedRequested, Tell
from ..log.requests import MAX_REQUESTS, request_type
from ..story import Limited
from ..system.procfs import boot_id

if TYPE_CHECKING:
    from .keeper import Keeper

_NOTEBOOK = 100
"""The length of the end of a notebook's path that other kernels show."""
MAX_OTHERS = 1000
"""Other kernels of the notebook that one request names."""
_MAX_HEADER = 64 * 1024
_OWNER_KEYS = ("owner", "by")
Handler = Callable[[Dict[str, Any]], Any]


class Status:
    """`state`: starting, waiting, idle, busy or ended. `become` changes it and tells the hub."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._time = keeper.loop.runtime.time
        self.state: str = "starting"
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


def read_unanswered(command: Dict[str, Any]) -> List[Message]:
    """Return the requests of the command `unanswered`. Raises FieldError or MessageError if it is malformed."""
    cells = []
    for cell in items(command, "cells", MAX_REQUESTS):
        if not isinstance(cell, dict):
            raise FieldError("a cell that is no object")
        parts = texts(cell, "parts", 4, least=4, length=MAX_MESSAGE)
        encoded = tuple(part.encode("utf-8", "surrogateescape") for part in parts)
        request = Message(Channel.SHELL, number(cell, "client", most=MAX_CLIENTS), encoded)
        request_type(request)
        cells.append(request.unparsed())
    return cells


class KernelCommands:
    """Executes the commands and answers the requests of hubs: both are {"do": …}. Malformed ones raise FieldError."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._story = story = Limited(keeper.story, keeper.loop.time)
        self._commands: Dict[str, Handler] = {
            # The core has carried out the first two: here malformed ones end their connection.
            "cancel": lambda command: texts(command, "cells", MAX_REQUESTS, default=[]),
            "failure_seen": lambda command: text(command, "reply"),
            "interrupt": lambda _: keeper.interrupt(),
            "restart": lambda _: keeper.restart("restarted by the user"),
            "revive": self._revive,
            "kill": self._signal,
            "signal": self._signal,
            "stop": lambda command: keeper.stop(text(command, "why", "on request")),
            "tell": lambda command: story.tell(text(command, "event", most=64), text(command, "text")),
            "notebook": self._set_notebook,
            "unanswered": keeper.set_unanswered,
        }
        if keeper.job is not None:
            self._commands["job"] = keeper.job.set_end_time
        self._requests: Dict[str, Handler] = {
            "status": self._report_status,
            "stop": self._stop,
            "return": self._return,
            "owner": self._owner,
            "confirm": self._confirm,
            "priority": self._set_priority,
            "interrupt": self._commands["interrupt"],
            "restart": self._commands["restart"],
            "missed": self._missed,
            # The kernel asks for a restart, which begins after the reply to the cell that asks.
            "fresh": lambda request: keeper.restart_after(text(request, "cell")),
            "journal": self._journal,
        }

    def execute(self, command: Message) -> None:
        """Execute a command of the attached hub. Unknown commands are ignored."""
        handler = self._commands.get(text(command.content(), "do"))
        if handler is not None:
            handler(command.content())

    def answer(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """Return the reply to a request, which may come on any connection."""
        do = text(request, "do")
        handler = self._requests.get(do)
        if handler is None:
            return {"error": {"code": "unknown", "text": f"unknown request: {do!r}"}}
        return handler(request) or {"ok": True}

    # -------------------------------------------------------------------------------------- commands

    def _revive(self, _: Dict[str, Any]) -> None:
        if self._keeper.status.state == "ended":
            self._keeper.restart("started again by the user")

    def _signal(self, command: Dict[str, Any]) -> None:
        self._keeper.send_signal(number(command, "number", signal.SIGKILL, least=1, most=signal.NSIG - 1))

    def _set_notebook(self, command: Dict[str, Any]) -> None:
        notebook = text(command, "notebook")
        self._story.tell("notebook", f"the kernel's notebook is {notebook}", notebook=notebook)
        self._keeper.settings.change(notebook=notebook)
        self._keeper.status.tell()

    # -------------------------------------------------------------------------------------- requests

    def _report_status(self, request: Dict[str, Any]) -> Dict[str, Any]:
        return {
            **self._keeper.status.json(),
            **self._owner(request),
            **self._cells(),
            "usage": self._keeper.gpus.gpu_time.unreported(),
        }

    def _cells(self) -> Dict[str, Any]:
        """How many cells run or wait, and how the last cell ended that has ended; null if none has."""
        last = self._keeper.core.log.state.cells.last_ended()
        return {
            "cells": sum(one.is_cell for one in self._keeper.core.log.state.requests.pending.values()),
            "last_cell": None if last is None else last.brief(),
        }

    def _owner(self, _: Dict[str, Any]) -> Dict[str, Any]:
        """The owner of this kernel, and the protocol that this keeper speaks."""
        settings = self._keeper.settings.now
        return {"protocol": PROTOCOL, "owner": settings.owner, "by": settings.by}

    def _stop(self, request: Dict[str, Any]) -> None:
        """`replaced_by`: the kernel that the notebook has instead, and that gets the GPUs."""
        self._keeper.stop(text(request, "why", "on request"), text(request, "replaced_by", ""))

    def _return(self, request: Dict[str, Any]) -> None:
        """Another front end attaches. Output that the previous front end has not received is kept for the new one. If
        the previous front end is still attached, it is detached."""
        changes = {key: text(request, key) for key in ("notebook", *_OWNER_KEYS) if key in request}
        by = changes.get("by") or "another front end"
        if self._keeper.server.attached:
            self._keeper.story.tell("takeover", f"taken over by {by}")
            self._keeper.server.detach()
        else:
            notebook = changes.get("notebook") or self._keeper.settings.now.notebook
            front_end = changes.get("notebook") or by
            self._keeper.story.tell("return", f"a front end returned: {front_end}", notebook=notebook)
        self._keeper.settings.change(**changes)
        self._keeper.idle_timer.used()
        others = texts(request, "others", MAX_OTHERS, default=[])
        unread = self._keeper.runner.log_file.queue.parents
        self._keeper.handle(FrontEndReturned(others, unread, time.localtime().tm_gmtoff))

    def _missed(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """The summaries of the missed cells, for the kernel's user. With `parent`, the header of the cell that asks,
        their output is sent again as output of that cell."""
        parent = text(request, "parent", "", most=_MAX_HEADER).encode("utf-8", "replace")
        cells = [cell.summary() for cell in self._keeper.core.relay.reattach.missed]
        if parent:
            load_object(parent)
            self._keeper.handle(MissedRequested(parent, time.localtime().tm_gmtoff))
        return {"cells": cells}

    def _journal(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """A page of the logged cells, for a front end that fills its cells by their ids."""
        page = self._keeper.core.log.state.cells.page_of(request)
        self._keeper.handle(HistoryRead())
        return page

    def _confirm(self, request: Dict[str, Any]) -> None:
        """A reservation becomes the kernel of a notebook. `placement`: why this host was chosen."""
        if self._keeper.settings.now.reservation:
            changes = {key: text(request, key, "") for key in ("notebook", "placement")}
            self._keeper.settings.change(**changes, reservation=False)
            self._keeper.story.tell("host", changes["placement"])

    def _set_priority(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """Set the priority, which also counts when the kernel waits later. `place`: None if it does not wait now."""
        priority = number(request, "priority", least=-MAX_PRIORITY, most=MAX_PRIORITY)
        self._keeper.settings.change(priority=priority)
        place = self._keeper.gpus.set_priority(priority)
        self._keeper.status.tell()
        return {"priority": priority, "place": place}
