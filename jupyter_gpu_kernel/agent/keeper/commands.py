"""What the keeper does when it is asked: by the attached hub (commands), or on any connection to its socket (requests).

A request comes from `attach`, or from the kernel itself (`%gpu`), and has a reply. A command has none. `Status` is what
hubs and `ps` get of the kernel.
"""

from __future__ import annotations

import signal
import socket
from typing import Any, Callable, Dict, Optional, Protocol

from ...wire import MAX_PRIORITY, PROTOCOL
from ...wire.fields import items, number, text
from ...wire.messages import Lane, keeper_message
from ...wire.runtime import Runtime
from ..exit.report import ExitReport
from ..gpus.manager import GpuManager
from ..job.member import Membership
from ..kernel_settings import CurrentSettings
from ..process.kernel_process import KernelProcess
from ..process.signals import Pause
from ..procfs import boot_id
from ..relay.received_cells import MAX_CELLS
from ..relay.relay import Relay
from ..story import Limited, Story
from .idle_timer import IdleTimer, cuda_is_open
from .job_notices import JobNotices
from .server import KeeperServer

MAX_ELSEWHERE = 20_000
"""Characters about other hosts in one command."""
_NOTEBOOK = 100
"""The length of the end of a notebook's path that other kernels show."""
_OWNER_KEYS = ("owner", "by")
Handler = Callable[[Dict[str, Any]], Optional[Dict[str, Any]]]


class KernelControl(Protocol):
    """What the handlers ask of the keeper itself."""

    def stop(self, why: str, replaced_by: Optional[str] = None) -> None: ...
    def restart(self, why: str) -> None: ...
    def restart_after(self, cell: str) -> None: ...
    def send_signal(self, number: int) -> None: ...
    def set_unanswered(self, command: Dict[str, Any]) -> None: ...


class CommandHandlers:
    """Executes commands of the hub: {"do": …}. Unknown ones are ignored, malformed ones raise FieldError."""

    def __init__(
        self,
        keeper: KernelControl,
        settings: CurrentSettings,
        relay: Relay,
        status: Status,
        story: Limited,
        job_notices: Optional[JobNotices],
    ) -> None:
        """`job_notices`: of a kernel that runs in a job."""
        self._keeper = keeper
        self._settings = settings
        self._relay = relay
        self._status = status
        self._story = story
        self._handlers: Dict[str, Callable[[Dict[str, Any]], None]] = {
            "interrupt": self._interrupt,
            "cancel": self._cancel,
            "heard": self._heard,
            "restart": self._restart,
            "revive": self._revive,
            "kill": self._signal,
            "signal": self._signal,
            "stop": self._stop,
            "tell": self._tell,
            "notebook": self._notebook,
            "standby": self._standby,
            "confirm": self._confirm,
            "unanswered": keeper.set_unanswered,
        }
        if job_notices is not None:
            self._handlers["job"] = job_notices.set_end_time

    def handle(self, command: Dict[str, Any]) -> None:
        """Execute one command."""
        handler = self._handlers.get(text(command, "do"))
        if handler is not None:
            handler(command)

    def _interrupt(self, command: Dict[str, Any]) -> None:
        cells = map(str, items(command, "cells", MAX_CELLS, default=[]))
        self._relay.interrupt(cells, late=command.get("late") is True)

    def _cancel(self, command: Dict[str, Any]) -> None:
        self._relay.aborts.cancel(map(str, items(command, "cells", MAX_CELLS)))

    def _heard(self, command: Dict[str, Any]) -> None:
        self._relay.aborts.failure_seen(text(command, "reply"))

    def _restart(self, _: Dict[str, Any]) -> None:
        self._keeper.restart("restarted by the user")

    def _revive(self, _: Dict[str, Any]) -> None:
        if self._status.state == "ended":
            self._keeper.restart("started again by the user")

    def _signal(self, command: Dict[str, Any]) -> None:
        self._keeper.send_signal(number(command, "number", signal.SIGKILL, least=1, most=signal.NSIG - 1))

    def _stop(self, command: Dict[str, Any]) -> None:
        self._keeper.stop(text(command, "why", "on request"))

    def _tell(self, command: Dict[str, Any]) -> None:
        self._story.tell(text(command, "event", most=64), text(command, "text"))

    def _standby(self, command: Dict[str, Any]) -> None:
        self._relay.gpus.renew_standby(text(command, "elsewhere", "", most=MAX_ELSEWHERE))

    def _confirm(self, command: Dict[str, Any]) -> None:
        """`notebook`: a reservation becomes that notebook's kernel."""
        changes: Dict[str, Any] = {
            key: text(command, key) for key in ("notebook", "placement") if key in command
        }
        self._settings.change(**changes, standby="")
        if "placement" in changes:
            self._story.tell("host", changes["placement"])
        self._relay.gpus.confirm()

    def _notebook(self, command: Dict[str, Any]) -> None:
        notebook = text(command, "notebook")
        self._story.tell("notebook", f"the kernel's notebook is {notebook}", notebook=notebook)
        self._settings.change(notebook=notebook)
        self._status.tell()


class RequestHandlers:
    """Handles requests: {"do": …}; each has a reply. Malformed ones raise FieldError."""

    def __init__(
        self,
        keeper: KernelControl,
        settings: CurrentSettings,
        story: Story,
        server: KeeperServer,
        relay: Relay,
        status: Status,
        pause: Pause,
        idle_timer: IdleTimer,
    ) -> None:
        self._keeper = keeper
        self._settings = settings
        self._story = story
        self._server = server
        self._relay = relay
        self._status = status
        self._pause = pause
        self._idle_timer = idle_timer
        self._handlers: Dict[str, Handler] = {
            "status": self._tell_status,
            "stop": self._stop,
            "pause": self._begin_pause,
            "resume": self._end_pause,
            "return": self._return,
            "owner": self._owner,
            "priority": self._set_priority,
            "interrupt": self._interrupt,
            "restart": self._restart,
            "missed": relay.reattach.missed_cells,
            "fresh": self._fresh,
            "journal": relay.reattach.journal,
        }

    def handle(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """The reply to one request."""
        do = text(request, "do")
        handler = self._handlers.get(do)
        if handler is None:
            return {"error": {"code": "unknown", "text": f"unknown request: {do!r}"}}
        return handler(request) or {"ok": True}

    def _tell_status(self, request: Dict[str, Any]) -> Dict[str, Any]:
        return {
            **self._status.json(),
            **self._owner(request),
            **self._cells(),
            "usage": self._status.usage,
        }

    def _cells(self) -> Dict[str, Any]:
        """How many cells run or wait, and how the last one ended that did; null if there is none."""
        last = self._relay.history.last_ended()
        return {
            "cells": len(self._relay.unanswered_ids()),
            "last_cell": None if last is None else last.brief(),
        }

    def _owner(self, _: Dict[str, Any]) -> Dict[str, Any]:
        """The owner of this kernel, and the protocol that this keeper speaks."""
        return {"protocol": PROTOCOL, "owner": self._settings.now.owner, "by": self._settings.now.by}

    def _stop(self, request: Dict[str, Any]) -> None:
        """`replaced_by`: the kernel that its notebook has instead, and that gets the GPUs."""
        self._keeper.stop(text(request, "why", "on request"), text(request, "replaced_by", ""))

    def _begin_pause(self, _: Dict[str, Any]) -> None:
        if self._relay.busy:
            self._pause.begin_when(lambda: not self._server.attached)

    def _end_pause(self, _: Dict[str, Any]) -> None:
        self._pause.end()

    def _return(self, request: Dict[str, Any]) -> None:
        """Another front end attaches: output that the last one has not received is kept for it. If that one is still
        attached, it is detached."""
        changes = {key: text(request, key) for key in ("notebook", *_OWNER_KEYS) if key in request}
        by = changes.get("by") or "another front end"
        if self._server.attached:
            self._story.tell("takeover", f"taken over by {by}")
            self._server.detach()
        else:
            notebook = changes.get("notebook") or self._settings.now.notebook
            front_end = changes.get("notebook") or by
            self._story.tell("return", f"a front end returned: {front_end}", notebook=notebook)
        self._settings.change(**changes)
        self._idle_timer.used()
        self._pause.end()
        others = list(map(str, request.get("others", [])))
        self._relay.front_end_returned(self._server.withdraw(), others)

    def _set_priority(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """The place in the queue is None if the kernel is not there: the priority is for the time when it is."""
        priority = number(request, "priority", least=-MAX_PRIORITY, most=MAX_PRIORITY)
        self._settings.change(priority=priority)
        place = self._relay.gpus.set_priority(priority)
        self._status.tell()
        return {"priority": priority, "place": place}

    def _interrupt(self, _: Dict[str, Any]) -> None:
        """The user interrupts a kernel that no front end of the hub has."""
        self._relay.interrupt([], late=True)

    def _restart(self, _: Dict[str, Any]) -> None:
        """The user restarts such a kernel."""
        self._keeper.restart("restarted by the user")

    def _fresh(self, request: Dict[str, Any]) -> None:
        """The kernel asks for a restart, after the reply to the cell that does."""
        self._keeper.restart_after(text(request, "cell"))


class Status:
    """`state`: starting, waiting, idle, busy or ended. `become` changes it and tells the hub."""

    def __init__(
        self,
        runtime: Runtime,
        settings: CurrentSettings,
        kernel: KernelProcess,
        exit_report: ExitReport,
        server: KeeperServer,
        gpus: GpuManager,
        idle_timer: IdleTimer,
        job: Optional[Membership] = None,
    ) -> None:
        """`job`: in which the kernel runs."""
        self._runtime = runtime
        self._job = job
        self.state = "starting"
        self._since = runtime.time()
        self._extra: Dict[str, Any] = {}
        self._settings = settings
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
        return self._gpus.gpu_time.untold()

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
            "gpus": self._gpus.uuids,
            "gpu_names": self._gpus.names,
            "ignored_leases": self._gpus.ignored_leases,
            "pid": self.pid,
            "notebook": settings.notebook,
            "attached": self.attached,
            "since": self._since,
            "priority": settings.priority,
            "place": self._gpus.place,
            "started": settings.started,
            "boot": boot_id(),
            "protocol": PROTOCOL,
            "placement": settings.placement,
        }
