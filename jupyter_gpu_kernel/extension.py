"""The Jupyter server extension: our HTTP API beside Jupyter's own. It owns nothing; the hub does."""

from __future__ import annotations

import asyncio
import contextlib
import os

from jupyter_server.extension.application import ExtensionApp

from . import __version__
from .client import HubClient
from .errors import GpuKernelError
from .handlers import HANDLERS
from .provisioner import RemoteGPUProvisioner


class GpuKernelExtension(ExtensionApp):
    """Loaded by jupyter_server; settings live with the hub and the provisioner."""

    name = "jupyter_gpu_kernel"
    version = __version__
    description = "Remote GPU kernels: state of the links and kernels, for the JupyterLab extension."

    def initialize_handlers(self) -> None:
        """Called once by jupyter_server."""
        self.handlers.extend(HANDLERS)

    async def stop_extension(self) -> None:
        """Called when the server exits, before it shuts its kernels down: remote ones stay, detached."""
        await RemoteGPUProvisioner.leave_all()
        await asyncio.to_thread(_leave_launchers)
        await super().stop_extension()  # type: ignore[no-untyped-call]


def _leave_launchers() -> None:
    """The same for kernels that this server started by argv alone, without the provisioner."""
    with contextlib.suppress(GpuKernelError), HubClient(start=False) as hub:  # no hub: no such kernels
        hub.call("leave", parent=os.getpid(), timeout=10)
