"""The kernel provisioner `remote-gpu`: it translates jupyter_client's life cycle of a kernel into calls to the hub.

Nothing here blocks. Each docstring says when jupyter_client 8 calls the method. A link that is down does not mean a
dead kernel: `poll` answers from the last state that the hub reported, and never uses the network.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import weakref
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar, cast

import zmq
from jupyter_client.connect import KernelConnectionInfo
from jupyter_client.provisioning.provisioner_base import KernelProvisionerBase
from tornado.web import HTTPError
from traitlets import Float, Unicode

from .client import HubClient
from .errors import GpuKernelError
from .hub.ssh import Asker
from .kernelspecs import read
from .program import ATTACH, command, notebook_path
from .served_kernel import ServedKernel, StartCall
from .wire.texts import with_program

_CALL_TIMEOUT = 10.0
_END_WAIT, _END_INTERVAL = 0.5, 0.01
"""Seconds that `poll` waits for a kernel that is being shut down, and between two looks at its state."""
_TERMINAL = """
JupyterLab has a terminal: File → New → Terminal. JupyterLab starts the kernel when you have signed in; in other front
ends, start it again."""


class _End(Enum):
    NOT_REQUESTED = "the kernel is to run"
    REQUESTED = "the kernel is to end, and perhaps to start again"
    FOR_GOOD = "the front end has requested a shutdown without a restart"


class NotStarted(HTTPError, RuntimeError):
    """A start that failed. Front ends show its text; jupyter_server's kernels API shows only that of an HTTPError."""

    def __init__(self, error: GpuKernelError, at_server: bool = False) -> None:
        self.error = error
        self.text = with_program(str(error), command())
        if error.login and at_server:
            self.text += _TERMINAL
        super().__init__(500, self.text)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.text!r})"


class RemoteGPUProvisioner(KernelProvisionerBase):
    """One kernel on a work node."""

    shutdown_wait = Float(
        10.0, help="Seconds that a kernel has to shut down by itself before it is killed.", min=1.0
    ).tag(config=True)

    login_wait = Float(
        0.0,
        help="Seconds that a start waits for “jupyter gpu-kernel login NAME” if a host asks for a password or a code. "
        "Default: 0, and the start fails at once with a message that says so.",
        min=0.0,
    ).tag(config=True)

    front_end_kind = Unicode(
        help="What the front end is to the hub (`StartCall.of`), where the kernel's manager does not show it."
    )

    asker: ClassVar[Callable[[str, str], AbstractAsyncContextManager[Asker]] | None] = None
    """How a start in a Jupyter server asks its user, by the names of the kernelspec and of the notebook; None: it does
    not. The server extension sets it."""

    _all: ClassVar[weakref.WeakSet[RemoteGPUProvisioner]] = weakref.WeakSet()
    _served: ServedKernel | None = None
    _state: dict[str, Any] | None = None
    _end = _End.NOT_REQUESTED
    _left = False
    _notebook = ""
    _attach_to = ""
    _was_up = False

    @property
    def has_process(self) -> bool:
        """The manager asserts this right after `launch_kernel`."""
        return self._state is not None

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        """Called before every start and restart. Keep the notebook's path; the hub ignores the command."""
        _make_keys(self.parent)
        environment = kwargs.get("env") or {}
        self._notebook = notebook_path(environment)
        self._attach_to = "" if self._was_up else str(environment.get(ATTACH, ""))
        return await super().pre_launch(cmd=list(self.kernel_spec.argv), **kwargs)

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> KernelConnectionInfo:
        """Start the kernel; at a restart, start it again on the same ports. NotStarted if that fails."""
        try:
            answer = await self._restart() or await self._start()
        except GpuKernelError as error:
            await self._disconnect()
            raise NotStarted(error, self._is_server) from None
        except asyncio.CancelledError:
            await asyncio.shield(self._disconnect())  # so the hub knows that nobody wants the kernel
            raise
        self._end, self._left, self._was_up = _End.NOT_REQUESTED, False, True
        self.connection_info = _connection_info(answer["connection"])
        return self.connection_info

    async def poll(self) -> int | None:
        """Called every 3 s, and whenever a manager needs the state. None: alive, also while the link is down.

        During a shutdown the manager calls it every 0.1 s; it then waits up to 0.5 s for the end, so that a restart
        goes on at once.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _END_WAIT
        while (code := self._returncode()) is None and self._is_ending and loop.time() < deadline:
            await asyncio.sleep(_END_INTERVAL)
        return code

    @property
    def _is_ending(self) -> bool:
        return self._end is not _End.NOT_REQUESTED

    def _returncode(self) -> int | None:
        """Return what `poll` returns, without waiting.

        A kernel that is being shut down counts as ended while the link is down, since the hub ends it later. To a
        Jupyter server, a kernel that ended by itself counts as alive: the server would start a new one at once, but
        that is left to the user's next cell.
        """
        if self._left:  # a server would restart a dead kernel, even while the server itself exits
            return 0 if self._is_ending else None
        if self._state is None:
            return 0
        link = self._state.get("link")
        if self._is_server and not self._is_ending:
            return None
        if self._state["state"] == "ended" or link == "lost":
            code = self._state.get("returncode")
            return 1 if code is None else int(code)
        return 0 if self._is_ending and link != "up" else None

    async def wait(self) -> int | None:
        """Called after a shutdown or kill: wait until the kernel has ended."""
        while (code := await self.poll()) is None:
            await asyncio.sleep(_END_INTERVAL)
        return code

    async def send_signal(self, signum: int) -> None:
        """Interrupt the kernel (if the front end sends no interrupt_request), or signal the kernel's process group."""
        if signum == signal.SIGINT:
            await self._command("interrupt")
        elif signum == getattr(signal, "SIGKILL", 9):
            await self._command("kill")
        elif signum:
            await self._command("signal", number=int(signum))

    async def kill(self, restart: bool = False) -> None:
        """Called when a shutdown took too long, and at “restart now” (with a wrong `restart`: jupyter_client#1061)."""
        if self._end is _End.NOT_REQUESTED:
            self._end = _End.REQUESTED
        await self._command("kill")

    async def terminate(self, restart: bool = False) -> None:
        """Called at half the shutdown timeout. Kill the kernel, because the guard would survive SIGTERM."""
        await self.kill(restart)

    async def shutdown_requested(self, restart: bool = False) -> None:
        """Called after the shutdown_request was sent."""
        self._end = _End.REQUESTED if restart else _End.FOR_GOOD

    async def cleanup(self, restart: bool = False) -> None:
        """Called after a kernel has ended. Release everything, unless a restart follows."""
        if restart:
            return
        await self._call("end", why="shut down by the front end")
        await self._disconnect()

    def get_shutdown_wait_time(self, recommended: float = 5.0) -> float:
        """Longer than for a local kernel: the link has a round trip, and the keeper its own timeout."""
        return max(recommended, self.shutdown_wait)

    async def name_notebook(self, path: str) -> None:
        """The front end says which notebook uses the kernel."""
        before, self._notebook = self._notebook, path
        if before != path:
            await self._call("notebook", path=path)

    @classmethod
    def served(cls) -> dict[str, str]:
        """Jupyter's id of each kernel that a provisioner of this process serves, by ours."""
        return {one._served.id: str(one.kernel_id) for one in list(cls._all) if one._served is not None}

    @classmethod
    async def leave_all(cls) -> None:
        """Called when this server exits, before it shuts its kernels down: detach all remote kernels from it."""
        await asyncio.gather(*(one.leave() for one in list(cls._all)))

    async def leave(self) -> None:
        """Detach the kernel, which goes on; later calls of this server do not affect it.

        A kernel that the user has just shut down is ended, since the shutdown_request may not have reached it yet.
        """
        self._left = True
        if self._end is _End.FOR_GOOD:
            await self._call("end", why="shut down by the front end")
        else:
            await self._call("release")
        await self._disconnect()

    async def _restart(self) -> dict[str, Any] | None:
        """None if there is nothing to restart: there is no kernel yet, or its node has lost it."""
        client = await self._connected_client()
        if client is None or self._served is None or not self._served.id or self._state is None:
            return None
        if self._state.get("link") == "lost":
            await self._call("end", why="lost")
            await self._disconnect()
            return None
        async with self._asker(str(self._served.arguments["name"])) as ask:
            return dict(await client.acall("restart", ask=ask, kernel=self._served.id))

    async def _start(self) -> dict[str, Any]:
        """Start a kernel, or attach to the one that the environment names."""
        spec = read(Path(self.kernel_spec.resource_dir, "kernel.json"))
        start = await asyncio.to_thread(
            StartCall.of,
            spec,
            command(),
            self._attach_to,
            notebook=self._notebook,
            kernel_id=self.kernel_id or "",
            connection=_requested_connection(self.parent),
            front_end_kind=self.front_end_kind or ("server" if self._is_server else "other"),
            login_wait=self.login_wait,
        )
        self._state = None
        self._all.add(self)
        served = self._served = ServedKernel(start, self._on_event)
        client = await asyncio.to_thread(served.connect)
        async with self._asker(spec.name) as ask:
            answer = dict(await client.acall(start.op, progress=self._progress, ask=ask, **start.arguments))
        served.started(answer)
        self._state = self._state or answer  # without a change of the kernel there has been no event
        return answer

    def _asker(self, name: str) -> AbstractAsyncContextManager[Asker | None]:
        asker = type(self).asker if self._is_server else None
        return contextlib.nullcontext() if asker is None else asker(name, self._notebook)

    @property
    def _is_server(self) -> bool:
        """Whether a jupyter_server runs the kernel; it limits message rates, and restarts kernels that seem dead."""
        return hasattr(self.parent, "emit")

    def _progress(self, progress: dict[str, Any]) -> None:
        self.log.info("remote kernel: %s: %s", progress["hop"], progress["step"])

    def _on_event(self, event: dict[str, Any]) -> None:
        """Called on a thread of the client, in order, and before the answer to a start. One assignment is atomic."""
        if event["event"] == "kernel":
            self._state = event
            if event["state"] == "ended" and not event.get("asked"):
                self.log.warning("remote kernel ended: %s. %s", event.get("cause"), event.get("remedy"))
        elif event["event"] == "gone" and self._state is not None:
            self._state = dict(self._state, link="away")

    async def _command(self, do: str, **more: Any) -> None:
        await self._call("command", do=do, more=more)

    async def _call(self, op: str, **arguments: Any) -> None:
        client = await self._connected_client()
        if client is None or self._served is None or not self._served.id:
            return
        with contextlib.suppress(GpuKernelError):  # the kernel is gone already
            await client.acall(op, kernel=self._served.id, timeout=_CALL_TIMEOUT, **arguments)

    async def _connected_client(self) -> HubClient | None:
        """The connection to the hub, if there is one. Waits while another hub is started."""
        served = self._served
        if served is None:
            return None
        client = await asyncio.to_thread(lambda: served.client) if served.is_adopting else served.client
        return None if client is None or client.closed else client

    async def _disconnect(self) -> None:
        served, self._served = self._served, None
        if served is not None:
            try:
                await asyncio.to_thread(served.close)
            except RuntimeError:  # Python exits, and starts no thread any more: the end of `jupyter run`
                served.close()
        self._state = None


def _make_keys(manager: Any) -> None:
    """Make CurveZMQ keys if the manager's option `transport_encryption` requires them (jupyter_client 8.9 and newer).

    The manager keeps them over restarts, and its clients use them. jupyter_client's own provisioner does the same.
    """
    if getattr(manager, "transport_encryption", "disabled") != "disabled" and manager.curve_publickey is None:
        manager.curve_publickey, manager.curve_secretkey = zmq.curve_keypair()


def _requested_connection(manager: Any) -> dict[str, Any]:
    """The connection that the front end is going to use; ports may be 0."""
    connection = manager.get_connection_info()
    ip = os.path.abspath(manager.ip) if manager.transport == "ipc" else manager.ip
    return {**connection, "ip": ip, "key": connection["key"].decode()}


def _connection_info(connection: dict[str, Any]) -> KernelConnectionInfo:
    return cast(KernelConnectionInfo, {**connection, "key": str(connection["key"]).encode()})
