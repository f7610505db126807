"""The kernel provisioner `remote-gpu`: jupyter_client's life cycle in terms of the hub. Thin; nothing
here blocks.

Who calls what, and when, stands in each docstring (jupyter_client 8). Link down is not kernel dead:
`poll` answers from what the hub told last and never touches the network.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import weakref
from typing import Any, ClassVar, cast

import zmq
from jupyter_client.connect import KernelConnectionInfo
from jupyter_client.provisioning.provisioner_base import KernelProvisionerBase
from tornado.web import HTTPError
from traitlets import Float, Unicode

from .client import HubClient
from .errors import GpuKernelError
from .kernelspecs import command, settings_of
from .served_kernel import ServedKernel
from .wire.texts import with_program

_PORTS = ("shell_port", "iopub_port", "stdin_port", "control_port", "hb_port")


_TERMINAL = """
JupyterLab has a terminal: File → New → Terminal. There the kernel starts by itself when you have signed in; elsewhere,
start it again."""


class NotStarted(HTTPError, RuntimeError):
    """Its text is shown by front ends; jupyter_server's kernels API shows none but that of an HTTPError."""

    def __init__(self, error: GpuKernelError, at_server: bool = False) -> None:
        self.text = with_program(str(error), command())
        if error.login and at_server:
            self.text += _TERMINAL
        super().__init__(500, self.text)

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

    login_wait = Float(
        0.0,
        help="Seconds that a start waits where a host asks for a code: until “jupyter gpu-kernel login NAME” has "
        "signed in. By default it fails at once, and its text says so.",
        min=0.0,
    ).tag(config=True)

    _all: ClassVar[weakref.WeakSet[RemoteGPUProvisioner]] = weakref.WeakSet()
    _served: ServedKernel | None = None
    _state: dict[str, Any] | None = None
    _ending = _for_good = _left = False
    _notebook = ""

    @property
    def has_process(self) -> bool:
        """Asserted by the manager right after `launch_kernel`."""
        return self._state is not None

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        """Before every start and restart. Keeps the notebook's name; the command is the hub's affair."""
        _make_keys(self.parent)
        environment = kwargs.get("env") or {}
        notebook = str(environment.get("JPY_SESSION_NAME", ""))
        self._notebook = "" if notebook.endswith(("/", os.sep)) else notebook  # a session without a name
        return await super().pre_launch(cmd=list(self.kernel_spec.argv), **kwargs)

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> KernelConnectionInfo:
        """Starts, or after a restart starts anew behind the same ports. NotStarted says why not."""
        try:
            answer = await self._restart() or await self._start()
        except GpuKernelError as error:
            await self._hang_up()
            raise NotStarted(error, self._is_server) from None
        except asyncio.CancelledError:
            await asyncio.shield(self._hang_up())  # which tells the hub that nobody wants the kernel
            raise
        self._ending = self._for_good = self._left = False
        self.connection_info = _connection_info(answer["connection"])
        return self.connection_info

    async def poll(self) -> int | None:
        """Every 3 s, and whenever a manager wonders. None: alive, also while the link is down.

        Unless the kernel is to end: a manager need not wait for the link, the hub sees to it. For a server one that
        ended otherwise is alive: it would start a new one unasked, which is for the user's next cell to do.
        """
        if self._left:  # a dead one the server would start anew, even at its own exit
            return 0 if self._ending else None
        if self._state is None:
            return 0
        link = self._state.get("link")
        if self._is_server and not self._ending:
            return None
        if self._state["state"] == "ended" or link == "lost":
            code = self._state.get("returncode")
            return 1 if code is None else int(code)
        return 0 if self._ending and link != "up" else None

    async def wait(self) -> int | None:
        """After a shutdown or kill: until the kernel has ended."""
        while (code := await self.poll()) is None:
            await asyncio.sleep(0.05)
        return code

    async def send_signal(self, signum: int) -> None:
        """An interrupt where the front end sends no message for it; others go to the kernel's process group."""
        if signum == signal.SIGINT:
            await self._command("interrupt")
        elif signum == getattr(signal, "SIGKILL", 9):
            await self._command("kill")
        elif signum:
            await self._command("signal", number=int(signum))

    async def kill(self, restart: bool = False) -> None:
        """When shutting down took too long, and at “restart now” (`restart` is wrong then: jupyter_client#1061)."""
        self._ending = True
        await self._command("kill")

    async def terminate(self, restart: bool = False) -> None:
        """When shutting down took half its time: the guard would survive SIGTERM, so this ends the kernel."""
        await self.kill(restart)

    async def shutdown_requested(self, restart: bool = False) -> None:
        """After the shutdown message was sent."""
        self._ending, self._for_good = True, not restart

    async def cleanup(self, restart: bool = False) -> None:
        """After the end of a kernel; `restart`: another follows at once. Otherwise nothing of ours may be left."""
        if restart:
            return
        await self._ask("end", why="shut down by the front end")
        await self._hang_up()

    def get_shutdown_wait_time(self, recommended: float = 5.0) -> float:
        """A link has its round trip, and the keeper its own way to end a kernel."""
        return max(recommended, self.shutdown_wait)

    @classmethod
    async def leave_all(cls) -> None:
        """At this server's exit, before it shuts its kernels down: ours stay, and hear nothing of that."""
        await asyncio.gather(*(one.leave() for one in list(cls._all)))

    async def leave(self) -> None:
        """The kernel lives on, detached; what this server does to it from now on means nothing.

        But for one that its user has just shut down: the message may not have reached it yet.
        """
        self._left = True
        if self._for_good:
            await self._ask("end", why="shut down by the front end")
        else:
            await self._ask("release")
        await self._hang_up()

    # -------------------------------------------------------------------------------------- the hub

    async def _restart(self) -> dict[str, Any] | None:
        """None if there is nothing to restart: no kernel yet, or a node that has lost it."""
        client = await self._client()
        if client is None or self._served is None or not self._served.id or self._state is None:
            return None
        if self._state.get("link") == "lost":
            await self._ask("end", why="lost")
            await self._hang_up()
            return None
        return dict(await client.acall("restart", kernel=self._served.id))

    async def _start(self) -> dict[str, Any]:
        spec = settings_of(self.kernel_spec, self.settings_path)
        arguments: dict[str, Any] = {
            "settings": {**spec.settings, "program": command()},
            "name": spec.name,
            "notebook": self._notebook,
            "kernel_id": self.kernel_id or "",
            "connection": _wanted(self.parent),
            "face": "server" if self._is_server else "other",
            "login_wait": self.login_wait,
        }
        self._state = None
        self._all.add(self)
        served = self._served = ServedKernel(arguments, self._heard)
        client = await asyncio.to_thread(served.connect)
        answer = dict(await client.acall("start", progress=self._progress, **arguments))
        served.started(answer)
        return answer

    @property
    def _is_server(self) -> bool:
        """Whether a jupyter_server has the kernel: it limits rates, and restarts what it thinks is dead."""
        return hasattr(self.parent, "emit")

    def _progress(self, progress: dict[str, Any]) -> None:
        self.log.info("remote kernel: %s: %s", progress["hop"], progress["step"])

    def _heard(self, event: dict[str, Any]) -> None:
        """On a thread of the client's, in order, and before the answer to a start: one assignment is atomic."""
        if event["event"] == "kernel":
            self._state = event
            if event["state"] == "ended" and not event.get("asked"):
                self.log.warning("remote kernel ended: %s. %s", event.get("cause"), event.get("remedy"))
        elif event["event"] == "gone" and self._state is not None:
            self._state = dict(self._state, link="away")

    async def _command(self, do: str, **more: Any) -> None:
        await self._ask("command", do=do, more=more)

    async def _ask(self, op: str, **arguments: Any) -> None:
        client = await self._client()
        if client is None or self._served is None or not self._served.id:
            return
        with contextlib.suppress(GpuKernelError):  # gone already, which is what was wanted
            await client.acall(op, kernel=self._served.id, timeout=10, **arguments)

    async def _client(self) -> HubClient | None:
        """The connection to the hub, if there is one; waits while another hub is started."""
        served = self._served
        if served is None:
            return None
        client = await asyncio.to_thread(lambda: served.client) if served.adopting else served.client
        return None if client is None or client.closed else client

    async def _hang_up(self) -> None:
        served, self._served = self._served, None
        if served is not None:
            await asyncio.to_thread(served.close)
        self._state = None


def _make_keys(manager: Any) -> None:
    """CurveZMQ keys, if the manager's option `transport_encryption` asks for them (jupyter_client 8.9 and newer).

    The manager keeps them over restarts, and its clients use them. Its own provisioner does the same.
    """
    if getattr(manager, "transport_encryption", "disabled") != "disabled" and manager.curve_publickey is None:
        manager.curve_publickey, manager.curve_secretkey = zmq.curve_keypair()


def _wanted(manager: Any) -> dict[str, Any]:
    """The connection that the front end will use; ports may be 0."""
    keys = {name: getattr(manager, name, None) for name in ("curve_publickey", "curve_secretkey")}
    return {
        **{name: key.decode() for name, key in keys.items() if key},
        "transport": manager.transport,
        "ip": manager.ip if manager.transport != "ipc" else os.path.abspath(manager.ip),
        "key": manager.session.key.decode(),
        "signature_scheme": manager.session.signature_scheme,
        **{name: getattr(manager, name) for name in _PORTS},
    }


def _connection_info(connection: dict[str, Any]) -> KernelConnectionInfo:
    return cast(KernelConnectionInfo, {**connection, "key": str(connection["key"]).encode()})
