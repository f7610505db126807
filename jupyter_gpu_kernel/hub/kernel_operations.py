"""The kernels that front ends have here: start, adopt, restart, let go. Their operations, as faces ask for them.

An operation is a method `op_<name>(call)`, as in hub.py. This file knows who came and who left.
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
from .front_end.front_ends import FrontEnd
from .kernel.cell_history import read_journal
from .kernel.kernel_info_cache import KernelInfoCache
from .kernel.reconnect_grace import ReconnectGrace, ports_of
from .kernel.remote_kernel import RemoteKernel
from .kernel.startup import until_up
from .kernel.vscode_notebooks import is_file
from .kernel.vscode_sessions import VSCodeSession, VSCodeSessions
from .node.link import Link
from .node.node import Node, Nodes, Way
from .node.rows import disputed, distinct, has_kernel, nowhere
from .paths import data_folder, hub_folder, owner
from .rpc import Call, RpcClient


class KernelOperations:
    """All kernels with a front end, and those whose front end is about to come back."""

    def __init__(self, nodes: Nodes, log: logging.Logger) -> None:
        self._nodes = nodes
        self._log = log
        self._kernels: list[RemoteKernel] = []
        self._reconnect_grace = ReconnectGrace()
        self._vscode_sessions = VSCodeSessions(self._reconnect_grace.give_way)
        self._infos = KernelInfoCache(data_folder() / "kernel-info")
        self._owner = owner()  # once: a laptop's name may change with its network

    @property
    def in_use(self) -> bool:
        """Whether a front end has a kernel here, or is to come back to one."""
        return bool(self._kernels or self._reconnect_grace)

    def attached(self, node: Node, kernel_id: str) -> bool:
        """Whether a front end has this kernel of that node, and the link to it is up."""
        remote = self._find(kernel_id, node)
        return remote is not None and remote.link_state == "up"

    def attached_from(self, state: dict[str, Any]) -> str:
        """Which other computer has this kernel attached, as its keeper says: "alice@desk"; "" if none has. A connection
        of this hub that the keeper still counts is a dead one."""
        if not state.get("attached") or state.get("owner", "") in ("", self._owner["owner"]):
            return ""
        return str(state.get("by") or "another computer")

    def away(self, node: Node) -> list[dict[str, Any]]:
        """The kernels that front ends have here on a node which cannot be reached; its error tells why not."""
        away = [one for one in self._kernels if one.link_state not in ("up", "lost")]
        rows = [one.describe() for one in away if self._node(one).way == node.way]
        for row in rows:
            del row["error"]
        return [{**row, "state": "away", "attached": True} for row in rows]

    def close(self) -> None:
        """Lets go of all; keepers live on."""
        for kernel in list(self._kernels):
            kernel.close()

    async def op_start(self, call: Call) -> dict[str, Any]:
        """Binds the ports, starts the kernel; returns {"id", "connection", …} once it can be spoken to."""
        settings = self._settings(call)
        before = self._reconnect_grace.take(call.arguments["connection"])
        if before is not None:
            before.restart()
            return await self._serve(before, call)
        self._reconnect_grace.give_way(settings["name"], settings["notebook"])
        kernel_id = _kernel_id(call.arguments.get("kernel") or uuid.uuid4().hex[:12])
        node = self._nodes.of(settings)
        self._nodes.settle(kernel_id, node)
        node.known_as(settings["name"])
        if login_wait := float(call.arguments.get("login_wait") or 0):
            await node.signed_in(call, login_wait)
        settings["python"] = settings.get("python") or await node.some_python(call)
        link = node.begin_link(settings["python"], call)
        remote = self._remote(kernel_id, settings, call, link, "create", None)
        if "parent" in call.arguments and not settings["notebook"]:
            self._visit(remote, call)
        return await self._serve(remote, call)

    async def op_attach(self, call: Call) -> dict[str, Any]:
        """One more front end on a kernel that runs, here or on any node of `specs`; answers as `start`."""
        kernel_id = _kernel_id(call.arguments["kernel"])
        remote = self._here(kernel_id)
        if remote is None:
            node, state, settings = await self._where(kernel_id, call)
            known = {key: state.get(key, "") for key in ("name", "notebook")}
            settings = {**settings, **known, "kernel_id": "", "python": node.python}
            link = await node.link(node.python, call)
            remote = self._find(kernel_id, node)  # another front end may have come to it meanwhile
            if remote is None:
                remote = self._remote(kernel_id, settings, call, link, "attach", None)
        front = self._take(remote, call) if remote not in self._kernels else self._join(remote, call, None)
        try:
            await until_up(remote)
        except BaseException:
            self._part(remote, front)
            raise
        self._follow(remote, call)
        return {**_answer(remote, call.client), "settings": remote.settings}

    async def op_adopt(self, call: Call) -> dict[str, Any]:
        """A kernel whose hub was killed: the same ports and key again. Answered at once; events tell the rest."""
        kernel_id, index = _kernel_id(call.arguments["kernel"]), int(call.arguments.get("front", 0))
        settings = self._settings(call)
        node = self._nodes.of(settings)
        remote = self._find(kernel_id, node)
        if remote is not None:
            self._join(remote, call, index)
        else:
            settings["python"] = settings.get("python") or node.python
            link = node.begin_link(settings["python"], None)
            link.keep_trying()  # the hub before had it up: the kernel is there, whatever keeps us from it now
            remote = self._remote(kernel_id, settings, call, link, "adopt", index)
            if "parent" in call.arguments:
                self._visit(remote, call)
            self._take(remote, call)
        self._follow(remote, call)
        return _answer(remote, call.client)

    def _visit(self, remote: RemoteKernel, call: Call) -> None:
        """The front end that this launcher serves may be one that tells its notebook later."""
        parent, name = int(call.arguments["parent"]), str(remote.settings["name"])
        notebook = str(remote.settings["notebook"])
        vscode_session = remote.vscode_session = VSCodeSession(
            self._vscode_sessions, parent, name, notebook, used=call.op == "adopt"
        )
        call.client.on_closed.append(lambda: self._vscode_sessions.left(vscode_session, remote))

    async def _serve(self, remote: RemoteKernel, call: Call) -> dict[str, Any]:
        self._take(remote, call)
        made = remote.kernel_id
        try:
            await until_up(remote)
        except BaseException:  # also when the face left meanwhile
            if remote.kernel_id == made:  # nobody has used the kernel yet
                self._forget(remote)
                remote.stop("it did not start")
            else:  # it is the one that its notebook had left, with all its variables
                self._let_go(remote)
            raise
        self._follow(remote, call)
        return _answer(remote, call.client)

    async def op_restart(self, call: Call) -> dict[str, Any]:
        """A fresh kernel process behind the same ports, with the same GPUs."""
        remote, front = self._kernel(call)
        if front is not remote.front_ends.owner or remote.taken:
            has = remote.taken or f"{remote.front_ends.owners_label} has this kernel now"
            remedy = "Run a cell here first: that takes it over."
            raise KernelStartError(has, hop=remote.link.name, remedy=remedy)
        remote.restart()
        await until_up(remote)
        return _answer(remote, call.client)

    async def op_command(self, call: Call) -> dict[str, Any]:
        """A word to the keeper: interrupt, kill, signal (number), stop. Answered as soon as it is queued.

        From a front end that does not own the kernel it means nothing.
        """
        remote, front = self._kernel(call)
        if front is remote.front_ends.owner:
            remote.command(str(call.arguments["do"]), **call.arguments.get("more", {}))
        return {"ok": True}

    async def op_release(self, call: Call) -> dict[str, Any]:
        """The front end is done with the kernel, ended or not."""
        with contextlib.suppress(HubError):  # it is no longer here
            self._part(*self._kernel(call))
        return {"ok": True}

    async def op_returns(self, call: Call) -> dict[str, Any]:
        """{"returns"}: whether the front end that this face is for can come back to its kernel by itself.

        VS Code names its notebooks, but may not have done so yet, or the notebook is not saved yet.
        """
        with contextlib.suppress(HubError):  # it is no longer here
            remote, _ = self._kernel(call)
            from_vs_code = remote.vscode_session is not None and remote.vscode_session.from_vs_code
            return {"returns": bool(remote.settings["notebook"]) or from_vs_code}
        return {"returns": True}

    async def op_leave(self, call: Call) -> dict[str, Any]:
        """`release`, for all kernels whose launchers the process `parent` started: it exits."""
        for remote in list(self._kernels):
            for front in remote.front_ends:
                if front.parent == int(call.arguments["parent"]):
                    self._part(remote, front)
        return {"ok": True}

    async def op_renamed(self, call: Call) -> dict[str, Any]:
        """A file or folder here has another name: so have the notebooks of kernels (`before`, `after`: whole paths)."""
        before, after = str(call.arguments["before"]), str(call.arguments["after"])
        for remote in self._kernels:
            notebook = str(remote.settings["notebook"])
            if notebook == before or notebook.startswith((before + "/", before + os.sep)):
                remote.belongs_to(after + notebook[len(before) :])
        return {"ok": True}

    async def op_end(self, call: Call) -> dict[str, Any]:
        """As `release`, and the kernel ends for good, as soon as the link allows; unless it is another's."""
        with contextlib.suppress(HubError):  # it is no longer here
            remote, front = self._kernel(call)
            why = str(call.arguments["why"])
            if len(remote.front_ends) == 1:
                self._forget(remote)
                remote.stop(why)
                return {"ok": True}
            if front is remote.front_ends.owner:
                remote.command("stop", why=why)  # the others hear of it
            self._part(remote, front)
        return {"ok": True}

    async def op_kernels(self, call: Call) -> list[dict[str, Any]]:
        """The kernels that front ends have here, without asking any node."""
        return [remote.describe() for remote in self._kernels]

    async def op_journal(self, call: Call) -> dict[str, Any]:
        """{"kernel", "cells"}: what the last cells of a kernel that is here showed. `kernel` may be Jupyter's id."""
        wanted = str(call.arguments["kernel"])
        by_jupyters = (one for one in self._kernels if one.settings["kernel_id"] == wanted)
        remote = next(by_jupyters, None) or self._here(wanted)
        if remote is None:
            raise AgentError(
                f"no front end here has a kernel {wanted}",
                remedy="“jupyter gpu-kernel ps” lists the kernels.",
            )
        cells = await read_journal(remote.link, remote.kernel_id, str(call.arguments.get("cell") or ""))
        return {"kernel": remote.kernel_id, "cells": cells}

    # -------------------------------------------------------------------------------------- helpers

    def _kernel(self, call: Call) -> tuple[RemoteKernel, FrontEnd]:
        """The kernel that the call names, and the front end that the call's face is for."""
        for remote in self._kernels:  # of which two may have one kernel, if it was taken from one of them
            front = remote.front_ends.of(call.client)
            if remote.kernel_id == str(call.arguments["kernel"]) and front is not None:
                return remote, front
        raise HubError("this kernel is no longer here", remedy="Start it again.")

    async def _where(self, kernel_id: str, call: Call) -> tuple[Node, dict[str, Any], dict[str, Any]]:
        """The node that has it, what the keeper says of it, and the settings of a kernelspec that leads there."""
        specs = self._nodes.ways_to(kernel_id, call)
        asked = await self._nodes.each(call, "list", specs=specs)
        having = distinct(one for one in asked if has_kernel(one, kernel_id))
        if not having:
            raise nowhere(kernel_id, asked)
        if len(having) > 1:
            raise disputed([one.node for one in having], [kernel_id])
        node, said = having[0].node, having[0].said
        state = next(state for state in said["kernels"] if state["id"] == kernel_id)
        settings = next(spec["settings"] for spec in specs if Way.of(spec["settings"]) == node.way)
        return node, state, settings

    def _take(self, remote: RemoteKernel, call: Call) -> FrontEnd:
        """The call's face is for the kernel's first front end, which comes, or comes again."""
        if remote not in self._kernels:
            self._kernels.append(remote)
        ports = ports_of(call.arguments["connection"])
        front_ends = list(remote.front_ends)
        front = next((one for one in front_ends if ports_of(one.edge.connection) == ports), front_ends[0])
        self._is_for(front, remote, call)
        return front

    def _join(self, remote: RemoteKernel, call: Call, index: int | None) -> FrontEnd:
        """One more front end on a kernel that is here."""
        front = remote.front_ends.add(call.arguments["connection"], _label(call), index)
        self._is_for(front, remote, call)
        return front

    def _is_for(self, front: FrontEnd, remote: RemoteKernel, call: Call) -> None:
        front.listener, front.parent = call.client, int(call.arguments.get("parent") or 0)
        front.paced = call.arguments.get("face") != "other"
        front.revives = call.arguments.get("face") == "server"
        remote.pacer.paced = any(one.paced for one in remote.front_ends)

    def _follow(self, remote: RemoteKernel, call: Call) -> None:
        call.client.on_closed.append(lambda: self._face_left(remote, call.client))

    def _settings(self, call: Call) -> dict[str, Any]:
        settings = dict(call.arguments["settings"], name=call.arguments.get("name", ""))
        notebook = str(call.arguments.get("notebook") or "")
        said = {"notebook": notebook if is_file(notebook) else ""}
        return {**settings, **said, "kernel_id": call.arguments.get("kernel_id", "")}

    def _remote(
        self, kernel_id: str, settings: dict[str, Any], call: Call, link: Link, how: str, index: int | None
    ) -> RemoteKernel:
        node = self._nodes.of(settings)
        delivered = Delivered(hub_folder() / "delivered" / node.mark / kernel_id)
        connection = call.arguments["connection"]
        try:
            return RemoteKernel(
                kernel_id, settings, connection, link, self._log, self._infos, delivered,
                how, _label(call), index, self._owner,
            )  # fmt: skip
        except BaseException:  # its ports are taken; whoever adopts it tries again, and needs the counts
            delivered.close() if how == "adopt" else delivered.forget()
            raise

    def _face_left(self, remote: RemoteKernel, client: RpcClient) -> None:
        """Detached; unless it left to come back, or was killed: then it keeps ports and GPUs for a moment."""
        front = remote.front_ends.of(client)
        if remote not in self._kernels or front is None:
            return  # released before
        restarts = remote.to_restart and front is remote.front_ends.owner
        if (client.said_bye and not restarts) or (len(remote.front_ends) > 1 and not restarts):
            return self._part(remote, front)
        self._forget(remote)
        front.listener = None
        self._reconnect_grace.wait(remote, front.edge.connection, restarts=restarts)

    def _part(self, remote: RemoteKernel, front: FrontEnd) -> None:
        """The front end leaves the kernel, which is let go with the last one."""
        remote.front_ends.remove(front)
        if not len(remote.front_ends):
            self._let_go(remote)

    def _let_go(self, remote: RemoteKernel) -> None:
        self._forget(remote)
        if remote.to_end and not remote.ended:  # the node has not heard of it yet, as the link is down
            remote.stop("shut down by its front end")
        else:
            remote.close()

    def _find(self, kernel_id: str, node: Node) -> RemoteKernel | None:
        """By the id it has now: a notebook that returns gets the kernel it left, and so that one's id."""
        here = (remote for remote in self._kernels if remote.kernel_id == kernel_id)
        return next((remote for remote in here if self._node(remote).same_as(node)), None)

    def _here(self, kernel_id: str) -> RemoteKernel | None:
        """A kernel that front ends have here, on the node where this hub started it, if it did; AgentError where two
        nodes say that they have it."""
        home = self._nodes.home(kernel_id)
        if home is not None:
            return self._find(kernel_id, home)
        here = [remote for remote in self._kernels if remote.kernel_id == kernel_id]
        nodes = [self._node(remote) for remote in here]
        if not all(node.same_as(nodes[0]) for node in nodes):
            raise disputed(nodes, [kernel_id])
        return here[0] if here else None

    def _node(self, remote: RemoteKernel) -> Node:
        return self._nodes.of(remote.settings)

    def _forget(self, remote: RemoteKernel) -> None:
        if remote in self._kernels:
            self._kernels.remove(remote)


def _kernel_id(said: Any) -> str:
    """An id that a front end chose: it names files, here and on the node."""
    if not validate.is_id(said):
        raise HubError("a kernel's id has 1 to 64 letters, digits, “-” and “_”")
    return str(said)


def _label(call: Call) -> str:
    """What the user calls this front end."""
    return str(call.arguments.get("notebook") or call.arguments.get("label") or "")


def _answer(remote: RemoteKernel, client: RpcClient) -> dict[str, Any]:
    """What a front end is told of its kernel; with `python` and `front` another hub could go on."""
    front = remote.front_ends.of(client)
    more = {} if front is None else {"connection": front.edge.connection, "front": front.index}
    return {**remote.describe(), "python": remote.settings["python"], **more}
