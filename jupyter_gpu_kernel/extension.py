"""The Jupyter server extension: our HTTP API beside Jupyter's own. It owns nothing; the hub does."""

from __future__ import annotations

from jupyter_server.extension.application import ExtensionApp

from . import __version__
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
        await super().stop_extension()  # type: ignore[no-untyped-call]
