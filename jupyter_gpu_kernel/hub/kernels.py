"""The kernels that front ends have here: created, found by id, and released when the clients that serve them leave, or
a moment later where the front end may return.

A client is a launcher or provisioner that is connected to the hub's socket. This module knows no SSH.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from ..errors import HubError
from ..wire.runtime import Runtime
from .background import DiskThread
from .clients.client_connection import ClientConnection
from .front_end.delivered import Delivered
from .front_end.front_ends import FrontEnd, FrontEndSpec
from .front_end.request_file import remove_old
from .jobs.job_files import JobFiles
from .jobs.job_kernels import JobKernels
from .kernel.kernel_state import Origin
from .kernel.messages.placeholder import KernelInfoCache
from .kernel.messages.relayed_kernel import HubContext
from .kernel.messages.request_table import waiting
from .kernel.reconnect_grace import ReconnectGrace, can_be_found, ports_of
from .kernel.remote_kernel import RemoteKernel
from .kernel.states import LinkState, Phase
from .kernel.vscode.pending_stops import PendingStops
from .kernel.vscode.sessions import VSCodeSession, VSCodeSessions, Window
from .kernel_settings import KernelSettings
from .node.node import Node
from .node.node_link import NodeLink, NoLink
from .node.nodes import Nodes, conflict
from .node.shared_connection import RouteSettings
from .paths import data_folder, hub_folder, owner
from .pending.pending_kernels import PendingKernels
from .pending.starter import KernelStarter
from .rpc import Call
from .several_hosts.host_starter import HostStarter
from .several_hosts.placement import Placement
from .slurm.scheduler import Schedulers

_SAVE_WITHIN = 2.0
"""Seconds that the hub's end waits for files to be written."""


class Kernels:
    """All kernels with a front end, and the kernels whose front end may return."""

    def __init__(
        self,
        runtime: Runtime,
        nodes: Nodes,
        schedulers: Schedulers,
        log: logging.Logger,
    ) -> None:
        self._runtime = runtime
        self._nodes = nodes
        self._log = log
        self._kernels: list[RemoteKernel] = []
        self._reconnect_grace = ReconnectGrace(self.stop, self._abandon)
        self._disk = DiskThread()
        remove_old(hub_folder() / "delivered", runtime.time())
        self._owner = owner(runtime)  # once: a laptop's name may change with its network
        infos = KernelInfoCache(data_folder() / "kernel-info", self._disk)
        self._context = HubContext(runtime, log, infos, self._owner)
        self.pending = PendingKernels()
        self._placement = Placement(nodes, self._owner, log)
        job_files = JobFiles(data_folder() / "jobs", self._disk)
        self.jobs = JobKernels(runtime, nodes, schedulers, job_files, self.pending, log)
        self._stops = PendingStops(self._owner["owner"], hub_folder() / "stops")
        self._vscode_sessions = VSCodeSessions(
            runtime.monotonic, self._stops, self._reconnect_grace.release, self._find_elsewhere
        )
        self._stops.load(runtime.time(), self._open_link)

    def __iter__(self) -> Iterator[RemoteKernel]:
        return iter(list(self._kernels))

    @property
    def owner(self) -> dict[str, str]:
        """This user and computer, for requests to agents."""
        return self._owner

    @property
    def in_use(self) -> bool:
        """Whether a front end has a kernel, or may return to its kernel, or a kernel is still to be ended."""
        return bool(self._kernels or self._reconnect_grace or self.jobs.in_use or self._stops)

    def attached(self, node: Node, kernel_id: str) -> bool:
        """Return whether a front end here has this kernel of that node, also while the link reconnects."""
        remote = self.find(kernel_id, node)
        return remote is not None and remote.link_state not in (LinkState.LOST, LinkState.TAKEN)

    def attached_from(self, state: dict[str, Any]) -> str:
        """Return which other computer has this kernel attached, by the keeper's status: "alice@desk", or "". A
        connection of this hub that the keeper still counts is dead."""
        if not state.get("attached") or state.get("owner", "") in ("", self._owner["owner"]):
            return ""
        return str(state.get("by") or "another computer")

    def away(self, node: Node) -> list[tuple[Node, dict[str, Any]]]:
        """Return a row for each kernel that front ends here have on a node which cannot be reached, or in a job of a
        login node which cannot be reached; and the kernel's node. The node that cannot be reached has a row of its own
        with the error."""
        started = (one for one in self._kernels if not one.late_start.pending)
        away = [one for one in started if one.link_state not in (LinkState.UP, LinkState.LOST)]
        found = [(self._node(one), one.describe()) for one in away if _leads_through(one.settings, node)]
        for _, row in found:
            del row["error"]
        return [(kernel_node, {**row, "state": "away", "attached": True}) for kernel_node, row in found]

    async def close(self) -> None:
        """Close all kernels; their keepers live on."""
        for kernel in list(self._kernels):
            kernel.close()
        await self._disk.done(_SAVE_WITHIN)

    def pop_returning(self, settings: KernelSettings, call: Call) -> RemoteKernel | None:
        """Return the kernel whose front end has returned with its ports; None for a new front end. If a kernel waits
        for a front end with the notebook of the new one, that wait is over."""
        remote = self._reconnect_grace.pop(call.arguments["connection"])
        if remote is None:
            self._reconnect_grace.release(settings.name, settings.notebook)
        return remote

    def listed(self, states: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the states of a node's kernels without reservations, which belong to a kernel on another host."""
        reserved = self.pending.reserved
        return [one for one in states if not one.get("reservation") and one["id"] not in reserved]

    def in_queue(self, queue: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the kernels that wait for a GPU. A reservation is listed with the id of the kernel that waits by
        it."""
        reserved = self.pending.reserved
        return [dict(one, id=reserved.get(one["id"], one["id"])) for one in queue]

    def restarted_on(self, settings: KernelSettings, call: Call) -> str:
        """Return the host of the kernel that the call's client, a launcher of VS Code, may replace by a new kernel."""
        window = _window(settings, call)
        return "" if window is None else self._vscode_sessions.restarted_on(window, self._age(call))

    def start_failed(self, settings: KernelSettings, call: Call) -> None:
        """The call's client gets no kernel. If the client is a launcher that was to restart a kernel of VS Code, that
        kernel ends."""
        window = _window(settings, call)
        if window is not None:
            self._vscode_sessions.start_failed(window, self._age(call))

    def starter(self, settings: KernelSettings) -> KernelStarter | None:
        """Return what starts a kernel with these settings when its user runs a cell; None if it is started at once."""
        if settings.slurm:
            return self.jobs.starter(settings)
        if len(settings.hosts) < 2:
            return None
        return HostStarter(self._runtime, self._nodes, self._placement, settings, self._owner, self._log)

    def create(
        self,
        kernel_id: str,
        settings: KernelSettings,
        call: Call,
        link: NodeLink,
        how: str,
        starter: KernelStarter | None = None,
        number: int | None = None,
    ) -> RemoteKernel:
        """Make a kernel for the call's client, which serves its first front end. `how`: see Origin. `number`: the
        number of this front end at a killed hub."""
        session = self._new_session(settings, call)
        delivered = Delivered(self._delivered(settings, kernel_id))
        try:
            if how != "adopt":
                delivered.requests.replace([])  # nobody waits for the replies of another front end
            elif isinstance(link, NoLink):  # what was sent, was sent to a kernel that may not exist any more
                delivered.requests.replace(waiting(delivered.requests.recall()))
            origin = Origin(how, delivered, session, starter)
            front_end = front_end_of(call, number)
            remote = RemoteKernel(self._context, kernel_id, settings, front_end, link, origin)
        except BaseException:
            # The ports are in use. A client that adopts the kernel tries again, and needs the counts.
            delivered.close() if how == "adopt" else delivered.forget()
            raise
        remote.on_create = partial(self._link_anew, settings)
        if starter is not None:
            self.pending.begin(starter, remote, adopted=how == "adopt")
        if session is not None:
            self._vscode_sessions.begin(session)
            call.client.add_close_callback(lambda: self._vscode_sessions.end(session, remote))
        return remote

    def connect(self, remote: RemoteKernel, call: Call) -> FrontEnd:
        """The call's client serves a front end of the kernel: the first front end, or one that returns."""
        if remote not in self._kernels:
            self._kernels.append(remote)
        ports = ports_of(call.arguments["connection"])
        front_ends = list(remote.front_ends)
        front = next((one for one in front_ends if ports_of(one.edge.connection) == ports), front_ends[0])
        front.reconnect(front_end_of(call))
        return front

    def watch_client(self, remote: RemoteKernel, call: Call) -> None:
        """From now on the front end leaves when the call's client does."""
        call.client.add_close_callback(lambda: self._client_left(remote, call.client))

    def of(self, call: Call) -> tuple[RemoteKernel, FrontEnd]:
        """Return the kernel that the call names, and the front end that the call's client serves."""
        for remote in self._kernels:  # two of them may have one id, if the kernel was taken from one of them
            front = remote.front_ends.of(call.client)
            if remote.kernel_id == str(call.arguments["kernel"]) and front is not None:
                return remote, front
        raise HubError("the hub does not serve this kernel any more", remedy="Start it again.")

    def remove(self, remote: RemoteKernel, front: FrontEnd) -> None:
        """The front end leaves the kernel. When the last front end leaves, the kernel is closed."""
        remote.front_ends.remove(front)
        if not len(remote.front_ends):
            self.release(remote)

    def end(self, remote: RemoteKernel, front: FrontEnd, why: str) -> None:
        """The front end leaves the kernel. Unless another front end owns the kernel, it ends for good as soon as the
        link is up."""
        if len(remote.front_ends) == 1:
            return self.stop(remote, why)
        if front is remote.front_ends.owner:
            remote.command("stop", why=why)  # the other front ends are notified
        self.remove(remote, front)

    def release(self, remote: RemoteKernel) -> None:
        """Close a kernel, which lives on unless its shutdown or restart was requested: that request may still wait for
        the link, and would be lost with the front end."""
        self._forget(remote)
        if remote.phase is Phase.SHUT_DOWN and not remote.ended:
            remote.stop("shut down by its front end")
        elif remote.restarts and not remote.ended:
            remote.stop("its front end has left while it restarted")
        else:
            remote.close()

    def _abandon(self, remote: RemoteKernel) -> None:
        """The front end has gone, and has not come back. A kernel that waits for GPUs, and to which no notebook can
        return, would take them for nobody."""
        if remote.status["state"] == "waiting" and not can_be_found(remote):
            self.stop(remote, "its front end has gone, and no notebook can return to it")
        else:
            self.release(remote)

    async def restart(self, remote: RemoteKernel) -> None:
        """Restart the kernel: on its host, unless that or its GPUs are lost, and there are others."""
        starter = self.pending.starter(remote)
        remote.restart(host_lost=starter is not None and await starter.host_lost())

    def stop(self, remote: RemoteKernel, why: str) -> None:
        """End a kernel for good, as soon as the link is up."""
        self._forget(remote)
        remote.stop(why)

    def find(self, kernel_id: str, node: Node) -> RemoteKernel | None:
        """Return the kernel of that node that has this id now. When a notebook returns to a kernel, the id changes."""
        found = (remote for remote in self._kernels if remote.kernel_id == kernel_id)
        return next((remote for remote in found if self._node(remote).same_as(node)), None)

    def by_id(self, kernel_id: str) -> RemoteKernel | None:
        """Return the kernel with this id that a front end of this hub has: on the node where this hub started the
        kernel, or else on any node. Raises AgentError if two nodes report this id."""
        started_on = self._nodes.started_on(kernel_id)
        if started_on is not None:
            return self.find(kernel_id, started_on)
        found = [remote for remote in self._kernels if remote.kernel_id == kernel_id]
        nodes = [self._node(remote) for remote in found]
        if not all(node.same_as(nodes[0]) for node in nodes):
            raise conflict(nodes, [kernel_id])
        return found[0] if found else None

    # -------------------------------------------------------------------------------------- helpers

    async def _find_elsewhere(self, remote: RemoteKernel, wanted: dict[str, Any]) -> bool:
        """Give the front ends the kernel that their notebook has left on another host, or in a job."""
        starter = self.pending.starter(remote)
        return starter is not None and await starter.find_left(wanted["notebook"])

    def _new_session(self, settings: KernelSettings, call: Call) -> VSCodeSession | None:
        """Return a session for a launcher whose front end may name its notebook later; None for other clients."""
        notebook = settings.notebook
        if "parent" not in call.arguments or (notebook and call.op == "start") or call.op == "attach":
            return None
        parent, name = int(call.arguments["parent"]), settings.name
        used, from_vs_code = call.op == "adopt", call.arguments.get("from_vs_code") is True
        sessions, age = self._vscode_sessions, self._age(call)
        return VSCodeSession(sessions, parent, name, notebook, used, age, from_vs_code)

    def _age(self, call: Call) -> float:
        """Return how many seconds ago the front end has started the call's client, a launcher."""
        now = self._runtime.time()
        return max(0.0, now - float(call.arguments.get("started") or now))

    def _client_left(self, remote: RemoteKernel, client: ClientConnection) -> None:
        """The client that served a front end has gone, and so the front end, unless it restarts the kernel or was
        killed: then the ports and GPUs are kept for a moment."""
        front = remote.front_ends.of(client)
        if remote not in self._kernels or front is None:
            return  # released before
        restarts = remote.phase is Phase.RESTART and front is remote.front_ends.owner
        alone = len(remote.front_ends) == 1
        if client.sent_bye and front.spec.parent and alone and not restarts:
            return self._abandon(remote)  # it was a launcher, whose front end has gone
        if (client.sent_bye or not alone) and not restarts:
            return self.remove(remote, front)
        if alone:
            self._forget(remote)  # else the others go on, and may leave meanwhile
        front.disconnect()
        self._reconnect_grace.add(remote, front.edge.connection, restarts=restarts)

    def _delivered(self, settings: KernelSettings, kernel_id: str) -> Path:
        """Return the file for the counts of a kernel."""
        return hub_folder() / "delivered" / self._nodes.of(settings.before_start()).digest / kernel_id

    def _link_anew(self, settings: KernelSettings, kernel_id: str) -> NodeLink:
        """Return the link to the node on which a kernel is created anew, with this id. The link before may have been
        closed."""
        node = self._nodes.of(settings)
        self._nodes.record_start(kernel_id, node)
        return node.begin_link(settings.python, None)

    def _open_link(self, settings: KernelSettings) -> NodeLink:
        """Return the link to the node of a kernel of a killed hub. That hub has reached the node, so the link keeps
        trying."""
        link = self._nodes.of(settings).begin_link(settings.python, None)
        link.keep_trying()
        return link

    def _node(self, remote: RemoteKernel) -> Node:
        return self._nodes.of(remote.settings)

    def _forget(self, remote: RemoteKernel) -> None:
        if remote in self._kernels:
            self._kernels.remove(remote)


def _leads_through(settings: KernelSettings, node: Node) -> bool:
    """Whether a kernel with these settings is on the node, or in a job of this login node."""
    return node.settings in map(RouteSettings.from_settings, (settings, settings.at_login()))


def _window(settings: KernelSettings, call: Call) -> Window | None:
    """Return the window of VS Code whose launcher the call's client may be; None if it is no such launcher."""
    if settings.notebook or "parent" not in call.arguments:
        return None
    return int(call.arguments["parent"]), settings.name


def front_end_of(call: Call, number: int | None = None) -> FrontEndSpec:
    """Return the front end that the call's client serves."""
    arguments = call.arguments
    return FrontEndSpec(
        arguments["connection"],
        label=str(arguments.get("notebook") or arguments.get("label") or ""),
        number=number,
        listener=call.client,
        parent=int(arguments.get("parent") or 0),
        rate_limited=arguments.get("front_end_kind") != "other",
        revives=arguments.get("front_end_kind") == "server",
    )
