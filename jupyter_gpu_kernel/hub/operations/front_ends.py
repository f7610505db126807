"""The operations of front ends, for the kernels that they have here: start, attach, adopt, restart, release, end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from typing import Any

from ...errors import AgentError, ConnectError, GpuKernelError, HostKeyError, HubError, KernelStartError
from ...wire.runtime import Runtime
from .. import sanitize
from ..client_connection import ClientConnection
from ..kernel.core.life import LinkState
from ..kernel.logged_cells import read_logged_cells
from ..kernel.remote_kernel import RemoteKernel
from ..kernel.vscode.notebook import is_file
from ..kernel_settings import KernelSettings
from ..kernels import Kernels, front_end_of
from ..node.node import Node
from ..node.nodes import NodeRequest, Nodes, conflict, distinct, not_found
from ..rpc import Call

START_TIMEOUT = 200.0
"""Seconds, for a slow file system: longer than for the agent's answer. Permanent errors are raised much earlier."""
_GPUS_TIMEOUT = 30.0
"""Seconds for the node to run nvidia-smi."""
_TRACEBACK = re.compile(r"(?s:.*)Traceback \(most recent call last\):\n(?:(?: .*)?\n)*(?=[^ \n])")
"""What comes before an exception: its traceback leads through Python's and our own files."""


class FrontEndOperations:
    """The operations. `kernels`: the kernels that the front ends of this hub have."""

    def __init__(self, runtime: Runtime, nodes: Nodes, kernels: Kernels) -> None:
        self._runtime = runtime
        self._nodes = nodes
        self._kernels = kernels

    async def op_start(self, call: Call) -> dict[str, Any]:
        """Bind the ports and start the kernel; return {"id", "connection", …} when it can be used."""
        settings = _settings(call)
        returning = self._kernels.pop_returning(settings, call)
        if returning is not None:
            return await self._serve(returning, call, restart=True)
        origin = self._kernels.origin(settings, call)
        kernel_id = _kernel_id(call.arguments.get("kernel") or self._runtime.new_id()[:12])
        if origin.starter is not None:
            restarted_on = origin.session.restarted_on if origin.session is not None else ""
            settings = await origin.starter.prepare(settings, call, restarted_on)
        no_link = self._nodes.no_link(settings)
        if no_link is not None:  # a cell of its user starts it
            return await self._serve(self._kernels.create(kernel_id, settings, call, no_link, origin), call)
        node = self._nodes.of(settings)
        self._nodes.record_start(kernel_id, node)
        node.add_name(settings.name)
        if call.login_wait or node.needs_user:  # the link does not ask
            await node.signed_in(call)
        python = settings.python or await node.best_python(call, settings.setup)
        link = node.begin_link(python, call)
        settings = settings.replace(python=python)
        return await self._serve(self._kernels.create(kernel_id, settings, call, link, origin), call)

    async def op_attach(self, call: Call) -> dict[str, Any]:
        """Add a front end to a kernel of this hub, or to one that runs on a node of `specs`. The result is that of
        `start`."""
        kernel_id = _kernel_id(call.arguments["kernel"])
        remote = self._kernels.by_id(kernel_id)
        if remote is None:
            node, state, settings = await self._where(kernel_id, call)
            settings = settings.replace(
                name=str(state.get("name", "")),
                notebook=str(state.get("notebook", "")),
                kernel_id=str(call.arguments.get("kernel_id") or ""),
            ).placed(node.python)
            link = await node.link(node.python, call)
            remote = self._kernels.find(kernel_id, node)  # another front end may have come to it meanwhile
            if remote is None:
                origin = self._kernels.origin(settings, call)
                remote = self._kernels.create(kernel_id, settings, call, link, origin)
        front = remote.front_ends.of(call.client) or remote.front_ends.add(front_end_of(call))
        try:
            await self._until_usable(remote, call)
        except BaseException:
            self._kernels.remove(remote, front)
            raise
        notebook = str(call.arguments.get("notebook") or "")
        if len(remote.front_ends) == 1 and is_file(notebook) and notebook != remote.settings.notebook:
            remote.set_notebook(notebook)  # which can return to it from now on
        self._kernels.watch_client(remote, call)
        return {**_answer(remote, call.client), "settings": remote.settings.to_json()}

    async def op_adopt(self, call: Call) -> dict[str, Any]:
        """Serve a kernel whose hub was killed, with the same ports and key. Return at once; events
        report the kernel's state."""
        kernel_id = _kernel_id(call.arguments["kernel"])
        settings = _settings(call)
        node, no_link = self._nodes.of(settings), self._nodes.no_link(settings)
        remote = self._kernels.by_id(kernel_id) if no_link else self._kernels.find(kernel_id, node)
        if remote is not None:
            remote.front_ends.add(front_end_of(call))
        else:
            if no_link is None:
                settings = settings.replace(python=settings.python or node.python)
            link = no_link or self._kernels.open_link(settings)
            origin = self._kernels.origin(settings, call)
            remote = self._kernels.create(kernel_id, settings, call, link, origin)
        self._kernels.watch_client(remote, call)
        return _answer(remote, call.client)

    async def op_restart(self, call: Call) -> dict[str, Any]:
        """Start a new kernel process, with the same ports and GPUs."""
        remote, front = self._kernels.of(call)
        if not remote.owns(front) or remote.life.taken_cause:
            cause = remote.life.taken_cause or f"{remote.core.ownership.label} has this kernel now"
            remedy = "Run a cell here first: that takes it over."
            raise KernelStartError(cause, hop=remote.link.name, remedy=remedy)
        try:
            await self._kernels.restart(remote)
            await self._until_usable(remote, call)
        except GpuKernelError as error:  # the client says bye next, and the user has given up the old process
            remote.refuse(error)
            self._kernels.end(remote, front, "its restart failed")
            raise
        return _answer(remote, call.client)

    async def op_command(self, call: Call) -> dict[str, Any]:
        """Send a command to the keeper: interrupt, kill, signal (number), stop. Return as soon as the command
        is queued.

        Commands of a front end that does not own the kernel are ignored.
        """
        remote, front = self._kernels.of(call)
        if remote.owns(front):
            remote.command(str(call.arguments["do"]), **call.arguments.get("more", {}))
        return {"ok": True}

    async def op_release(self, call: Call) -> dict[str, Any]:
        """The front end leaves the kernel, ended or not."""
        with contextlib.suppress(HubError):  # it is not served any more
            self._kernels.remove(*self._kernels.of(call))
        return {"ok": True}

    async def op_returns(self, call: Call) -> dict[str, Any]:
        """Return {"returns"}: whether this client's front end can find its kernel again by itself.

        VS Code can, also while it has not named the notebook yet, or the notebook is not saved. So can a front end that
        has requested a restart, and does not wait until the kernel has ended.
        """
        with contextlib.suppress(HubError):  # it is not served any more
            remote, front = self._kernels.of(call)
            return {"returns": remote.can_be_found or self._kernels.restarts(remote, front)}
        return {"returns": True}

    async def op_leave(self, call: Call) -> dict[str, Any]:
        """Release all kernels whose launchers the process `parent` started, as it exits."""
        for remote in self._kernels:
            for front in remote.front_ends:
                if front.spec.parent == int(call.arguments["parent"]):
                    self._kernels.remove(remote, front)
        return {"ok": True}

    async def op_notebook(self, call: Call) -> dict[str, Any]:
        """The client's front end says which notebook uses its kernel now (`path`). Other kernels of the notebook that
        used it before keep that notebook."""
        remote, _ = self._kernels.of(call)
        remote.set_notebook(str(call.arguments["path"]))
        return {"ok": True}

    async def op_renamed(self, call: Call) -> dict[str, Any]:
        """A file or folder on this machine was renamed, so rename the notebooks of kernels (`before`, `after`: absolute
        paths)."""
        before, after = str(call.arguments["before"]), str(call.arguments["after"])
        if not os.path.isabs(before):  # "" would be a folder of all notebooks
            raise HubError("only a file or folder with an absolute path can be renamed")
        for remote in self._kernels:
            notebook = remote.settings.notebook
            if notebook == before or notebook.startswith((before + "/", before + os.sep)):
                remote.set_notebook(after + notebook[len(before) :])
        return {"ok": True}

    async def op_end(self, call: Call) -> dict[str, Any]:
        """The front end leaves the kernel, which ends for good as soon as the link is up, unless another front end owns
        it."""
        with contextlib.suppress(HubError):  # it is not served any more
            self._kernels.end(*self._kernels.of(call), str(call.arguments["why"]))
        return {"ok": True}

    async def op_kernels(self, call: Call) -> list[dict[str, Any]]:
        """Return the kernels that front ends have here, without asking any node."""
        return [remote.describe() for remote in self._kernels]

    async def op_journal(self, call: Call) -> dict[str, Any]:
        """Return {"kernel", "cells"}: the last cells of a kernel that is here, with outputs. `kernel` may be Jupyter's
        id."""
        remote = self._by_any_id(str(call.arguments["kernel"]))
        if remote.not_started:  # it has run no cell yet
            return {"kernel": remote.kernel_id, "cells": []}
        cells = await read_logged_cells(remote.link, remote.kernel_id, str(call.arguments.get("cell") or ""))
        return {"kernel": remote.kernel_id, "cells": cells}

    async def op_gpu_use(self, call: Call) -> list[dict[str, Any]]:
        """Return the rows of `gpus` of the GPUs that a kernel here has. Only its node is asked, and only if the link is
        up. `kernel` may be Jupyter's id."""
        remote = self._by_any_id(str(call.arguments["kernel"]))
        held = set(remote.status["gpus"])
        if not held or remote.link.state != "up":
            return []
        answer = await remote.link.request("gpus", timeout=_GPUS_TIMEOUT)
        return [row for row in answer.get("gpus", []) if row["uuid"] in held]

    # -------------------------------------------------------------------------------------- helpers

    def _by_any_id(self, wanted: str) -> RemoteKernel:
        """Return the kernel of this hub with this id, which may be Jupyter's id of the kernel."""
        by_jupyters_id = (one for one in self._kernels if one.settings.kernel_id == wanted)
        remote = next(by_jupyters_id, None) or self._kernels.by_id(wanted)
        if remote is None:
            raise AgentError(
                f"no front end here has a kernel {wanted}",
                remedy="“jupyter gpu-kernel ps” lists the kernels.",
            )
        return remote

    async def _serve(self, remote: RemoteKernel, call: Call, *, restart: bool = False) -> dict[str, Any]:
        """The call's client serves the kernel from now on; return the answer when the kernel can be used."""
        front, started = remote.front_ends.of(call.client), remote.kernel_id
        assert front is not None
        try:
            if restart:
                await self._kernels.restart(remote)
                started = remote.kernel_id  # another one, if the kernel does not exist any more
            await self._until_usable(remote, call)
        except BaseException as error:  # also when the client left meanwhile
            if isinstance(error, GpuKernelError):
                remote.refuse(error)
            if remote.kernel_id == started:  # nobody has used the kernel yet
                self._kernels.end(remote, front, "its restart failed" if restart else "it did not start")
            else:  # it is the one that its notebook had left, with all its variables
                self._kernels.release(remote)
            raise
        self._kernels.watch_client(remote, call)
        return _answer(remote, call.client)

    async def _until_usable(self, remote: RemoteKernel, call: Call) -> None:
        """Wait as `_until_up` does. If the link comes back only when the user signs in, ask the user."""
        try:
            await _until_up(remote)
        except GpuKernelError as error:
            link = remote.link
            if error is not link.problem or not error.login or not call.asks or link.state != "away":
                raise
            await self._nodes.of(remote.settings).connected(call)
            await _until_up(remote)

    async def _where(self, kernel_id: str, call: Call) -> tuple[Node, dict[str, Any], KernelSettings]:
        """Return the node that has the kernel, the keeper's status, and settings that lead to that node."""
        specs = self._nodes.specs_for(kernel_id, call)
        asked = await self._kernels.jobs.ask_each(call, NodeRequest("list"), specs)
        having = distinct(one for one in asked if kernel_id in [state["id"] for state in one.kernels])
        if not having:
            raise not_found(kernel_id, asked)
        if len(having) > 1:
            raise conflict([one.node for one in having], [kernel_id])
        node, answer, settings = having[0].node, having[0].answer, having[0].settings or KernelSettings()
        state = next(state for state in answer["kernels"] if state["id"] == kernel_id)
        return node, state, settings


def _settings(call: Call) -> KernelSettings:
    notebook = str(call.arguments.get("notebook") or "")
    return call.settings.replace(
        name=str(call.arguments.get("name") or ""),
        notebook=notebook if is_file(notebook) else "",
        kernel_id=str(call.arguments.get("kernel_id") or ""),
    )


def _kernel_id(kernel_id: Any) -> str:
    """Check an id that a front end has chosen, as the id becomes a name of files, on both machines."""
    if not sanitize.is_id(kernel_id):
        raise HubError("a kernel's id has 1 to 64 letters, digits, “-” and “_”")
    return str(kernel_id)


def _answer(remote: RemoteKernel, client: ClientConnection) -> dict[str, Any]:
    """Return what a front end needs of its kernel. `python` and `front` are for another hub that adopts the kernel."""
    front = remote.front_ends.of(client)
    more = {} if front is None else {"connection": front.edge.connection, "front": front.number}
    placed = {"settings": remote.settings.to_json()} if remote.settings.hosts else {}  # on the chosen host
    return {**remote.describe(), "python": remote.settings.python, **placed, **more}


# -------------------------------------------------------------------------------- until a kernel can be used


async def _until_up(remote: RemoteKernel) -> None:
    """Return when the kernel answers, or was shut down meanwhile. Raise the reason if the kernel will never answer.

    A link that has carried the kernel before comes back by itself. Before that, the first failed attempt to connect is
    an error.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + START_TIMEOUT
    if not (remote.waits_for_link or remote.was_attached):
        await remote.link.up()
    while remote.status["state"] not in ("idle", "busy", "waiting"):
        if remote.ended and remote.status.get("asked"):
            return
        _raise_if_failed(remote)
        await remote.change(max(0.1, deadline - loop.time()))
        if remote.waits_for_link:
            deadline = loop.time() + START_TIMEOUT
        if loop.time() > deadline:
            raise _timed_out(remote)


def _raise_if_failed(remote: RemoteKernel) -> None:
    if remote.ended:
        raise remote.error or _ended_early(remote)
    if remote.life.taken_cause:
        raise KernelStartError(remote.life.taken_cause, hop=remote.link.name, remedy="Use it there.")
    problem = remote.link.problem
    needs_user = problem is not None and (problem.login or isinstance(problem, HostKeyError))
    if problem is not None and needs_user and not remote.waits_for_link:
        raise problem  # the link is down, and does not come up by itself


def _timed_out(remote: RemoteKernel) -> GpuKernelError:
    if remote.link_state is not LinkState.UP:
        cause = f"the connection has been down for {START_TIMEOUT:.0f} s"
        return ConnectError(cause, hop=remote.link.name, remedy="Try again when the connection is back.")
    return KernelStartError(f"the kernel did not answer in {START_TIMEOUT:.0f} s", hop=remote.link.name)


def _ended_early(remote: RemoteKernel) -> GpuKernelError:
    stderr = sanitize.block(_TRACEBACK.sub("", str(remote.status.get("stderr") or "")))
    cause = f"the kernel ended while it started: {remote.status.get('cause') or '?'}"
    remedy = "Try by hand on the node whether “PYTHON -m ipykernel_launcher --version” works."
    return KernelStartError(
        f"{cause}; its output:\n{stderr}" if stderr else cause, hop=remote.link.name, remedy=remedy
    )
