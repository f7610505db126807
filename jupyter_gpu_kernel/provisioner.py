"""The kernel provisioner `remote-gpu`: jupyter_client's life cycle in terms of the hub. Thin; nothing
here blocks.

Who calls what, and when, stands in each docstring (jupyter_client 8). Link down is not kernel dead:
`poll` answers from what the hub told last and never touches the network.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from typing import Any, cast

from jupyter_client.connect import KernelConnectionInfo
from jupyter_client.provisioning.provisioner_base import KernelProvisionerBase
from tornado.web import HTTPError
from traitlets import Float, Unicode

from .client import HubClient
from .errors import GpuKernelError
from .kernelspecs import settings_of

_PORTS = ("shell_port", "iopub_port", "stdin_port", "control_port", "hb_port")


class NotStarted(HTTPError, RuntimeError):
    """Its text is shown by front ends; jupyter_server's kernels API shows none but that of an HTTPError."""

    def __init__(self, error: GpuKernelError) -> None:
        super().__init__(500, str(error))
        self.text = str(error)

    def __str__(self) -> str:
        return self.text


class RemoteGPUProvisioner(KernelProvisionerBase):
    """One kernel on a work node."""

    settings_path = Unicode(
        "",
        help="A kernel.json with the settings; by default the kernelspec's own, or the one it names.",
    ).tag(config=True)
    shutdown_wait = Float(
        10.0, help="Seconds a kernel is given to shut down by itself before it is ended.", min=1.0
    ).tag(config=True)

    _client: HubClient | None = None
    _remote_id = ""
    _state: dict[str, Any] | None = None
    _restarting = False

    @property
    def has_process(self) -> bool:
        """Asserted by the manager right after `launch_kernel`."""
        return self._state is not None

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        """Before every start and restart. Keeps the notebook's name; the command is the hub's affair."""
        environment = kwargs.get("env") or {}
        self._notebook = str(environment.get("JPY_SESSION_NAME", ""))
        return await super().pre_launch(cmd=list(self.kernel_spec.argv), **kwargs)

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> KernelConnectionInfo:
        """Starts, or after a restart starts anew behind the same ports. Raises GpuKernelError, which
        front ends show."""
        try:
            if self._state is not None and self._client is not None and not self._client.closed:
                answer = await self._client.acall("restart", kernel=self._remote_id)
            else:
                answer = await self._start()
        except GpuKernelError as error:
            await self._hang_up()
            raise NotStarted(error) from None
        self._state = answer
        self._restarting = False
        self.connection_info = _connection_info(answer["connection"])
        return self.connection_info

    async def poll(self) -> int | None:
        """Every 3 s, and whenever a manager wonders. None: alive (also while the link is down)."""
        if self._state is None:
            return 0
        if self._state["state"] != "ended" and self._state.get("link") != "lost":
            return None
        code = self._state.get("returncode")
        return 1 if code is None else int(code)

    async def wait(self) -> int | None:
        """After a shutdown or kill: until the kernel has ended."""
        while (code := await self.poll()) is None:
            await asyncio.sleep(0.05)
        return code

    async def send_signal(self, signum: int) -> None:
        """An interrupt, where the front end does not send it as a message; other signals go to the
        kernel's group."""
        if signum == signal.SIGINT:
            await self._command("interrupt")
        elif signum == getattr(signal, "SIGKILL", 9):
            await self._command("kill")
        elif signum:
            await self._command("signal", number=int(signum))

    async def kill(self, restart: bool = False) -> None:
        """When shutting down took too long, and at “restart now”. `restart` is not to be trusted
        (jupyter_client#1061)."""
        await self._command("kill")

    async def terminate(self, restart: bool = False) -> None:
        """When shutting down took half its time: the guard would survive SIGTERM, so this ends the kernel."""
        await self._command("kill")

    async def shutdown_requested(self, restart: bool = False) -> None:
        """After the shutdown message was sent: the one place where `restart` is true."""
        self._restarting = restart

    async def cleanup(self, restart: bool = False) -> None:
        """After the end of a kernel; `restart`: another follows at once. Otherwise nothing of ours may be
        left."""
        if restart or (self._restarting and self._state is None):
            return
        await self._command("stop", why="shut down by the front end")
        if self._client is not None and not self._client.closed:
            with contextlib.suppress(GpuKernelError):
                await self._client.acall("release", kernel=self._remote_id, timeout=self.shutdown_wait)
        await self._hang_up()

    def get_shutdown_wait_time(self, recommended: float = 5.0) -> float:
        """A link has its round trip, and the keeper its own way to end a kernel."""
        return max(recommended, self.shutdown_wait)

    # -------------------------------------------------------------------------------------- the hub

    async def _start(self) -> dict[str, Any]:
        spec = settings_of(self.kernel_spec, self.settings_path)
        loop = asyncio.get_running_loop()
        self._client = await loop.run_in_executor(None, lambda: HubClient(on_event=self._heard))
        manager: Any = self.parent
        connection = {
            "transport": manager.transport,
            "ip": manager.ip,
            "key": manager.session.key.decode(),
            "signature_scheme": manager.session.signature_scheme,
            **{name: getattr(manager, name) for name in _PORTS},
        }
        self._remote_id = ""
        answer = await self._client.acall(
            "start",
            progress=self._progress,
            settings=spec.settings,
            name=spec.name,
            notebook=self._notebook,
            kernel_id=self.kernel_id or "",
            connection=connection,
        )
        self._remote_id = str(answer["id"])
        return dict(answer)

    def _progress(self, progress: dict[str, Any]) -> None:
        self.log.info("remote kernel: %s: %s", progress["hop"], progress["step"])

    def _heard(self, event: dict[str, Any]) -> None:
        """On the client's thread: one assignment, which is atomic."""
        if event["event"] == "kernel" and event["kernel"] == self._remote_id:
            self._state = event
        elif event["event"] == "gone" and self._state is not None:
            self._state = dict(self._state, link="away")

    async def _command(self, do: str, **more: Any) -> None:
        if self._client is None or self._client.closed or not self._remote_id:
            return
        with contextlib.suppress(GpuKernelError):  # gone already, which is what was wanted
            await self._client.acall("command", kernel=self._remote_id, do=do, more=more, timeout=10)

    async def _hang_up(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None
        self._remote_id = ""


def _connection_info(connection: dict[str, Any]) -> KernelConnectionInfo:
    return cast(KernelConnectionInfo, {**connection, "key": str(connection["key"]).encode()})
