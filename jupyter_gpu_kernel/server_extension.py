"""The Jupyter server extension: it adds the HTTP API, and detaches remote kernels when the server exits.

The HTTP API below jupyter-gpu-kernel/api shows kernels, nodes, and the outputs of a kernel's last cells. Requests are
authenticated and authorised as in every Jupyter handler, and answered by the hub. No request starts a hub or a
connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from typing import Any

import tornado
from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from jupyter_server.extension.application import ExtensionApp
from jupyter_server.utils import to_os_path

from . import __version__
from .client import HubClient
from .errors import GpuKernelError
from .program import command
from .provisioner import RemoteGPUProvisioner
from .wire.texts import with_program

PENDING_START_TIMEOUT = 5.0
"""Seconds for starts of kernels that are pending when the server exits; ours have been released."""
CONTENTS_EVENTS = "https://events.jupyter.org/jupyter_server/contents_service/v1"


class GpuKernelExtension(ExtensionApp):
    """The extension. It has no settings of its own: those are of the hub and the provisioner."""

    name = "jupyter_gpu_kernel"
    version = __version__
    description = "Remote GPU kernels: the state of links and kernels, for the JupyterLab extension."

    def initialize_handlers(self) -> None:
        """jupyter_server calls this once."""
        self.handlers.extend(HANDLERS)

    def initialize_settings(self) -> None:
        """jupyter_server calls this once, before `initialize_handlers`."""
        events = self.serverapp.event_logger if self.serverapp is not None else None
        if events is not None:
            events.add_listener(schema_id=CONTENTS_EVENTS, listener=self._on_contents_event)

    async def _on_contents_event(self, logger: Any, schema_id: str, data: dict[str, Any]) -> None:
        """Tell the hub when a notebook was renamed, so that it finds its kernel again later."""
        assert self.serverapp is not None, "the server emits the event"
        root = getattr(self.serverapp.contents_manager, "root_dir", "")
        if data["action"] == "rename" and root:
            before, after = (to_os_path(data[name], root) for name in ("source_path", "path"))
            await asyncio.to_thread(_tell_renamed, before, after)

    async def stop_extension(self) -> None:
        """Detach the remote kernels, which go on. The server calls this before it shuts its kernels down."""
        await RemoteGPUProvisioner.leave_all()
        if self.serverapp is not None:
            await forget_failed_starts(self.serverapp.kernel_manager)
        await asyncio.to_thread(_detach_launchers)
        await super().stop_extension()  # type: ignore[no-untyped-call]


async def forget_failed_starts(manager: Any) -> None:
    """Remove failed starts from the manager's pending kernels, where jupyter_client leaves them.

    Otherwise jupyter_server cannot stop: see docs/upstream/pending-kernels.md.
    """
    pending: dict[str, asyncio.Task[None]] = getattr(manager, "_pending_kernels", {})
    if starting := [task for kernel_id, task in pending.items() if kernel_id not in manager]:
        await asyncio.wait(starting, timeout=PENDING_START_TIMEOUT)
    for kernel_id, task in list(pending.items()):
        if task.done() and kernel_id not in manager:
            del pending[kernel_id]


def _tell_renamed(before: str, after: str) -> None:
    with contextlib.suppress(GpuKernelError), HubClient(start=False) as hub:  # no hub: no kernels
        hub.call("renamed", before=before, after=after, timeout=10)


def _detach_launchers() -> None:
    """Detach the kernels that this server started by argv alone, without the provisioner."""
    with contextlib.suppress(GpuKernelError), HubClient(start=False) as hub:  # as above
        hub.call("leave", parent=os.getpid(), timeout=10)


# --- the HTTP API


class KernelsHandler(APIHandler):
    """The remote kernels of this user's front ends: [{id, kernel_id, name, node, state, link, gpus, error, remedy}].

    The remedies name our command with the path that works in a terminal of this server.
    """

    auth_resource = "kernels"

    @tornado.web.authenticated
    @authorized
    async def get(self) -> None:
        """Ask the hub, if there is one; it does not use the network for this."""
        await self.finish(json.dumps(await asyncio.to_thread(_kernels)))


class NodesHandler(APIHandler):
    """The work nodes of this user's front ends: [{node, names, state, connected, problem, program}].

    `names`: the kernelspecs that lead there; `program`: our command, for a terminal of this server.
    """

    auth_resource = "kernels"

    @tornado.web.authenticated
    @authorized
    async def get(self) -> None:
        """Ask the hub, if there is one; it does not use the network for this."""
        await self.finish(json.dumps(await asyncio.to_thread(_nodes)))


class JournalHandler(APIHandler):
    """The last cells of a kernel and their outputs: {kernel, cells: [{msg_id, cell_id, code, status, outputs, …}]}."""

    auth_resource = "kernels"

    @tornado.web.authenticated
    @authorized("execute")  # type: ignore[untyped-decorator]
    async def get(self, kernel: str) -> None:
        """`kernel`: our id or Jupyter's; `?cell=`: the id of a notebook's cell, for that one only. Asks the node."""
        known = await asyncio.to_thread(_list_of, "kernels")
        if not any(kernel in (one["id"], one["kernel_id"]) for one in known):
            return await self._refuse(404, f"no front end here uses a remote kernel {kernel}")
        try:
            journal = await asyncio.to_thread(_journal, kernel, self.get_query_argument("cell", ""))
        except GpuKernelError as error:
            return await self._refuse(502, str(error))
        await self.finish(json.dumps(journal))

    async def _refuse(self, status: int, message: str) -> None:
        self.set_status(status)
        await self.finish(json.dumps({"message": message}))


def _list_of(op: str) -> list[dict[str, Any]]:
    try:
        with HubClient(start=False) as hub:
            return list(hub.call(op, timeout=5))
    except GpuKernelError:
        return []  # without a hub there are no kernels and nodes


def _kernels() -> list[dict[str, Any]]:
    return [_with_program(kernel, command()) for kernel in _list_of("kernels")]


def _with_program(description: dict[str, Any], program: str) -> dict[str, Any]:
    """The description of a kernel, or its error, with `program` in the remedies."""
    description = dict(description)
    if description.get("remedy"):
        description["remedy"] = with_program(description["remedy"], program)
    if description.get("error"):
        description["error"] = _with_program(description["error"], program)
    return description


def _nodes() -> list[dict[str, Any]]:
    return [dict(node, program=command()) for node in _list_of("nodes")]


def _journal(kernel: str, cell: str) -> dict[str, Any]:
    with HubClient(start=False) as hub:
        return dict(hub.call("journal", kernel=kernel, cell=cell, timeout=60))


_API = "/jupyter-gpu-kernel/api"
HANDLERS = [
    (_API + "/kernels", KernelsHandler),
    (_API + "/nodes", NodesHandler),
    (_API + r"/kernels/([^/]+)/journal", JournalHandler),
]
