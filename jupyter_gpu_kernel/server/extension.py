"""The Jupyter server extension: our HTTP API beside Jupyter's own. It owns nothing; the hub does."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import Any

from jupyter_server.extension.application import ExtensionApp
from jupyter_server.utils import to_os_path

from .. import __version__
from ..client import HubClient
from ..errors import GpuKernelError
from ..provisioner import RemoteGPUProvisioner
from .handlers import HANDLERS

START_ENDS_WITHIN = 5.0
"""Seconds for a start that is still going on when the server exits: ours have been let go of, others finish."""
CONTENTS = "https://events.jupyter.org/jupyter_server/contents_service/v1"


class GpuKernelExtension(ExtensionApp):
    """Loaded by jupyter_server; settings live with the hub and the provisioner."""

    name = "jupyter_gpu_kernel"
    version = __version__
    description = "Remote GPU kernels: state of the links and kernels, for the JupyterLab extension."

    def initialize_handlers(self) -> None:
        """Called once by jupyter_server."""
        self.handlers.extend(HANDLERS)

    def initialize_settings(self) -> None:
        """Called once by jupyter_server, before."""
        events = self.serverapp.event_logger if self.serverapp is not None else None
        if events is not None:
            events.add_listener(schema_id=CONTENTS, listener=self._on_contents)

    async def _on_contents(self, logger: Any, schema_id: str, data: dict[str, Any]) -> None:
        """A notebook that gets another name, as most do after their first cells, keeps its kernel for later, too."""
        assert self.serverapp is not None, "the server said so"
        root = getattr(self.serverapp.contents_manager, "root_dir", "")
        if data["action"] == "rename" and root:
            before, after = (to_os_path(data[name], root) for name in ("source_path", "path"))
            await asyncio.to_thread(_renamed, before, after)

    async def stop_extension(self) -> None:
        """Called when the server exits, before it shuts its kernels down: remote ones stay, detached."""
        await RemoteGPUProvisioner.leave_all()
        if self.serverapp is not None:
            await forget_failed_starts(self.serverapp.kernel_manager)
        await asyncio.to_thread(_leave_launchers)
        await super().stop_extension()  # type: ignore[no-untyped-call]


async def forget_failed_starts(manager: Any) -> None:
    """jupyter_client keeps a start that failed among its pending kernels, of which jupyter_server's shutdown then finds
    none, and the server does not stop: docs/upstream/pending-kernels.md."""
    pending: dict[str, asyncio.Task[None]] = getattr(manager, "_pending_kernels", {})
    if starting := [task for kernel_id, task in pending.items() if kernel_id not in manager]:
        await asyncio.wait(starting, timeout=START_ENDS_WITHIN)
    for kernel_id, task in list(pending.items()):
        if task.done() and kernel_id not in manager:
            del pending[kernel_id]


def _renamed(before: str, after: str) -> None:
    with contextlib.suppress(GpuKernelError), HubClient(start=False) as hub:  # no hub: no kernels
        hub.call("renamed", before=before, after=after, timeout=10)


def _leave_launchers() -> None:
    """The same for kernels that this server started by argv alone, without the provisioner."""
    with contextlib.suppress(GpuKernelError), HubClient(start=False) as hub:  # no hub: no such kernels
        hub.call("leave", parent=os.getpid(), timeout=10)
