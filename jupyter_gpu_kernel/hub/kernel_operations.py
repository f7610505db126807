"""The operations on kernels that front ends have here: start, attach, adopt, restart, release.

An operation is a method `op_<name>(call)`, as in operations.py. This module knows which clients serve which front ends.
"""

from __future__ import annotations

import contextlib
import logging
import os
import uuid
from typing import Any

from ..errors import AgentError, HubError, KernelStartError
from . import validate
from .front_end.delivered import Delivered
from .front_end.front_ends import FrontEnd, FrontEndSpec
from .kernel.cell_history import read_cell_history
from .kernel.kernel_info_cache import KernelInfoCache
from .kernel.reconnect_grace import ReconnectGrace, ports_of
from .kernel.remote_kernel import RemoteKernel
from .kernel.startup import until_up
from .kernel.states import LinkState, Phase
from .kernel.vscode_sessions import VSCodeSession, VSCodeSessions, is_file
from .node.link import Link
from .node.node import Node
from .node.nodes import Nodes
from .node.replies import conflict, distinct, has_kernel, not_found
from .node.shared_connection import RouteSettings
from .paths import data_folder, hub_folder, owner
from .rpc import Call, RpcClient


class KernelOperations:
    """All kernels with a front end, and those whose front end may return."""

    def __init__(self, nodes: Nodes, log: logging.Logger) -> None:
        self._nodes = nodes
        self._log = log
        self._kernels: list[RemoteKernel] = []
        self._reconnect_grace = ReconnectGrace()
        self._vscode_sessions = VSCodeSessions(self._reconnect_grace.release)
        self._infos = KernelInfoCache(data_folder() / "kernel-info")
        self._owner = owner()  # once: a laptop's name may change with its network

    @property
    def in_use(self) -> bool:
        """Whether a front end has a kernel here, or may return to one."""
        return bool(self._kernels or self._reconnect_grace)

    def attached(self, node: Node, kernel_id: str) -> bool:
        """Return whether a front end here has this kernel of that node, and the link to it is up."""
        remote = self._find(kernel_id, node)
        return remote is not None and remote.link_state is LinkState.UP

    def attached_from(self, state: dict[str, Any]) -> str:
        """Return which other computer has this kernel attached, by the keeper's status: "alice@desk", or "". A
        connection of this hub that the keeper still counts is a dead one."""
        if not state.get("attached") or state.get("owner", "") in ("", self._owner["owner"]):
            return ""
        return str(state.get("by") or "another computer")

    def away(self, node: Node) -> list[dict[str, Any]]:
        """Return rows for the kernels that front ends here have on a node which cannot be reached. The node has a row
        of its own with the error."""
        away = [one for one in self._kernels if one.link_state not in (LinkState.UP, LinkState.LOST)]
        rows = [one.describe() for one in away if self._node(one).settings == node.settings]
        for row in rows:
            del row["error"]
        return [{**row, "state": "away", "attached": True} for row in rows]

    def close(self) -> None:
        """Close all kernels; their keepers live on."""
        for kernel in list(self._kernels):
            kernel.close()

    async def op_start(self, call: Call) -> dict[str, Any]:
        """Bind the ports and start the kernel; return {"id", "connection", …} when it can be used."""
        settings = self._settings(call)
        before = self._reconnect_grace.pop(call.arguments["connection"])
        if before is not None:
            before.restart()
            return await self._serve(before, call)
        self._reconnect_grace.release(settings["name"], settings["notebook"])
        kernel_id = _kernel_id(call.arguments.get("kernel") or uuid.uuid4().hex[:12])
        node = self._nodes.of(settings)
        self._nodes.record_start(kernel_id, node)
        node.add_name(settings["name"])
        if login_wait := float(call.arguments.get("login_wait") or 0):
            await node.signed_in(call, login_wait)
        settings["python"] = settings.get("python") or await node.best_python(call)
        link = node.begin_link(settings["python"], call)
        session = self._session(settings, call) if not settings["notebook"] else None
        remote = self._remote(kernel_id, settings, call, link, "create", session=session)
        return await self._serve(remote, call)

    async def op_attach(self, call: Call) -> dict[str, Any]:
        """Add a front end to a kernel that runs, here or on any node of `specs`; return the same as `start`."""
        kernel_id = _kernel_id(call.arguments["kernel"])
        remote = self._here(kernel_id)
        if remote is None:
            node, state, settings = await self._where(kernel_id, call)
            known = {key: state.get(key, "") for key in ("name", "notebook")}
            settings = {**settings, **known, "kernel_id": "", "python": node.python}
            link = await node.link(node.python, call)
            remote = self._find(kernel_id, node)  # another front end may have come to it meanwhile
            if remote is None:
                remote = self._remote(kernel_id, settings, call, link, "attach")
        new = remote not in self._kernels
        front = self._connect(remote, call) if new else remote.front_ends.add(_front_end(call))
        try:
            await until_up(remote)
        except BaseException:
            self._remove(remote, front)
            raise
        self._watch_client(remote, call)
        return {**_answer(remote, call.client), "settings": remote.settings}

    async def op_adopt(self, call: Call) -> dict[str, Any]:
        """Serve a kernel whose hub was killed, with the same ports and key. Return at once; events tell the rest."""
        kernel_id, number = _kernel_id(call.arguments["kernel"]), int(call.arguments.get("front", 0))
        settings = self._settings(call)
        node = self._nodes.of(settings)
        remote = self._find(kernel_id, node)
        if remote is not None:
            remote.front_ends.add(_front_end(call, number))
        else:
            settings["python"] = settings.get("python") or node.python
            link = node.begin_link(settings["python"], None)
            link.keep_trying()  # the hub before had it up: the kernel is there, whatever keeps us from it now
            session = self._session(settings, call)
            remote = self._remote(kernel_id, settings, call, link, "adopt", number, session)
            self._connect(remote, call)
        self._watch_client(remote, call)
        return _answer(remote, call.client)

    def _session(self, settings: dict[str, Any], call: Call) -> VSCodeSession | None:
        """Return a session for a launcher, whose front end may tell its notebook later; None for others."""
        if "parent" not in call.arguments:
            return None
        parent, name = int(call.arguments["parent"]), str(settings["name"])
        notebook = str(settings["notebook"])
        return VSCodeSession(self._vscode_sessions, parent, name, notebook, used=call.op == "adopt")

    async def _serve(self, remote: RemoteKernel, call: Call) -> dict[str, Any]:
        self._connect(remote, call)
        made = remote.kernel_id
        try:
            await until_up(remote)
        except BaseException:  # also when the client left meanwhile
            if remote.kernel_id == made:  # nobody has used the kernel yet
                self._forget(remote)
                remote.stop("it did not start")
            else:  # it is the one that its notebook had left, with all its variables
                self._close(remote)
            raise
        self._watch_client(remote, call)
        return _answer(remote, call.client)

    async def op_restart(self, call: Call) -> dict[str, Any]:
        """Start a new kernel process, with the same ports and GPUs."""
        remote, front = self._kernel(call)
        if front is not remote.front_ends.owner or remote.taken_by:
            cause = remote.taken_by or f"{remote.front_ends.owners_label} has this kernel now"
            remedy = "Run a cell here first: that takes it over."
            raise KernelStartError(cause, hop=remote.link.name, remedy=remedy)
        remote.restart()
        await until_up(remote)
        return _answer(remote, call.client)

    async def op_command(self, call: Call) -> dict[str, Any]:
        """Send a command to the keeper: interrupt, kill, signal (number), stop. Return as soon as it is queued.

        Commands of a front end that does not own the kernel are ignored.
        """
        remote, front = self._kernel(call)
        if front is remote.front_ends.owner:
            remote.command(str(call.arguments["do"]), **call.arguments.get("more", {}))
        return {"ok": True}

    async def op_release(self, call: Call) -> dict[str, Any]:
        """The front end leaves the kernel, ended or not."""
        with contextlib.suppress(HubError):  # it is no longer here
            self._remove(*self._kernel(call))
        return {"ok": True}

    async def op_returns(self, call: Call) -> dict[str, Any]:
        """Return {"returns"}: whether this client's front end can find its kernel again by itself.

        VS Code can, but may not have told the notebook yet, or the notebook is not saved yet.
        """
        with contextlib.suppress(HubError):  # it is no longer here
            remote, _ = self._kernel(call)
            from_vs_code = remote.vscode_session is not None and remote.vscode_session.from_vs_code
            return {"returns": bool(remote.settings["notebook"]) or from_vs_code}
        return {"returns": True}

    async def op_leave(self, call: Call) -> dict[str, Any]:
        """Release all kernels whose launchers the process `parent` started, as it exits."""
        for remote in list(self._kernels):
            for front in remote.front_ends:
                if front.parent == int(call.arguments["parent"]):
                    self._remove(remote, front)
        return {"ok": True}

    async def op_renamed(self, call: Call) -> dict[str, Any]:
        """A file or folder on this machine was renamed, so rename the notebooks of kernels (`before`, `after`: absolute
        paths)."""
        before, after = str(call.arguments["before"]), str(call.arguments["after"])
        for remote in self._kernels:
            notebook = str(remote.settings["notebook"])
            if notebook == before or notebook.startswith((before + "/", before + os.sep)):
                remote.set_notebook(after + notebook[len(before) :])
        return {"ok": True}

    async def op_end(self, call: Call) -> dict[str, Any]:
        """The front end leaves the kernel, which ends for good as soon as the link is up, unless another front end owns
        it."""
        with contextlib.suppress(HubError):  # it is no longer here
            remote, front = self._kernel(call)
            why = str(call.arguments["why"])
            if len(remote.front_ends) == 1:
                self._forget(remote)
                remote.stop(why)
                return {"ok": True}
            if front is remote.front_ends.owner:
                remote.command("stop", why=why)  # the other front ends are notified
            self._remove(remote, front)
        return {"ok": True}

    async def op_kernels(self, call: Call) -> list[dict[str, Any]]:
        """Return the kernels that front ends have here, without asking any node."""
        return [remote.describe() for remote in self._kernels]

    async def op_journal(self, call: Call) -> dict[str, Any]:
        """Return {"kernel", "cells"}: the last cells of a kernel that is here, with outputs. `kernel` may be Jupyter's
        id."""
        wanted = str(call.arguments["kernel"])
        by_jupyters_id = (one for one in self._kernels if one.settings["kernel_id"] == wanted)
        remote = next(by_jupyters_id, None) or self._here(wanted)
        if remote is None:
            raise AgentError(
                f"no front end here has a kernel {wanted}",
                remedy="“jupyter gpu-kernel ps” lists the kernels.",
            )
        cells = await read_cell_history(remote.link, remote.kernel_id, str(call.arguments.get("cell") or ""))
        return {"kernel": remote.kernel_id, "cells": cells}

    # -------------------------------------------------------------------------------------- helpers

    def _kernel(self, call: Call) -> tuple[RemoteKernel, FrontEnd]:
        """Return the kernel that the call names, and the front end that the call's client serves."""
        for remote in self._kernels:  # two of them may have one id, if the kernel was taken from one of them
            front = remote.front_ends.of(call.client)
            if remote.kernel_id == str(call.arguments["kernel"]) and front is not None:
                return remote, front
        raise HubError("this kernel is no longer here", remedy="Start it again.")

    async def _where(self, kernel_id: str, call: Call) -> tuple[Node, dict[str, Any], dict[str, Any]]:
        """Return the node that has the kernel, the keeper's status, and the settings of a kernelspec for that node."""
        specs = self._nodes.specs_for(kernel_id, call)
        asked = await self._nodes.ask_each(call, "list", specs=specs)
        having = distinct(one for one in asked if has_kernel(one, kernel_id))
        if not having:
            raise not_found(kernel_id, asked)
        if len(having) > 1:
            raise conflict([one.node for one in having], [kernel_id])
        node, said = having[0].node, having[0].answer
        state = next(state for state in said["kernels"] if state["id"] == kernel_id)
        settings = next(
            spec["settings"]
            for spec in specs
            if RouteSettings.from_settings(spec["settings"]) == node.settings
        )
        return node, state, settings

    def _connect(self, remote: RemoteKernel, call: Call) -> FrontEnd:
        """The call's client serves a front end of the kernel, the first one or one that returns."""
        if remote not in self._kernels:
            self._kernels.append(remote)
        ports = ports_of(call.arguments["connection"])
        front_ends = list(remote.front_ends)
        front = next((one for one in front_ends if ports_of(one.edge.connection) == ports), front_ends[0])
        front.reconnect(_front_end(call))
        return front

    def _watch_client(self, remote: RemoteKernel, call: Call) -> None:
        call.client.on_closed.append(lambda: self._client_left(remote, call.client))

    def _settings(self, call: Call) -> dict[str, Any]:
        settings = dict(call.arguments["settings"], name=call.arguments.get("name", ""))
        notebook = str(call.arguments.get("notebook") or "")
        said = {"notebook": notebook if is_file(notebook) else ""}
        return {**settings, **said, "kernel_id": call.arguments.get("kernel_id", "")}

    def _remote(
        self,
        kernel_id: str,
        settings: dict[str, Any],
        call: Call,
        link: Link,
        how: str,
        number: int | None = None,
        session: VSCodeSession | None = None,
    ) -> RemoteKernel:
        delivered = Delivered(hub_folder() / "delivered" / self._nodes.of(settings).digest / kernel_id)
        try:
            remote = RemoteKernel(
                kernel_id, settings, _front_end(call, number), link, self._log, how=how, infos=self._infos,
                delivered=delivered, owner=self._owner, vscode_session=session,
            )  # fmt: skip
        except (
            BaseException
        ):  # its ports are in use; a client that adopts it tries again, and needs the counts
            delivered.close() if how == "adopt" else delivered.forget()
            raise
        if session is not None:
            self._vscode_sessions.begin(session)
            call.client.on_closed.append(lambda: self._vscode_sessions.end(session, remote))
        return remote

    def _client_left(self, remote: RemoteKernel, client: RpcClient) -> None:
        """The client that served a front end has gone, and so the front end, unless it restarts the kernel or was
        killed: then the ports and GPUs are kept for a moment."""
        front = remote.front_ends.of(client)
        if remote not in self._kernels or front is None:
            return  # released before
        restarts = remote.phase is Phase.RESTART and front is remote.front_ends.owner
        if (client.said_bye and not restarts) or (len(remote.front_ends) > 1 and not restarts):
            return self._remove(remote, front)
        self._forget(remote)
        front.disconnect()
        self._reconnect_grace.add(remote, front.edge.connection, restarts=restarts)

    def _remove(self, remote: RemoteKernel, front: FrontEnd) -> None:
        """The front end leaves the kernel. With the last one the kernel is closed."""
        remote.front_ends.remove(front)
        if not len(remote.front_ends):
            self._close(remote)

    def _close(self, remote: RemoteKernel) -> None:
        self._forget(remote)
        if remote.phase is Phase.SHUT_DOWN and not remote.ended:  # the request waits for the link
            remote.stop("shut down by its front end")
        else:
            remote.close()

    def _find(self, kernel_id: str, node: Node) -> RemoteKernel | None:
        """Return the kernel that has this id now: a notebook that returns gets the kernel it left, with its id."""
        here = (remote for remote in self._kernels if remote.kernel_id == kernel_id)
        return next((remote for remote in here if self._node(remote).same_as(node)), None)

    def _here(self, kernel_id: str) -> RemoteKernel | None:
        """Return a kernel that front ends have here, on the node where this hub started it, if it did. AgentError if
        two nodes report this id."""
        home = self._nodes.started_on(kernel_id)
        if home is not None:
            return self._find(kernel_id, home)
        here = [remote for remote in self._kernels if remote.kernel_id == kernel_id]
        nodes = [self._node(remote) for remote in here]
        if not all(node.same_as(nodes[0]) for node in nodes):
            raise conflict(nodes, [kernel_id])
        return here[0] if here else None

    def _node(self, remote: RemoteKernel) -> Node:
        return self._nodes.of(remote.settings)

    def _forget(self, remote: RemoteKernel) -> None:
        if remote in self._kernels:
            self._kernels.remove(remote)


def _kernel_id(kernel_id: Any) -> str:
    """Check an id that a front end has chosen, as it names files, here and on the node."""
    if not validate.is_id(kernel_id):
        raise HubError("a kernel's id has 1 to 64 letters, digits, “-” and “_”")
    return str(kernel_id)


def _front_end(call: Call, number: int | None = None) -> FrontEndSpec:
    """Return the front end that the call's client serves."""
    arguments = call.arguments
    return FrontEndSpec(
        arguments["connection"],
        label=str(arguments.get("notebook") or arguments.get("label") or ""),
        number=number,
        listener=call.client,
        parent=int(arguments.get("parent") or 0),
        rate_limited=arguments.get("face") != "other",
        revives=arguments.get("face") == "server",
    )


def _answer(remote: RemoteKernel, client: RpcClient) -> dict[str, Any]:
    """Return what a front end needs of its kernel; `python` and `front` are for another hub, which adopts it."""
    front = remote.front_ends.of(client)
    more = {} if front is None else {"connection": front.edge.connection, "front": front.number}
    return {**remote.describe(), "python": remote.settings["python"], **more}
