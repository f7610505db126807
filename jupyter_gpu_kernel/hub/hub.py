"""The hub: nodes, kernels, and the operations that faces ask for. It alone holds connections, links and
local ports.

An operation is a method `op_<name>(call)`; what it returns is the JSON answer. docs/protocol.md lists
them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
import uuid
from typing import Any

from .. import __version__
from ..errors import AgentError, ConnectError, GpuKernelError, HubError, KernelStartError
from ..wire import PROTOCOL
from .check import check
from .delivered import Delivered
from .faces import Call, Face
from .kernels import RemoteKernel
from .link import Link
from .memory import KernelInfos
from .nodes import Node, Way
from .places import data_folder, trust_file
from .probe import find_pythons
from .visits import Visit, Visits

START_WITHIN = 120.0
"""Seconds for a slow file system; what is permanent is said much earlier."""
LOGIN_KEEPS = 12 * 3600.0
"""Seconds a connection that the owner signed in for is kept without a kernel."""
RESTART_WITHIN = 10.0
"""Seconds an argv front end has to come back, with the same connection file, after it asked for a restart."""


class Hub:
    """`await operation(call)` for each question of a face."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._nodes: dict[Way, Node] = {}
        self._kernels: dict[str, RemoteKernel] = {}
        self._restarting: dict[tuple[str, int], tuple[RemoteKernel, asyncio.TimerHandle]] = {}
        self._visits = Visits()
        self._infos = KernelInfos(data_folder() / "kernel-info")

    @property
    def in_use(self) -> bool:
        """Whether a front end has a kernel here, one is being ended, or the owner signed in for those to come."""
        nodes = self._nodes.values()
        return bool(self._kernels or self._restarting) or any(node.kept or node.in_use for node in nodes)

    async def operation(self, call: Call) -> Any:
        """Runs the operation that the call names."""
        method = getattr(self, "op_" + call.op, None)
        if method is None:
            raise HubError(
                f"this hub knows no operation {call.op!r}", remedy="Restart it: stop all front ends."
            )
        try:
            return await method(call)
        except GpuKernelError as error:
            if name := str(call.arguments.get("name") or ""):
                error.remedy = error.remedy.replace(" NAME", " " + name)
            raise

    async def close(self) -> None:
        """Hangs up everywhere; keepers live on."""
        for kernel in list(self._kernels.values()):
            kernel.close()
        for node in self._nodes.values():
            await node.close()

    # -------------------------------------------------------------------------- the hub and its nodes

    async def op_hello(self, call: Call) -> dict[str, Any]:
        """{"protocol", "version", "pid"}."""
        return {"protocol": PROTOCOL, "version": __version__, "pid": os.getpid()}

    async def op_login(self, call: Call) -> dict[str, Any]:
        """Opens the connection, asking the owner for what it must; it stays for kernels to come."""
        node = self._node(call.arguments["settings"])
        await node.connected(call)
        node.keep(LOGIN_KEEPS)
        return {"node": node.name}

    async def op_hang_up(self, call: Call) -> dict[str, Any]:
        """Ends every connection that no kernel uses."""
        for way, node in list(self._nodes.items()):
            if not node.in_use:
                del self._nodes[way]
                await node.close()
        return {"ok": True}

    async def op_probe(self, call: Call) -> dict[str, Any]:
        """Walks to the node, finds a Python with ipykernel, looks at the GPUs."""
        settings = call.arguments["settings"]
        node = self._node(settings)
        connection = await node.connected(call)
        call.progress(node.name, "looking for a Python with ipykernel")
        found = await asyncio.to_thread(find_pythons, connection, node.name, settings.get("python"))
        answer = {
            **found.to_json(),
            "hops": [dict(zip(("hop", "step", "seconds"), step, strict=True)) for step in connection.hops],
            "route": list(node.way.words),
            "gpus": [],
            "gpus_error": None,
        }
        call.progress(node.name, "starting the agent")
        link = await node.link(found.python.path, call)
        call.progress(node.name, "looking at the GPUs")
        try:
            answer["gpus"] = (await link.request("gpus", timeout=60))["gpus"]
        except AgentError as error:
            answer["gpus_error"] = error.cause
        return answer

    async def op_check(self, call: Call) -> list[dict[str, Any]]:
        """Every step of the way, timed, with a remedy where it fails."""
        node = self._node(call.arguments["settings"])
        return await check(node, call.arguments["settings"], call)

    async def op_gpus(self, call: Call) -> list[dict[str, Any]]:
        """Every GPU of every node."""
        answers = await self._each_node(call, "gpus", timeout=60)
        rows: list[dict[str, Any]] = []
        for _, answer in answers:
            rows += answer.get("gpus", [answer])
        return rows

    async def op_ps(self, call: Call) -> list[dict[str, Any]]:
        """Our kernels on all nodes."""
        rows: list[dict[str, Any]] = []
        for _, answer in await self._each_node(call, "list"):
            rows += (
                [self._seen_here(state) for state in answer["kernels"]] if "kernels" in answer else [answer]
            )
        return rows

    async def op_logs(self, call: Call) -> list[dict[str, Any]]:
        """A kernel's story, from whichever node has it."""
        kernel_id = str(call.arguments["kernel"])
        for _, answer in await self._each_node(call, "story", kernel=kernel_id):
            if "story" in answer:
                return list(answer["story"])
        raise AgentError(
            f"no node knows a kernel {kernel_id}", remedy="“jupyter gpu-kernel ps” lists the kernels."
        )

    async def op_stop(self, call: Call) -> dict[str, Any]:
        """Ends a kernel for good, wherever it is; returns once nothing of it is left."""
        kernel_id = str(call.arguments["kernel"])
        call.progress("", f"stopping {kernel_id}")
        for node, answer in await self._each_node(call, "list"):
            if any(state["id"] == kernel_id for state in answer.get("kernels", [])):
                link = await node.link(node.python, call)
                await link.request("stop", kernel=kernel_id, why="jupyter gpu-kernel stop")
                return {"ok": True}
        raise AgentError(
            f"no node has a kernel {kernel_id}", remedy="“jupyter gpu-kernel ps” lists the kernels."
        )

    async def op_leftovers(self, call: Call) -> list[dict[str, Any]]:
        """The owner's processes of kernels that no longer exist, on all nodes."""
        return _rows(await self._each_node(call, "leftovers"), "leftovers")

    async def op_end_leftovers(self, call: Call) -> list[dict[str, Any]]:
        """Ends those of `leftovers`, as op_leftovers told them, that are still there; returns them."""
        wanted = call.arguments["leftovers"]
        return _rows(await self._each_node(call, "end_leftovers", leftovers=wanted), "ended")

    # -------------------------------------------------------------------------------------- kernels

    async def op_start(self, call: Call) -> dict[str, Any]:
        """Binds the ports, starts the kernel; returns {"id", "connection", …} once it can be spoken to."""
        settings = self._settings(call)
        waiting = self._restarting.pop(_ports(call.arguments["connection"]), None)
        if waiting is not None:
            return await self._start_again(*waiting, call)
        kernel_id = str(call.arguments.get("kernel") or uuid.uuid4().hex[:12])
        node = self._node(settings)
        settings["python"] = settings.get("python") or await self._some_python(node, call)
        link = node.begin_link(settings["python"], call)
        remote = self._remote(kernel_id, settings, call, link)
        if "parent" in call.arguments and not settings["notebook"]:
            remote.visit = Visit(self._visits, int(call.arguments["parent"]), str(settings["name"]))
        return await self._serve(remote, call)

    async def op_adopt(self, call: Call) -> dict[str, Any]:
        """A kernel whose hub was killed: the same ports and key again. Answered at once; events tell the rest."""
        settings = self._settings(call)
        kernel_id = str(call.arguments["kernel"])
        node = self._node(settings)
        settings["python"] = settings.get("python") or node.python
        link = node.begin_link(settings["python"], None)
        remote = self._remote(kernel_id, settings, call, link, adopted=True)
        self._take(remote, call)
        call.face.on_closed.append(lambda: self._face_left(remote, call.face))
        return _answer(remote)

    async def _start_again(
        self, remote: RemoteKernel, timer: asyncio.TimerHandle, call: Call
    ) -> dict[str, Any]:
        """An argv front end restarts by a new process with the old connection file."""
        timer.cancel()
        remote.restart()
        return await self._serve(remote, call)

    async def _serve(self, remote: RemoteKernel, call: Call) -> dict[str, Any]:
        self._take(remote, call)
        try:
            await self._until_up(remote, remote.link)
        except BaseException:  # also when the face left meanwhile: nobody has used the kernel yet
            self._kernels.pop(remote.kernel_id, None)
            remote.stop("it did not start")
            raise
        call.face.on_closed.append(lambda: self._face_left(remote, call.face))
        return _answer(remote)

    async def op_restart(self, call: Call) -> dict[str, Any]:
        """A fresh kernel process behind the same ports, with the same GPUs."""
        remote = self._kernel(call)
        remote.restart()
        await self._until_up(remote, remote.link)
        return _answer(remote)

    async def op_command(self, call: Call) -> dict[str, Any]:
        """A word to the keeper: interrupt, kill, signal (number), stop. Answered as soon as it is queued."""
        self._kernel(call).command(str(call.arguments["do"]), **call.arguments.get("more", {}))
        return {"ok": True}

    async def op_release(self, call: Call) -> dict[str, Any]:
        """The front end is done with the kernel, ended or not."""
        self._let_go(str(call.arguments["kernel"]))
        return {"ok": True}

    async def op_end(self, call: Call) -> dict[str, Any]:
        """As `release`, and the kernel ends for good, as soon as the link allows."""
        remote = self._kernels.pop(str(call.arguments["kernel"]), None)
        if remote is not None:
            remote.stop(str(call.arguments["why"]))
        return {"ok": True}

    async def op_kernels(self, call: Call) -> list[dict[str, Any]]:
        """The kernels that front ends have here, without asking any node."""
        return [remote.describe() for remote in self._kernels.values()]

    # -------------------------------------------------------------------------------------- helpers

    def _node(self, settings: dict[str, Any]) -> Node:
        way = Way.of(settings)
        node = self._nodes.get(way)
        if node is None:
            node = self._nodes[way] = Node(way, trust_file(), self._log)
        return node

    def _kernel(self, call: Call) -> RemoteKernel:
        remote = self._kernels.get(str(call.arguments["kernel"]))
        if remote is None:
            raise HubError("this kernel is no longer here", remedy="Start it again.")
        return remote

    def _take(self, remote: RemoteKernel, call: Call) -> None:
        self._kernels[remote.kernel_id] = remote
        remote.pacer.paced = call.arguments.get("face") != "other"
        remote.watchers[:] = [call.face.send]

    def _settings(self, call: Call) -> dict[str, Any]:
        settings = dict(call.arguments["settings"], name=call.arguments.get("name", ""))
        said = {key: call.arguments.get(key, "") for key in ("notebook", "kernel_id")}
        return {**settings, **said}

    def _remote(
        self, kernel_id: str, settings: dict[str, Any], call: Call, link: Link, adopted: bool = False
    ) -> RemoteKernel:
        delivered = Delivered(data_folder() / "delivered" / kernel_id)
        connection = call.arguments["connection"]
        return RemoteKernel(kernel_id, settings, connection, link, self._log, self._infos, delivered, adopted)

    def _face_left(self, remote: RemoteKernel, face: Face) -> None:
        """Detached; unless it left to come back, or was killed: then it keeps ports and GPUs for a moment."""
        self._kernels = {kernel.kernel_id: kernel for kernel in self._kernels.values()}
        if self._kernels.get(remote.kernel_id) is not remote:
            return  # released before
        if remote.visit is not None:
            self._visits.left(remote.visit, remote)
        restarts = remote.ended and remote.state.get("asked") == "restart"
        if face.said_bye and not restarts:
            return self._let_go(remote.kernel_id)
        del self._kernels[remote.kernel_id]
        remote.watchers.clear()
        remote.hold()
        ports = _ports(remote.edge.connection)

        def give_up() -> None:
            self._restarting.pop(ports, None)
            if restarts:
                remote.stop("nobody came back to restart it")
            else:
                remote.close()

        timer = asyncio.get_running_loop().call_later(RESTART_WITHIN, give_up)
        self._restarting[ports] = (remote, timer)

    def _let_go(self, kernel_id: str) -> None:
        remote = self._kernels.pop(kernel_id, None)
        if remote is not None:
            remote.close()

    def _seen_here(self, state: dict[str, Any]) -> dict[str, Any]:
        remote = self._kernels.get(state["id"])
        attached = remote is not None and remote.link_state == "up"
        return dict(state, attached=attached, state=_shown(state["state"], attached))

    async def _some_python(self, node: Node, call: Call) -> str:
        connection = await node.connected(call)
        call.progress(node.name, "looking for a Python with ipykernel")
        found = await asyncio.to_thread(find_pythons, connection, node.name, None)
        return str(found.python.path)

    async def _until_up(self, remote: RemoteKernel, link: Link) -> None:
        """Returns when the kernel answers, or was shut down meanwhile; raises why it never will."""
        deadline = time.monotonic() + START_WITHIN
        changed = asyncio.Event()

        def watcher(_: dict[str, Any]) -> None:
            changed.set()

        remote.watchers.append(watcher)
        try:
            await link.up()
            while remote.state["state"] not in ("idle", "busy", "waiting"):
                if remote.ended and remote.state.get("asked"):
                    return
                if remote.ended:
                    raise remote.error or _early_end(remote)
                changed.clear()
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(changed.wait(), max(0.1, deadline - time.monotonic()))
                if time.monotonic() > deadline:
                    raise _late(remote)
        finally:
            with contextlib.suppress(ValueError):  # it was ended meanwhile
                remote.watchers.remove(watcher)
            # A notebook that returns gets the id of the kernel it left.
            self._kernels = {kernel.kernel_id: kernel for kernel in self._kernels.values()}

    async def _each_node(self, call: Call, do: str, timeout: float = 30, **more: Any) -> list[Any]:
        """(node, answer) for each node of `specs`; where one cannot be asked, {"node", "error"} stands
        for it."""
        nodes: dict[Way, tuple[Node, dict[str, Any]]] = {}
        for spec in call.arguments["specs"]:
            node = self._node(spec["settings"])
            nodes.setdefault(node.way, (node, spec["settings"]))

        async def ask(node: Node, settings: dict[str, Any]) -> tuple[Node, dict[str, Any]]:
            call.progress(node.name, "asking")
            try:
                python = settings.get("python") or node.python or await self._some_python(node, call)
                link = await node.link(python, call)
                return node, await link.request(do, timeout=timeout, **more)
            except GpuKernelError as error:
                return node, {"node": node.name, "error": error.to_json()}

        return list(await asyncio.gather(*(ask(*pair) for pair in nodes.values())))


def _rows(answers: list[Any], key: str) -> list[dict[str, Any]]:
    """The lists under `key`, each row with its node; a node's error as a row."""
    return [
        dict(row, node=node.name) if key in answer else row
        for node, answer in answers
        for row in answer.get(key, [answer])
    ]


def _ports(connection: dict[str, Any]) -> tuple[str, int]:
    """What two front ends share only if they have the same connection file."""
    return str(connection.get("key")), int(connection.get("shell_port") or 0)


def _answer(remote: RemoteKernel) -> dict[str, Any]:
    """What a front end is told of its kernel; with `python` another hub could go on."""
    return {**remote.describe(), "connection": remote.edge.connection, "python": remote.settings["python"]}


def _shown(state: str, attached: bool) -> str:
    return "detached" if state == "idle" and not attached else state


def _late(remote: RemoteKernel) -> GpuKernelError:
    if remote.link_state != "up":
        cause = f"the connection has been down for {START_WITHIN:.0f} s"
        return ConnectError(cause, hop=remote.link.name, remedy="Try again when it is back.")
    return KernelStartError(f"the kernel did not answer in {START_WITHIN:.0f} s", hop=remote.link.name)


def _early_end(remote: RemoteKernel) -> GpuKernelError:
    said = _gist(str(remote.state.get("stderr") or ""))
    cause = f"the kernel ended while it started: {remote.state.get('cause', '?')}"
    remedy = "Try its Python by hand on the node: PYTHON -m ipykernel_launcher --version"
    return KernelStartError(f"{cause}\n{said}" if said else cause, hop=remote.link.name, remedy=remedy)


def _gist(said: str) -> str:
    """The exception without the way to it, which leads through Python's and our own files."""
    _, found, traceback = said.rpartition("Traceback (most recent call last):\n")
    if not found:
        return said
    lines = traceback.splitlines()
    at = next((n for n, line in enumerate(lines) if line and not line.startswith(" ")), len(lines))
    return "\n".join(lines[at:]) or said
