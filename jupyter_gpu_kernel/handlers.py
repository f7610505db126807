"""HTTP: GET jupyter-gpu-kernel/api/kernels. Authenticated and authorised like every Jupyter handler; thin."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import tornado
from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler

from .client import HubClient
from .errors import GpuKernelError


class KernelsHandler(APIHandler):
    """The remote kernels of this user's front ends: [{id, kernel_id, name, node, state, link, gpus}]."""

    auth_resource = "kernels"

    @tornado.web.authenticated
    @authorized
    async def get(self) -> None:
        """Asks the hub, if there is one; never starts it, never the network."""
        kernels = await asyncio.get_running_loop().run_in_executor(None, _kernels)
        await self.finish(json.dumps(kernels))


def _kernels() -> list[dict[str, Any]]:
    try:
        with HubClient(start=False) as hub:
            return list(hub.call("kernels", timeout=5))
    except GpuKernelError:
        return []  # no hub: no kernels


HANDLERS = [(r"/jupyter-gpu-kernel/api/kernels", KernelsHandler)]
