"""What is shown of a kernel that starts with its user's first cell, when it is restarted before that."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from edges import KEY
from runtimes import RUNTIME, make
from streams import log

from jupyter_gpu_kernel.errors import GpuKernelError
from jupyter_gpu_kernel.hub.front_end.front_ends import FrontEndSpec
from jupyter_gpu_kernel.hub.kernel.core.events import StatusKnown
from jupyter_gpu_kernel.hub.kernel.kernel_state import HubContext, Origin
from jupyter_gpu_kernel.hub.kernel.remote_kernel import RemoteKernel
from jupyter_gpu_kernel.hub.kernel.starter import LeftKernel, Starter
from jupyter_gpu_kernel.hub.kernel_settings import KernelSettings
from jupyter_gpu_kernel.hub.node.node_link import NoLink
from jupyter_gpu_kernel.hub.rpc import Call
from jupyter_gpu_kernel.wire.messages import Channel, Message


class NoJob(Starter):
    """A starter that never starts its kernel."""

    async def prepare(self, settings: KernelSettings, call: Call, restarted_on: str) -> KernelSettings:
        raise NotImplementedError

    _knows_place = False

    async def _start(self, remote: RemoteKernel) -> None:
        raise NotImplementedError

    def replace(self, remote: RemoteKernel, left: LeftKernel, stop: Callable[[], Awaitable[None]]) -> bool:
        return False

    def lost(self, remote: RemoteKernel, error: GpuKernelError) -> bool:
        return True

    async def find_left(self, remote: RemoteKernel, notebook: str) -> bool:
        return False


def test_a_kernel_whose_cell_waits_for_the_start_is_busy() -> None:
    async def run() -> None:
        context = HubContext(RUNTIME, log)
        origin = Origin(starter=NoJob(RUNTIME, lambda settings: NoLink("login"), log))
        settings = KernelSettings(("login",), slurm=True)
        remote = RemoteKernel(context, "k1", settings, FrontEndSpec(dict(KEY)), NoLink("login"), origin)
        try:
            assert remote.describe()["state"] == "idle"
            cell = Message(Channel.SHELL, 1, make("execute_request", {"code": "1"}))
            remote._receive_request(next(iter(remote.front_ends)), cell)
            assert remote.describe()["state"] == "busy"
            remote.command("interrupt")
            assert remote.describe()["state"] == "idle"
        finally:
            remote.close()

    asyncio.run(run())


def test_a_kernel_that_is_restarted_before_its_start_does_not_look_ended() -> None:
    async def run() -> None:
        context = HubContext(RUNTIME, log)
        origin = Origin(starter=NoJob(RUNTIME, lambda settings: NoLink("login"), log))
        settings = KernelSettings(("login",), slurm=True)
        remote = RemoteKernel(context, "k1", settings, FrontEndSpec(dict(KEY)), NoLink("login"), origin)
        try:
            before = remote.status
            shutdown = Message(Channel.CONTROL, 1, make("shutdown_request", {"restart": True}))
            remote._receive_request(next(iter(remote.front_ends)), shutdown)
            assert remote.ended and remote.status["cause"] == "shut down"
            remote.report(StatusKnown({"state": "waiting"}, wanted=True))
            assert remote.status == {**before, "state": "waiting"}
            remote.restart()
            assert remote.status == before
        finally:
            remote.close()

    asyncio.run(run())
