"""The hub's process: settings, start, log, and its end when nobody uses it.

Faces start it as `python -m jupyter_gpu_kernel.hub.app spawn`, which starts the real one and ends at
once: so it has no parent, and a front end that kills all its descendants (VS Code does) does not reach
it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from filelock import FileLock, Timeout
from jupyter_core.application import JupyterApp
from traitlets import Bool, Float

from .. import __version__
from .hardening import keep_memory_private
from .log import write_to
from .operations import Operations
from .paths import hub_address, hub_folder, make_hub_key
from .rpc import Call, RpcServer


class HubApp(JupyterApp):
    """One per user and machine; alive means its socket answers."""

    name = "jupyter-gpu-kernel-hub"
    version = __version__
    description = "Holds the connections of all remote GPU kernels of this user. Started by itself."
    config_file_name = "jupyter_gpu_kernel_config"

    idle_exit = Float(
        300.0,
        help="Seconds until the hub ends by itself, after the last front end has gone.",
    ).tag(config=True)

    private_memory = Bool(
        True,
        help="Write no core file, and on Linux let no other process of this user look into the hub. Switch it off to "
        "use a debugger or profiler on it.",
    ).tag(config=True)

    def _log_level_default(self) -> int:
        return logging.INFO

    def start(self) -> None:
        """Runs until idle. A second hub finds the lock taken and ends."""
        super().start()
        if self.private_memory:
            keep_memory_private()
        folder = hub_folder()
        write_to(folder / "log", self.log)
        try:
            with FileLock(folder / "lock", timeout=0):
                _run_on_selector_loop(self._run())
        except Timeout:
            self.log.info("another hub is there")

    async def _run(self) -> None:
        hub = Operations(self.log)
        address = hub_address()
        with contextlib.suppress(FileNotFoundError):
            if sys.platform != "win32":
                os.unlink(address)  # left by one that was killed: we have the lock
        ended = asyncio.Event()

        async def operation(call: Call) -> object:
            if call.op == "shutdown":
                clients.close()  # whoever comes after the answer must find another hub
                ended.set()
                return {"ok": True}
            return await hub.operation(call)

        clients = RpcServer(address, make_hub_key(), operation, self.log)
        self._survive_stray_signals()
        self.log.info("hub %s listens, pid %d", __version__, os.getpid())
        await self._until_idle(hub, clients, ended)
        with contextlib.suppress(FileNotFoundError):
            if sys.platform != "win32":
                os.unlink(address)
        await hub.close()
        self.log.info("hub ends")

    async def _until_idle(self, hub: Operations, clients: RpcServer, ended: asyncio.Event) -> None:
        """Returns when nobody can come in any more."""
        last_used = time.monotonic()
        while True:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(ended.wait(), min(1.0, self.idle_exit))
                return await asyncio.sleep(0.1)  # let the answer leave
            if clients.count or hub.in_use:
                last_used = time.monotonic()
            if time.monotonic() - last_used > self.idle_exit and clients.close(if_unused=True):
                return

    def _survive_stray_signals(self) -> None:
        """Ending all of one's processes on a shared machine must not cost kernels; idleness and SIGKILL end us."""
        for name in ("SIGTERM", "SIGHUP", "SIGINT"):
            number = getattr(signal, name, None)
            if number is not None:
                signal.signal(number, lambda number, frame: self.log.info("signal %d: the hub stays", number))


def spawn() -> None:
    """Starts the hub without a parent."""
    command = [
        sys.executable,
        "-m",
        __name__ if __name__ != "__main__" else "jupyter_gpu_kernel.hub.app",
        "serve",
    ]
    null = subprocess.DEVNULL
    log = open(hub_folder() / "start.log", "wb")  # noqa: SIM115 (the child has it)
    if sys.platform == "win32":
        flags = subprocess.DETACHED_PROCESS | subprocess.CREATE_NEW_PROCESS_GROUP
        subprocess.Popen(command, stdin=null, stdout=log, stderr=log, creationflags=flags)
    else:
        subprocess.Popen(command, stdin=null, stdout=log, stderr=log, start_new_session=True, cwd="/")


def _run_on_selector_loop(main: Coroutine[Any, Any, None]) -> None:
    """pyzmq needs a loop that watches sockets, also on Windows, whose usual one does not."""
    loop = asyncio.SelectorEventLoop()
    # Dials block, for minutes where the owner is asked: one node must not keep the others waiting.
    loop.set_default_executor(ThreadPoolExecutor(64, thread_name_prefix="hub"))
    try:
        asyncio.set_event_loop(loop)
        loop.run_until_complete(main)
    finally:
        loop.close()


if __name__ == "__main__":
    if sys.argv[1:2] == ["spawn"]:
        spawn()
    else:
        HubApp.launch_instance(argv=sys.argv[2:])
