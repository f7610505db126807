"""The kernels that front ends have here: start, adopt, restart, let go. Their operations, as faces ask for them.

An operation is a method `op_<name>(call)`, as in hub.py. This file knows how long things may take and who left.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import uuid
from typing import Any

from ..errors import ConnectError, GpuKernelError, HubError, KernelStartError
from .delivered import Delivered
from .faces import Call, Face
from .kernels import RemoteKernel
from .link import Link
from .memory import KernelInfos
from .nodes import Nodes
from .places import data_folder
from .visits import Visit, Visits

START_WITHIN = 120.0
"""Seconds for a slow file system; what is permanent is said much earlier."""
RESTART_WITHIN = 10.0
"""Seconds an argv front end has to come back, with the same connection file, after it asked for a restart."""


class Serving:
    """All kernels with a front end, and those whose front end is about to come back."""

    def __init__(self, nodes: Nodes, log: logging.Logger) -> None:
        self._nodes = nodes
        self._log = log
        self._kernels: list[RemoteKernel] = []
        self._restarting: dict[tuple[str, int], tuple[RemoteKernel, asyncio.TimerHandle]] = {}
        self._visits = Visits()
        self._infos = KernelInfos(data_folder() / "kernel-info")

    @property
    def in_use(self) -> bool:
        """Whether a front end has a kernel here, or is to come back to one."""
        return bool(self._kernels or self._restarting)

    def attached(self, kernel_id: str) -> bool:
        """Whether a front end has this kernel, and the link to it is up."""
        remote = self._find(kernel_id)
        return remote is not None and remote.link_state == "up"

    def close(self) -> None:
        """Lets go of all; keepers live on."""
        for kernel in list(self._kernels):
            kernel.close()

    async def op_start(self, call: Call) -> dict[str, Any]:
        """Binds the ports, starts the kernel; returns {"id", "connection", …} once it can be spoken to."""
        settings = self._settings(call)
        waiting = self._restarting.pop(_ports(call.arguments["connection"]), None)
        if waiting is not None:
            return await self._start_again(*waiting, call)
        kernel_id = str(call.arguments.get("kernel") or uuid.uuid4().hex[:12])
        node = self._nodes.of(settings)
        settings["python"] = settings.get("python") or await node.some_python(call)
        link = node.begin_link(settings["python"], call)
        remote = self._remote(kernel_id, settings, call, link)
        if "parent" in call.arguments and not settings["notebook"]:
            remote.visit = Visit(self._visits, int(call.arguments["parent"]), str(settings["name"]))
        return await self._serve(remote, call)

    async def op_adopt(self, call: Call) -> dict[str, Any]:
        """A kernel whose hub was killed: the same ports and key again. Answered at once; events tell the rest."""
        settings = self._settings(call)
        kernel_id = str(call.arguments["kernel"])
        node = self._nodes.of(settings)
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
            self._forget(remote)
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
        remote = self._find(str(call.arguments["kernel"]))
        if remote is not None:
            self._forget(remote)
            remote.stop(str(call.arguments["why"]))
        return {"ok": True}

    async def op_kernels(self, call: Call) -> list[dict[str, Any]]:
        """The kernels that front ends have here, without asking any node."""
        return [remote.describe() for remote in self._kernels]

    # -------------------------------------------------------------------------------------- helpers

    def _kernel(self, call: Call) -> RemoteKernel:
        remote = self._find(str(call.arguments["kernel"]))
        if remote is None:
            raise HubError("this kernel is no longer here", remedy="Start it again.")
        return remote

    def _take(self, remote: RemoteKernel, call: Call) -> None:
        self._kernels.append(remote)
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
        if remote not in self._kernels:
            return  # released before
        if remote.visit is not None:
            self._visits.left(remote.visit, remote)
        restarts = remote.ended and remote.state.get("asked") == "restart"
        if face.said_bye and not restarts:
            return self._let_go(remote.kernel_id)
        self._forget(remote)
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
        remote = self._find(kernel_id)
        if remote is not None:
            self._forget(remote)
            remote.close()

    def _find(self, kernel_id: str) -> RemoteKernel | None:
        """By the id it has now: a notebook that returns gets the kernel it left, and so that one's id."""
        return next((remote for remote in self._kernels if remote.kernel_id == kernel_id), None)

    def _forget(self, remote: RemoteKernel) -> None:
        if remote in self._kernels:
            self._kernels.remove(remote)

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


def _ports(connection: dict[str, Any]) -> tuple[str, int]:
    """What two front ends share only if they have the same connection file."""
    return str(connection.get("key")), int(connection.get("shell_port") or 0)


def _answer(remote: RemoteKernel) -> dict[str, Any]:
    """What a front end is told of its kernel; with `python` another hub could go on."""
    return {**remote.describe(), "connection": remote.edge.connection, "python": remote.settings["python"]}


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
