"""The kernels that front ends have here: created, found by id, and released when the clients that serve them leave, or
a moment later where the front end may return.

A kernel is in the one list of this module from `create` until it is closed, in whatever state: *served* by front ends;
*returning*, while its front end has left and may come back; *pending*, until a cell of its user starts it; or about to
end. A client is a launcher or provisioner that is connected to the hub's socket. This module knows no SSH.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ..errors import HubError, KernelStartError
from ..wire.runtime import Runtime
from .background import DiskThread
from .client_connection import ClientConnection
from .front_end.delivered import Delivered, remove_old
from .front_end.front_ends import FrontEnd, FrontEndSpec
from .jobs.job_files import JobFiles
from .jobs.job_kernels import JobKernels
from .kernel.core.events import StartFailed
from .kernel.core.life import LinkState, Phase
from .kernel.kernel_info import KernelInfoCache
from .kernel.kernel_state import NO_CELLS, HubContext, Origin
from .kernel.remote_kernel import RemoteKernel
from .kernel.starter import Starter
from .kernel.vscode.pending_stops import PendingStops
from .kernel.vscode.sessions import VSCodeSession, VSCodeSessions
from .kernel_settings import KernelSettings
from .node.node import Node
from .node.node_link import NodeLink
from .node.nodes import Nodes, conflict
from .node.shared_connection import RouteSettings
from .paths import data_folder, hub_folder, owner
from .rpc import Call
from .several_hosts.host_starter import HostStarter
from .several_hosts.placement import Placement
from .slurm.scheduler import Schedulers

RECONNECT_TIMEOUT = 10.0
"""Seconds in which a front end that left may return."""
_NOT_IN_ROWS = ("error", "kernel_id", "route", "python", "given_python")
_SAVE_WITHIN = 2.0
"""Seconds that the hub's end waits for files to be written."""


class Kernels:
    """All kernels of this hub. Iterating yields those that are served."""

    def __init__(self, runtime: Runtime, nodes: Nodes, schedulers: Schedulers, log: logging.Logger) -> None:
        self._runtime = runtime
        self._nodes = nodes
        self._log = log
        self._kernels: list[RemoteKernel] = []
        self._disk = DiskThread()
        remove_old(hub_folder() / "delivered", runtime.time())
        self.owner = owner(runtime)  # once: a laptop's name may change with its network
        """This user and computer, for requests to agents."""
        infos = KernelInfoCache(data_folder() / "kernel-info", self._disk)
        self._context = HubContext(runtime, log, infos, self.owner)
        self._placement = Placement(nodes, self.owner)
        job_files = JobFiles(data_folder() / "jobs", self._disk)
        self.jobs = JobKernels(runtime, nodes, schedulers, job_files, log)
        self._stops = PendingStops(self.owner["owner"])
        self._vscode_sessions = VSCodeSessions(runtime.monotonic, self._stops, self.release_returning)

    def __iter__(self) -> Iterator[RemoteKernel]:
        return (one for one in list(self._kernels) if one.served)

    @property
    def in_use(self) -> bool:
        """Whether a front end has a kernel, or may return to its kernel, or a kernel is still to be ended."""
        return any(len(one.front_ends) for one in self._kernels) or self.jobs.in_use or bool(self._stops)

    async def close(self) -> None:
        """Close all kernels; their keepers live on."""
        for kernel in self._kernels:
            kernel.close()
        await self._disk.done(_SAVE_WITHIN)

    # -------------------------------------------------------------------------------------- found, for commands

    def find(self, kernel_id: str, node: Node) -> RemoteKernel | None:
        """Return the kernel of that node that has this id now. When a notebook returns to a kernel, the id changes."""
        found = (remote for remote in self if remote.kernel_id == kernel_id)
        return next((remote for remote in found if self._node(remote).same_as(node)), None)

    def by_id(self, kernel_id: str) -> RemoteKernel | None:
        """Return the kernel with this id that a front end of this hub has: on the node where this hub started the
        kernel, or else on any node. Raises AgentError if two nodes report this id."""
        started_on = self._nodes.started_on(kernel_id)
        if started_on is not None:
            return self.find(kernel_id, started_on)
        found = [remote for remote in self if remote.kernel_id == kernel_id]
        nodes = [self._node(remote) for remote in found]
        if not all(node.same_as(nodes[0]) for node in nodes):
            raise conflict(nodes, [kernel_id])
        return found[0] if found else None

    def pending(self, kernel_id: str) -> RemoteKernel | None:
        """Return the kernel with this id, if it has not been started."""
        return next((one for one in self._kernels if one.kernel_id == kernel_id and one.pending), None)

    def pending_rows(self) -> dict[str, dict[str, Any]]:
        """Return the rows of `ps` of the kernels that have not been started, by their ids."""
        return {one.kernel_id: _pending_row(one) for one in self._kernels if one.pending}

    def attached(self, node: Node, kernel_id: str) -> bool:
        """Return whether a front end here has this kernel of that node, also while the link reconnects."""
        remote = self.find(kernel_id, node)
        return remote is not None and remote.link_state not in (LinkState.LOST, LinkState.TAKEN)

    def attached_from(self, state: dict[str, Any]) -> str:
        """Return which other computer has this kernel attached, by the keeper's status: "alice@desk", or "". A
        connection of this hub that the keeper still counts is dead."""
        if not state.get("attached") or state.get("owner", "") in ("", self.owner["owner"]):
            return ""
        return str(state.get("by") or "another computer")

    def away(self, node: Node) -> list[tuple[Node, dict[str, Any]]]:
        """Return a row for each kernel that front ends here have on a node which cannot be reached, or in a job of a
        login node which cannot be reached; and the kernel's node. The node that cannot be reached has a row of its own
        with the error."""
        started = (one for one in self if not one.not_started)
        away = [one for one in started if one.link_state not in (LinkState.UP, LinkState.LOST)]
        found = [(self._node(one), one.describe()) for one in away if _leads_through(one.settings, node)]
        for _, row in found:
            del row["error"]
        return [(kernel_node, {**row, "state": "away", "attached": True}) for kernel_node, row in found]

    # -------------------------------------------------------------------------------------- front ends come

    def origin(self, settings: KernelSettings, call: Call) -> Origin:
        """Return how the front end of this call, `start`, `attach` or `adopt`, comes to a kernel with these
        settings."""
        how = "create" if call.op == "start" else call.op
        return Origin(how, session=self._session(settings, call), starter=self._starter(settings))

    def create(
        self, kernel_id: str, settings: KernelSettings, call: Call, link: NodeLink, origin: Origin
    ) -> RemoteKernel:
        """Make a kernel for the call's client, which serves its first front end."""
        how, session, starter = origin.how, origin.session, origin.starter
        delivered = Delivered(self._delivered(settings, kernel_id))
        try:
            if how != "adopt":
                delivered.requests.replace([])  # nobody waits for the replies of another front end
            origin = replace(origin, delivered=delivered)
            remote = RemoteKernel(self._context, kernel_id, settings, front_end_of(call), link, origin)
        except BaseException:
            # The ports are in use. A client that adopts the kernel tries again, and needs the counts.
            delivered.close() if how == "adopt" else delivered.forget()
            raise
        remote.on_create = partial(self._link_anew, settings)
        self._kernels = [*(one for one in self._kernels if not one.closed), remote]
        if starter is not None:
            starter.begin(remote, adopted=how == "adopt")
        if session is not None:
            self._vscode_sessions.begin(session)
            call.client.add_close_callback(lambda: self._vscode_sessions.end(session, remote))
        return remote

    def pop_returning(self, settings: KernelSettings, call: Call) -> RemoteKernel | None:
        """Return the kernel whose front end has returned with its ports; None for a new front end. If a kernel waits
        for a front end with the notebook of the new one, that wait is over."""
        ports = _ports_of(call.arguments["connection"])
        for remote in self._kernels:
            for front in remote.front_ends:
                if front.absent and _ports_of(front.edge.connection) == ports:
                    remote.front_ends.reconnect(front, front_end_of(call))
                    return remote
        self.release_returning(settings.name, settings.notebook)
        return None

    def watch_client(self, remote: RemoteKernel, call: Call) -> None:
        """From now on the front end leaves when the call's client does."""
        call.client.add_close_callback(lambda: self._client_left(remote, call.client))

    def of(self, call: Call) -> tuple[RemoteKernel, FrontEnd]:
        """Return the kernel that the call names, and the front end that the call's client serves."""
        for remote in self:  # two of them may have one id, if the kernel was taken from one of them
            front = remote.front_ends.of(call.client)
            if remote.kernel_id == str(call.arguments["kernel"]) and front is not None:
                return remote, front
        raise HubError("the hub does not serve this kernel any more", remedy="Start it again.")

    # -------------------------------------------------------------------------------------- front ends leave

    def remove(self, remote: RemoteKernel, front: FrontEnd) -> None:
        """The front end leaves the kernel. When the last front end leaves, the kernel is closed."""
        remote.front_ends.remove(front)
        if not len(remote.front_ends):
            self.release(remote)

    def end(self, remote: RemoteKernel, front: FrontEnd, why: str) -> None:
        """The front end leaves the kernel. Unless another front end owns the kernel, it ends for good as soon as the
        link is up."""
        if len(remote.front_ends) == 1:
            return remote.stop(why)
        if remote.owns(front):
            remote.command("stop", why=why)  # the other front ends are notified
        self.remove(remote, front)

    def release(self, remote: RemoteKernel) -> None:
        """Close a kernel, which lives on unless its shutdown or restart was requested: that request may still wait for
        the link, and would be lost with the front end."""
        if remote.phase is Phase.SHUT_DOWN and not remote.ended:
            remote.stop("shut down by its front end")
        elif remote.life.restarts and not remote.ended:
            remote.stop("its front end has left while it restarted")
        else:
            remote.close()

    def release_returning(self, name: str, notebook: str) -> None:
        """Release the kernel of this kernelspec and notebook whose front end has left, as the notebook returns by
        another front end."""
        for remote in list(self._kernels) if notebook else ():
            if remote.returning and (remote.settings.name, remote.settings.notebook) == (name, notebook):
                self._abandon(remote)

    def _client_left(self, remote: RemoteKernel, client: ClientConnection) -> None:
        """The client that served a front end has gone, and so the front end, unless it restarts the kernel or was
        killed: then the ports and GPUs are kept for a moment."""
        front = remote.front_ends.of(client)
        if front is None:
            return  # released before
        restarts = self.restarts(remote, front)
        alone = len(remote.front_ends) == 1
        if client.sent_bye and front.spec.parent and alone and not restarts:
            return self._abandon(remote)  # it was a launcher, whose front end has gone
        if (client.sent_bye or not alone) and not restarts:
            return self.remove(remote, front)
        front.leave(RECONNECT_TIMEOUT, partial(self._not_back, remote, front))
        # Until it returns, the kernel is detached only if the front end can find it again, with the output.
        remote.pause() if remote.can_be_found and not restarts else remote.hold()

    def restarts(self, remote: RemoteKernel, front: FrontEnd) -> bool:
        """Return whether the front end has requested the kernel's shutdown, and will start it again."""
        return remote.phase is Phase.RESTART and remote.owns(front)

    def _not_back(self, remote: RemoteKernel, front: FrontEnd) -> None:
        """The front end has not come back in time."""
        if remote.phase is Phase.RESTART:
            remote.stop("its front end did not come back to restart it")
        elif len(remote.front_ends) > 1:  # another one has taken the kernel over
            self.remove(remote, front)
        else:
            self._abandon(remote)

    def _abandon(self, remote: RemoteKernel) -> None:
        """The front end has gone, and does not come back. A kernel that waits for GPUs, and to which no notebook can
        return, would take them for nobody."""
        if remote.status["state"] == "waiting" and not remote.can_be_found:
            remote.stop("its front end has gone, and no notebook can return to it")
        else:
            self.release(remote)

    # -------------------------------------------------------------------------------------- for users

    async def restart(self, remote: RemoteKernel) -> None:
        """Restart the kernel: on its host, unless that or its GPUs are lost, and there are others."""
        starter = remote.starter
        remote.restart(host_lost=starter is not None and await starter.host_lost(remote))

    def stop_pending(self, kernel_id: str) -> bool:
        """Shut down the kernel with this id. Return False if there is none that has not been started."""
        remote = self.pending(kernel_id)
        if remote is None:
            return False
        cause, remedy = "the kernel was stopped before it was started", "Start it again to run the cell."
        remote.report(StartFailed(KernelStartError(cause, hop=remote.link.name, remedy=remedy), stopped=True))
        return True

    # -------------------------------------------------------------------------------------- helpers

    def _starter(self, settings: KernelSettings) -> Starter | None:
        """Return what starts a kernel with these settings when its user runs a cell; None if it is started at once."""
        if settings.slurm:
            return self.jobs.starter(settings)
        if len(settings.hosts) < 2:
            return None
        return HostStarter(self._runtime, self._nodes, self._placement, self._log)

    def _session(self, settings: KernelSettings, call: Call) -> VSCodeSession | None:
        """Return a session for a launcher whose front end may name its notebook later; None for other clients."""
        notebook = settings.notebook
        if "parent" not in call.arguments or (notebook and call.op == "start") or call.op == "attach":
            return None
        now = self._runtime.time()
        # Since its front end has started it.
        age = max(0.0, now - float(call.arguments.get("started") or now))
        parent, name = int(call.arguments["parent"]), settings.name
        used, from_vs_code = call.op == "adopt", call.arguments.get("from_vs_code") is True
        return VSCodeSession(self._vscode_sessions, parent, name, notebook, used, age, from_vs_code)

    def _delivered(self, settings: KernelSettings, kernel_id: str) -> Path:
        """Return the file for the counts of a kernel."""
        return hub_folder() / "delivered" / self._nodes.of(settings.before_start()).digest / kernel_id

    def _link_anew(self, settings: KernelSettings, kernel_id: str) -> NodeLink:
        """Return the link to the node on which a kernel is created anew, with this id. The link before may have been
        closed."""
        node = self._nodes.of(settings)
        self._nodes.record_start(kernel_id, node)
        return node.begin_link(settings.python, None)

    def open_link(self, settings: KernelSettings) -> NodeLink:
        """Return the link to the node of a kernel of a killed hub. That hub has reached the node, so the link keeps
        trying."""
        link = self._nodes.of(settings).begin_link(settings.python, None)
        link.keep_trying()
        return link

    def _node(self, remote: RemoteKernel) -> Node:
        return self._nodes.of(remote.settings)


def _leads_through(settings: KernelSettings, node: Node) -> bool:
    """Whether a kernel with these settings is on the node, or in a job of this login node."""
    return node.settings in map(RouteSettings.from_settings, (settings, settings.at_login()))


def _ports_of(connection: dict[str, Any]) -> tuple[str, int]:
    """Return what two front ends share only if they have the same connection file: its key and shell port."""
    return str(connection.get("key")), int(connection.get("shell_port") or 0)


def front_end_of(call: Call) -> FrontEndSpec:
    """Return the front end that the call's client serves. One that adopts its kernel had a number at a killed hub."""
    arguments = call.arguments
    kind = arguments.get("front_end_kind")
    return FrontEndSpec(
        arguments["connection"],
        label=str(arguments.get("notebook") or arguments.get("label") or ""),
        number=int(arguments.get("front", 0)) if call.op == "adopt" else None,
        listener=call.client,
        parent=int(arguments.get("parent") or 0),
        rate_limited=kind not in ("other", "serve"),
        revives=kind in ("server", "serve"),
        waits_for_page=kind == "serve",
    )


def _pending_row(remote: RemoteKernel) -> dict[str, Any]:
    """Return the row of `ps` for a kernel that has not been started."""
    notebook = remote.settings.notebook
    known = {"attached": True, "attached_from": "", "notebook": notebook, "job": None, **remote.describe()}
    place = known.get("place") or (known["job"] or {}).get("place") or None
    row = {**NO_CELLS, **known, "place": place, "cells": len(remote.waiting_cells)}
    return {key: value for key, value in row.items() if key not in _NOT_IN_ROWS}
