"""One remote kernel in the hub: its life cycle, its attachment to the link, and its last known status.

The kernel's messages pass through `relay.py`. This module knows no SSH.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...errors import AgentError, GpuKernelError, KernelStartError
from ...wire.kernel_messages.compose import is_user_cell
from ...wire.messages import Data, Lane, Message, keeper_message
from ...wire.stream.endpoint import Endpoint
from ..front_end.edge import Edge
from ..front_end.front_ends import FrontEnd, FrontEndSpec
from ..front_end.requests import wants_restart
from ..kernel_settings import KernelSettings
from ..node.node_link import NodeLink, NoLink
from .core.displays import KEEPS_RUNNING, STARTS
from .core.relay import HubRelay
from .description import describe
from .kernel_state import CREATED, HubContext, KernelState, Origin
from .late_start import LateStart
from .states import AttachTiming, LinkState, Phase

_RUNS = ("starting", "waiting", "idle", "busy")
"""The states in which the placeholder answers for the kernel."""


class RemoteKernel(KernelState):
    """A kernel with its front ends (`front_ends`). For the link it is an `Attachment`."""

    def __init__(
        self,
        context: HubContext,
        kernel_id: str,
        settings: KernelSettings,
        front_end: FrontEndSpec,
        link: NodeLink,
        origin: Origin = CREATED,
    ) -> None:
        """`front_end`: the kernel's first front end."""
        super().__init__(kernel_id, settings, link, origin.how)
        self._runtime = context.runtime
        self.owner = dict(context.owner)
        self.session = origin.session
        self.on_create: Callable[[str], NodeLink] = lambda kernel_id: self.link
        """Called with the new id when the kernel is created anew; returns the link, which may be another one by now."""
        self._delivered = origin.delivered
        self._attach_timing = AttachTiming(link, self)
        self._relay = HubRelay(context, self, link, self._attach_timing, settings, origin.delivered)
        self.front_ends, self.displays = self._relay.front_ends, self._relay.displays
        self.front_ends.add(front_end)
        self.starter = origin.starter
        self.late_start = LateStart(self, self._relay, self._attach_timing)
        if isinstance(link, NoLink):
            self.late_start.begin()
        self._attach_timing.begin(at_once=origin.how != "adopt")
        if self.waits_for_link:
            self.detached("")

    def __repr__(self) -> str:
        state = self.status["state"]
        return f"<RemoteKernel {self.kernel_id} {state} link={self.link_state.value} {self.endpoint!r}>"

    @property
    def edge(self) -> Edge:
        """The edge of the first front end."""
        return next(iter(self.front_ends)).edge

    def describe(self) -> dict[str, Any]:
        """Return {…the keeper's status, "kernel_id" (Jupyter's), "link", "hop", "error", "away_since"}, for clients."""
        problem = self.error or (self.link.problem if self.link_state is LinkState.AWAY else None)
        state = self._relay.placeholder.newest_state(self.status["state"])
        since = self._relay.placeholder.since or self.status.get("since")
        status = {**self.status, "state": state, "since": since}
        away_since = self._relay.notice.since
        settings, link_state = self.settings, self.link_state
        if self.late_start.pending:  # no link is needed before the start
            settings, link_state = settings.before_start(), LinkState.UP
        described = describe(settings, status, self.link, link_state, problem, away_since)
        return {**described, "front_ends": len(self.front_ends)}

    def event(self) -> dict[str, Any]:
        """Return the description as an event for front ends. `from_vs_code`: for the hub that adopts the kernel if this
        one is killed."""
        known = {"event": "kernel", "kernel": self.kernel_id, "from_vs_code": self.is_of_vs_code}
        return {**known, **self.describe()}

    @property
    def served(self) -> bool:
        """Whether the kernel has a front end that has not left."""
        return len(self.front_ends) > len(self.absent)

    @property
    def can_be_found(self) -> bool:
        """Whether a front end can find the kernel again by its notebook. VS Code can, also while it has not named the
        notebook yet, or the notebook is not saved."""
        return bool(self.settings.notebook) or self.is_of_vs_code

    @property
    def pending(self) -> bool:
        """Whether the kernel has no node, and a cell of its user may start it."""
        return self.late_start.pending and not (self.closed or self.end_wanted)

    # -------------------------------------------------------------------------------------- operations

    def command(self, do: str, **arguments: Any) -> None:
        """Send a command to the keeper: interrupt, restart, kill, signal, stop."""
        if do == "restart":
            self.status = dict(self.status, state="starting")
        self._relay.command(do, **arguments)

    def set_notebook(self, notebook: str) -> None:
        """The kernel's notebook is known now, or was renamed."""
        self.settings = self.settings.replace(notebook=notebook)
        self._relay.send(Lane.URGENT, keeper_message(do="notebook", notebook=notebook))

    def hold(self) -> None:
        """From now on requests wait for `resume`, as their kernel is still to be started or found."""
        self._relay.table.held = True

    def resume(self) -> None:
        """Send the requests that were held."""
        if self.closed:
            return
        self._relay.resume()
        self.wake()

    def pause(self) -> None:
        """The front end has gone and may return: the ports stay bound, and the output stays with the keeper."""
        self.hold()
        self._attach_timing.release()

    def restart(self, *, host_lost: bool = False) -> None:
        """Start a new kernel process, with the same ports, and with the same GPUs unless the kernel's host is lost."""
        requested = self.phase is Phase.RESTART
        self.set_phase(Phase.RUN)
        for front in self.front_ends:
            front.edge.restore_ipc_files()
        if self.late_start.pending:
            self.late_start.restart(requested=requested)
        elif host_lost or self.link_state is LinkState.LOST:
            self._relay.discard_requests()
            self.status, self.error = dict(self.status, state="starting"), None
            self._create_anew()
        else:
            self.restart_begins()
            self._attach_timing.attach()
            self.command("restart")
        self.resume()

    def switch(self, kernel_id: str) -> None:
        """Give the front ends the kernel with this id: a kernel that their notebook had left, or a new one. That kernel
        gets the requests to which there is no reply yet."""
        self._attach_timing.release()
        self._relay.switch(kernel_id)
        self.kernel_id = kernel_id
        self._attach_timing.attach()

    # -------------------------------------------------------------------------------------- the end

    def refuse(self, error: GpuKernelError) -> None:
        """The front end does not get this kernel: answer all its requests, as VS Code waits for the replies."""
        if self.link_state is not LinkState.UP:
            self.endpoint.outbox.withdraw()  # such as a restart, which is not wanted any more
        self._relay.kernel_lost(str(error))

    def stop(self, why: str) -> None:
        """End a kernel that no front end needs: unbind its ports at once, and close it when the keeper has gone."""
        if self.phase in (Phase.STOP, Phase.CLOSED):
            return
        self.forget_absent()
        self.front_ends.close()
        self.set_phase(Phase.STOP)
        self.command("stop", why=why)
        self._attach_timing.attach()
        self._close_if_stopped()

    def close(self) -> None:
        """Give up the kernel's ports and its attachment. The keeper lives on."""
        if self.closed:
            return
        self.set_phase(Phase.CLOSED)
        self.forget_absent()
        self.late_start.hide()
        self._relay.close()
        self._attach_timing.close()
        self.front_ends.close()
        if self._delivered is not None and self.front_ends.complete:
            self._delivered.forget()
        elif self._delivered is not None:
            self._delivered.close()  # another front end of a killed hub is still to adopt the kernel
        self.notify()

    # -------------------------------------------------------------------------------------- calls of the link

    @property
    def endpoint(self) -> Endpoint:
        """The hub's end of the message stream to the keeper."""
        return self._relay.endpoint

    def open_request(self) -> dict[str, Any]:
        """Return arguments for the agent's `open`: what to do, for whom, and in which boot the kernel ran."""
        boot = {"boot": self.status.get("boot", "")}
        return {**self.owner, **boot, **({} if self.phase is Phase.STOP else self.open_arguments)}

    def opened(self, kernel_id: str) -> None:
        """The agent has opened a stream to the kernel with this id, which may be one that the notebook had left."""
        self.kernel_id = kernel_id
        self._relay.opened(kernel_id)

    def deliver(self, data: Data) -> None:
        """Take a message of the keeper."""
        self._relay.deliver(data)

    def attached(self) -> None:
        """The stream to the keeper is open, for the first time or after an outage."""
        self.open_arguments = {}
        self.set_link_state(LinkState.UP)
        if text := self.link.connection:
            self._relay.send(Lane.URGENT, keeper_message(do="tell", event="connection", text=text))
        self._relay.notice.link_up()
        self.late_start.end()
        self._relay.link_up()

    def detached(self, reason: str) -> None:
        """The link is down, and reconnects by itself."""
        if self.phase is Phase.REVIVE:
            # The keeper may have started the kernel: its cell must not run once more, in another one.
            self.set_phase(Phase.RUN)
        if not self.open_arguments or self.waits_for_link:
            silence = self._runtime.monotonic() - self.link.last_received
            kernel = STARTS if self.open_arguments else KEEPS_RUNNING
            self._relay.link_down(self.link.problem, silence, kernel)
        self.set_link_state(LinkState.CONNECTING if self.open_arguments else LinkState.AWAY)

    def lost(self, error: GpuKernelError) -> None:
        """The keeper does not exist any more, or could not be started; or another computer has the kernel now."""
        self._relay.notice.link_up()  # the node has answered: no cell waits for the link any more
        if getattr(error, "code", "") == "taken":
            self._taken_cause = error.cause
            self._relay.kernel_taken(error.cause, error.remedy)
            return self.set_link_state(LinkState.TAKEN)
        if self.starter is not None and self.starter.lost(self, error):
            return
        if self.phase is Phase.REVIVE:  # the keeper was about to exit
            return self._create_anew()
        self.end(error)

    def end(self, error: GpuKernelError) -> None:
        """The kernel does not exist any more, for this reason."""
        if not self.ended:
            kind = KernelStartError if "create" in self.open_arguments else AgentError
            self.error = kind(error.cause, hop=error.hop, remedy=error.remedy)
            self._relay.kernel_lost(f"{error.cause}. {error.remedy}")  # which may bring older states
            self.status = dict(self.status, state="ended", cause=error.cause, remedy=error.remedy)
        self.set_link_state(LinkState.LOST)

    # -------------------------------------------------------------------------------------- calls of the relay

    @property
    def is_reachable(self) -> bool:
        """Whether the kernel was attached before, or can be attached at present."""
        return not self.open_arguments or self.link.state == "up" or self.waits_for_link

    @property
    def is_of_vs_code(self) -> bool:
        """Whether the kernel's front end is known to be VS Code."""
        return self.session is not None and self.session.from_vs_code

    @property
    def waits_for_link(self) -> bool:
        """Whether VS Code restarts a kernel, or returns to one, while the link is down: the start waits for the link,
        as cells do."""
        return self.session is not None and self.session.expected and self.link.state == "away"

    def observe_shell_request(self, request: Message) -> None:
        """A front end sends this request on the shell channel."""
        if self.session is not None:
            self.session.observe(self, request)

    def interrupted_before_start(self) -> None:
        """The user has interrupted the kernel, which has not been started."""
        self.late_start.cancel_cells()
        if self.starter is not None:
            self.starter.interrupted()
        self.wake()

    def shut_down_before_start(self, request: Message) -> None:
        """A front end has requested the shutdown of the kernel, which has not been started."""
        restart = wants_restart(request)
        self.late_start.discard_cells()
        self._relay.placeholder.reply(request, {"status": "ok", "restart": restart})
        self.late_start.shut_down(restart=restart)

    def take_back(self) -> None:
        """A user's cell takes the kernel back from another computer."""
        self.open_arguments = {"attach": {}}  # so the keeper greets the front end
        self.set_link_state(LinkState.CONNECTING)
        self.switch(self.kernel_id)

    def taken_over(self) -> None:
        """A front end has taken the kernel over from the one that owned it, and that may have asked for a restart."""
        if self.phase is Phase.RESTART:
            self.restart()

    def status_reported(self, status: dict[str, Any]) -> None:
        """The keeper reports the kernel's status."""
        if status.get("cause"):
            status["cause"] = f"the node says: {status['cause']}"
        if status["state"] in _RUNS:
            self._relay.placeholder.update_state(status["state"])
        if self.is_outdated(status):
            return
        self.status = dict(status, id=self.kernel_id)  # the id that it has here, whatever the node says
        if self.phase is Phase.REVIVE and status["state"] != "ended":
            self.set_phase(Phase.RUN)
        self.notify()

    def revive_if_ended(self, front: FrontEnd, request: Message) -> None:
        """Start the kernel anew if it has ended by itself and this request is a cell of its user. Nobody else may do
        so."""
        if not (front.spec.revives and self.ended and is_user_cell(request)) or self.phase is Phase.RESTART:
            return
        cause = self.status.get("cause") or (self.error.cause if self.error else "?")
        text = f"The kernel had ended: {cause}. This is a new one, without its variables."
        self.status, self.error = dict(self.status, state="starting"), None
        self.set_phase(Phase.REVIVE)
        if self.starter is not None and self.link_state is LinkState.LOST:
            self.late_start.tell(text)
        else:
            self._relay.placeholder.show_text(request, text)
        if self.link_state is LinkState.LOST:
            return self._create_anew()
        self._relay.send(Lane.ORDERED, keeper_message(do="revive"))

    # -------------------------------------------------------------------------------------- helpers

    def _create_anew(self) -> None:
        """Create the kernel anew, at once, or with the next cell if there is a starter. The kernel gets another id, as
        processes of the old kernel may still run."""
        if self.starter is not None:
            return self.starter.restart(self)
        self.set_phase(Phase.RUN)
        self.status, self.error = dict(self.status, state="starting", gpus=[]), None
        self.set_link_state(LinkState.CONNECTING)
        self._attach_timing.release()
        kernel_id = self._runtime.new_id()[:12]
        self.late_start.start_on(self.on_create(kernel_id), self.settings, kernel_id)

    def _close_if_stopped(self) -> None:
        gone = self.link_state in (LinkState.LOST, LinkState.TAKEN) or self.link.state == "failed"
        gone = gone or self.late_start.pending
        if self.phase is Phase.STOP and gone:
            self.close()

    def notify(self) -> None:
        """Tell front ends and watchers that the description has changed."""
        self.front_ends.notify(self.event())
        super().notify()
        self._close_if_stopped()
