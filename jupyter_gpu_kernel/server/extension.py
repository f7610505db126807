"""The Jupyter server extension: it adds the HTTP API, and detaches remote kernels when the server exits."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jupyter_core.utils import ensure_async
from jupyter_server.extension.application import ExtensionApp
from jupyter_server.utils import to_api_path, to_os_path
from traitlets import Bool, Enum

from .. import __version__
from ..errors import GpuKernelError
from ..provisioner import RemoteGPUProvisioner
from ..wire.runtime import Runtime
from .add import kernelspecs as kernelspecs
from .add.probes import Probes
from .api import STATE, ask_hub, handlers
from .questions.prompts import Asking, PromptAsker, Prompts
from .questions.sign_in_requests import SignInRequests
from .running import actions as actions
from .running import kernels as kernels
from .running.gpu_use import GpuUse
from .running.overview import Overview

PENDING_START_TIMEOUT = 5.0
"""Seconds for starts of kernels that are pending when the server exits; ours have been released."""
CONTENTS_EVENTS = "https://events.jupyter.org/jupyter_server/contents_service/v1"

CONNECTION_CLASS = "kernel_websocket_connection_class"
"""The name of the server's setting with the class that joins a page's websocket to a kernel's sockets."""
PAGE_PROMPTS = "gpuKernelPrompts"
"""The option of a page of JupyterLab that says where the user answers: in the page, or in a terminal."""


@dataclass(frozen=True)
class ServerState:
    """Made by the extension, and found by each handler as `self.state`."""

    prompts: Prompts
    sign_ins: SignInRequests
    probes: Probes
    overview: Overview
    gpu_use: GpuUse


class GpuKernelExtension(ExtensionApp):
    """The extension. What concerns remote kernels is set elsewhere: in kernelspecs, and on the provisioner."""

    name = "jupyter_gpu_kernel"
    version = __version__
    description = "Remote GPU kernels: the state of links and kernels, for the JupyterLab extension."

    websocket_nodelay = Bool(
        True,
        help="""Send each message of a kernel to the page at once (TCP_NODELAY on the websocket), for every kernel of
        this server. Otherwise the system holds small messages back, and each cell ends about 40 ms later.""",
    ).tag(config=True)

    prompts = Enum(
        ["page", "terminal"],
        default_value="page",
        help="""Where the user answers what hosts ask for: in a dialog of the page, which scripts of the page can read
        and answer, or only in a terminal, with “jupyter gpu-kernel login NAME”.""",
    ).tag(config=True)

    def initialize_handlers(self) -> None:
        """jupyter_server calls this once."""
        self.handlers.extend(handlers())

    def initialize_settings(self) -> None:
        """jupyter_server calls this once, before `initialize_handlers`."""
        server = self.serverapp
        assert server is not None and server.event_logger is not None, (
            "a server is initialized before extensions"
        )
        server.event_logger.add_listener(schema_id=CONTENTS_EVENTS, listener=self._on_contents_event)
        root = str(getattr(server.contents_manager, "root_dir", ""))
        in_page = self.prompts == "page"
        prompts = Prompts(notifier(server, "prompts", "Questions of remote GPU kernels"), in_page)
        notify_of_sign_ins = notifier(server, "sign_ins", "Kernels that wait for a sign-in")
        self.settings[STATE] = ServerState(
            prompts=prompts,
            sign_ins=SignInRequests(notify_of_sign_ins, in_page),
            probes=Probes(lambda name: prompts.asker(Asking("probe", name))),
            overview=Overview(Runtime(), server.kernel_manager, root),
            gpu_use=GpuUse(Runtime(), lambda kernel: ask_hub("gpu_use", kernel=kernel)),
        )
        self.settings.setdefault("page_config_data", {})[PAGE_PROMPTS] = self.prompts
        if self.websocket_nodelay and (connection_class := self.settings.get(CONNECTION_CLASS)) is not None:
            self.settings[CONNECTION_CLASS] = without_delay(connection_class)

        def asker(name: str, notebook: str) -> PromptAsker:
            return prompts.asker(Asking("kernel", name, to_api_path(notebook, root)))

        RemoteGPUProvisioner.asker = staticmethod(asker)

    async def _on_contents_event(self, logger: Any, schema_id: str, data: dict[str, Any]) -> None:
        """Tell the hub when a notebook was renamed, so that it finds its kernel again later."""
        assert self.serverapp is not None, "the server emits the event"
        root = getattr(self.serverapp.contents_manager, "root_dir", "")
        if data["action"] == "rename" and root:
            before, after = (to_os_path(data[name], root) for name in ("source_path", "path"))
            with contextlib.suppress(GpuKernelError):  # no hub: no kernels
                await ask_hub("renamed", before=before, after=after, timeout=10)

    async def stop_extension(self) -> None:
        """Detach the remote kernels, which go on. The server calls this before it shuts its kernels down."""
        self.settings[STATE].sign_ins.close()
        await self.settings[STATE].probes.close()
        RemoteGPUProvisioner.asker = None
        await RemoteGPUProvisioner.leave_all()
        if self.serverapp is not None:
            await forget_failed_starts(self.serverapp.kernel_manager)
        with contextlib.suppress(GpuKernelError):  # no hub: no kernels
            await ask_hub("leave", parent=os.getpid(), timeout=10)  # those that were started by argv alone
        await super().stop_extension()  # type: ignore[no-untyped-call]


def notifier(server: Any, name: str, title: str) -> Callable[[int], None]:
    """Return what tells all pages of this server, from any thread, how many of something wait for the user.

    name, title: Of the event.
    """
    event = f"https://events.jupyter.org/jupyter_gpu_kernel/{name}/v1"
    waiting = {"type": "integer", "title": "Count", "description": "How many there are."}
    server.event_logger.register_event_schema(
        {
            "$id": event,
            "version": "1",
            "title": title,
            "description": "Others than before wait for the user. Pages fetch them.",
            "type": "object",
            "required": ["waiting"],
            "properties": {"waiting": waiting},
        }
    )

    def emit(waiting: int) -> None:
        server.event_logger.emit(schema_id=event, data={"waiting": waiting})

    return lambda waiting: server.io_loop.add_callback(emit, waiting)


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


def without_delay(connection_class: Any) -> Any:
    """Return the class of websocket connections that a server uses, whichever it is, with TCP_NODELAY.

    Otherwise the end of a cell reaches a page 40 ms late. A kernel answers a cell with several small messages. Nagle's
    algorithm holds the second one back until the page's system has acknowledged the first, which systems delay. See
    docs/upstream/websocket-nodelay.md.
    """

    async def connect(self: Any) -> Any:
        """Join the websocket, which is open now, to the kernel."""
        self.websocket_handler.set_nodelay(True)
        return await ensure_async(super(undelayed, self).connect())

    # Its name stays that of the server's class: configuration and the log use it.
    more = {
        "connect": connect,
        "__module__": connection_class.__module__,
        "__doc__": connection_class.__doc__,
    }
    undelayed = type(connection_class)(connection_class.__name__, (connection_class,), more)
    return undelayed
