"""The kernelspecs, kernels and sessions of the server.

Kernels on the nodes that other front ends have or had are listed as well. The server attaches to one of them when a
page connects to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from datetime import datetime, timezone
from typing import Any
from weakref import WeakValueDictionary

import tornado
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_server.services.kernels.kernelmanager import AsyncMappingKernelManager
from jupyter_server.services.sessions.sessionmanager import SessionManager

from ... import kernelspecs
from ...errors import GpuKernelError
from ...program import ATTACH
from ...provisioner import RemoteGPUProvisioner
from ..api import hub_client
from .delivery import CellDelivery

_NOT_LISTED = ("starting", "ended")
_STATES = {"waiting": "busy", "away": "busy", "detached": "idle", "unresponsive": "unknown"}
"""Jupyter's word for a state of ours, where the words differ."""


class RemoteKernelSpecs(KernelSpecManager):
    """Lists our kernelspecs only, all of them with the provisioner."""

    def find_kernel_specs(self) -> dict[str, str]:
        """{name: folder}."""
        return {spec.name: str(spec.path.parent) for spec in kernelspecs.find_all()}

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        """Return the kernelspec. Raises NoSuchKernel."""
        spec: KernelSpec = super().get_kernel_spec(kernel_name)
        config = {"front_end_kind": "serve"}
        spec.metadata["kernel_provisioner"] = {"provisioner_name": "remote-gpu", "config": config}
        return spec


class RemoteKernels(AsyncMappingKernelManager):
    """The kernels of this server, and those on the nodes."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)  # type: ignore[no-untyped-call]
        self.deliveries: dict[str, CellDelivery] = {}
        """What the page of each kernel that left last has not received."""
        self.left: dict[str, dict[str, Any]] = {}
        """The sockets of the last page of each kernel that has no page now."""
        self.rows: dict[str, dict[str, Any]] = {}
        """What the nodes said last of their kernels, by Jupyter's ids."""
        self._attaching = WeakValueDictionary[str, asyncio.Lock]()

    def start_buffering(self, kernel_id: str, session_key: str, channels: dict[str, Any]) -> None:
        """The last page of a kernel has left. Its sockets are kept and not read, so that messages wait in the kernel's
        log, and on their way from there."""
        for stream in channels.values():
            stream.stop_on_recv()
        self.left[kernel_id] = channels

    def get_buffer(self, kernel_id: str, session_key: str) -> dict[str, Any] | None:
        """A page connects, and gets these sockets, whichever page had them before."""
        channels = self.left.pop(kernel_id, None)
        return channels and {"session_key": session_key, "channels": channels, "buffer": []}

    def stop_buffering(self, kernel_id: str) -> None:
        """The kernel ends: forget its last page, and close the sockets of that."""
        self.deliveries.pop(kernel_id, None)
        for stream in self.left.pop(kernel_id, {}).values():
            stream.close()

    def remove_kernel(self, kernel_id: str) -> Any:
        """The kernel has ended, maybe by itself."""
        self.stop_buffering(kernel_id)
        return super().remove_kernel(kernel_id)

    def kernel_model(self, kernel_id: str) -> dict[str, Any]:
        """Jupyter's description of a kernel, with `gpus` (UUIDs) and `node` where they are known."""
        row = self.rows.get(kernel_id, {})
        model = {"gpus": row.get("gpus", []), "node": row.get("hop", "")}
        if row and (kernel_id not in self or kernel_id in self.left):  # else the state is known from messages
            model["execution_state"] = _STATES.get(row["state"], row["state"])
        if row and kernel_id not in self:
            since = datetime.fromtimestamp(row.get("since") or 0, timezone.utc).isoformat()
            return {"id": kernel_id, "name": row["name"], "last_activity": since, "connections": 0, **model}
        return {**super().kernel_model(kernel_id), **model}  # type: ignore[no-untyped-call]

    async def list_kernels(self) -> list[dict[str, Any]]:
        """The kernels of this server, and those on the nodes."""
        others = await self.others()
        return [self.kernel_model(one) for one in (*self.list_kernel_ids(), *others)]

    async def others(self) -> dict[str, dict[str, Any]]:
        """Ask the nodes, each for 2 s. Return the rows of kernels that this server does not have, by Jupyter's ids."""
        specs = await asyncio.to_thread(kernelspecs.all_for_hub)
        rows: list[dict[str, Any]] = []
        with contextlib.suppress(GpuKernelError):  # without a hub the server's own kernels are still listed
            async with hub_client() as hub:
                rows = await hub.acall("ps", specs=specs, patience=2.0, timeout=60.0)
        names, served = {spec["name"] for spec in specs}, RemoteGPUProvisioner.served()
        listed = [row for row in rows if row.get("name") in names and row["state"] not in _NOT_LISTED]
        # The id of a kernel that has another one, or none, in another server looks like a UUID.
        self.rows = {served.get(row["id"], f"00000000-0000-0000-0000-{row['id']}"): row for row in listed}
        return {one: row for one, row in self.rows.items() if one not in self}

    async def attach(self, kernel_id: str) -> None:
        """A page connects to this kernel: if this server does not have it, it becomes one of its kernels."""
        async with self._attaching.setdefault(kernel_id, asyncio.Lock()):
            if (row := self.rows.get(kernel_id)) and kernel_id not in self:
                env = {**os.environ, ATTACH: row["id"], "JPY_SESSION_NAME": str(row.get("notebook") or "")}
                await self.start_kernel(kernel_id=kernel_id, kernel_name=row["name"], env=env)

    async def interrupt_kernel(self, kernel_id: str) -> None:  # type: ignore[override]
        """Interrupt a kernel, also one that no page has opened."""
        await self.attach(kernel_id)
        await super().interrupt_kernel(kernel_id)  # type: ignore[misc]

    async def restart_kernel(self, kernel_id: str, now: bool = False) -> Any:  # type: ignore[override]
        """Restart a kernel, also one that no page has opened."""
        await self.attach(kernel_id)
        return await super().restart_kernel(kernel_id, now=now)  # type: ignore[no-untyped-call]

    async def shutdown_kernel(self, kernel_id: str, **options: Any) -> Any:  # type: ignore[override]
        """Shut a kernel down, but not one that may be another front end's."""
        if kernel_id not in self and (row := self.rows.get(kernel_id)):
            raise tornado.web.HTTPError(409, f"open it first, or use “jupyter gpu-kernel stop {row['id']}”")
        return await super().shutdown_kernel(kernel_id, **options)  # type: ignore[no-untyped-call]


class RemoteSessions(SessionManager):
    """The sessions of this server, and one for each other kernel on the nodes."""

    kernel_manager: Any

    async def list_sessions(self) -> list[dict[str, Any]]:
        """All sessions. That of another kernel has the kernel's notebook, and keeps its id when a page connects."""
        for kernel_id, row in (await self.kernel_manager.others()).items():
            path = str(row.get("notebook") or row["id"])
            try:
                await self.get_session(kernel_id=kernel_id)  # type: ignore[no-untyped-call]
            except tornado.web.HTTPError:
                await self.save_session(kernel_id, path, os.path.basename(path), "notebook", kernel_id)  # type: ignore[no-untyped-call]
        return await super().list_sessions()  # type: ignore[no-untyped-call, no-any-return]

    async def kernel_culled(self, kernel_id: str) -> bool:
        """Whether neither this server nor a node has the kernel."""
        return kernel_id not in self.kernel_manager and kernel_id not in self.kernel_manager.rows
