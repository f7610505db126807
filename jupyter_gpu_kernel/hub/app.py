"""The hub's process: configuration, start, log, limit of open files, protection of its memory, and its exit when nobody
uses it.

The log is one rotated file, with sanitized text and a limited rate per kind of message, as messages contain names and
text of nodes and front ends, which may cause as many of them as they like.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from jupyter_core.application import JupyterApp
from traitlets import Bool, Float

from .. import __version__
from ..wire.runtime import Runtime
from . import sanitize
from .connections.connect import Connections
from .operations.commands import Operations
from .paths import hub_address, hub_folder, make_hub_key, trust_file
from .rpc import Call, RpcServer
from .spawn import say_ready

MAX_SIZE = 1_000_000
"""Bytes of a file of the log; two are kept."""
BURST = 20
"""Messages of one kind within PERIOD seconds; further ones are only counted."""
PERIOD = 60.0
_MAX_KINDS = 1000
_MAX_TRACEBACK = 60  # lines
_FILE_LIMITS = (65_536, 10_240, 4_096)
"""Limits of open files to try, the highest first: macOS refuses more than 10,240, whatever its hard limit says."""
_PR_SET_DUMPABLE = 4


class HubApp(JupyterApp):
    """The hub, one per user and machine. It is alive if its socket answers."""

    name = "jupyter-gpu-kernel-hub"
    version = __version__
    description = "Holds the connections of all remote GPU kernels of this user. It is started automatically."
    config_file_name = "jupyter_gpu_kernel_config"

    idle_exit = Float(
        300.0,
        help="Seconds after which the hub exits when the last front end has disconnected.",
        min=0.0,
    ).tag(config=True)

    private_memory = Bool(
        True,
        help="Write no core file, and on Linux let no other process of this user look into the hub. Switch it off to "
        "use a debugger or profiler on it.",
    ).tag(config=True)

    def _log_level_default(self) -> int:
        return logging.INFO

    def start(self) -> None:
        """Run until idle. A second hub finds the lock file locked, and exits."""
        super().start()
        if self.private_memory:
            keep_memory_private()
        raise_limit()
        runtime, folder = Runtime(), hub_folder()
        write_log_to(folder / "log", self.log, runtime.monotonic)
        try:
            with FileLock(folder / "lock", timeout=0):
                _run_on_selector_loop(self._run(runtime))
        except Timeout:
            self.log.info("another hub runs already")
            say_ready()

    async def _run(self, runtime: Runtime) -> None:
        hub = Operations(runtime, Connections(trust_file()).connect, self.log)
        address = hub_address()
        with contextlib.suppress(FileNotFoundError):
            if sys.platform != "win32":
                os.unlink(address)  # left by a killed hub, as we have the lock
        ended = asyncio.Event()

        async def operation(call: Call) -> object:
            if call.op == "shutdown":
                server.close()  # clients that connect after the answer must find another hub
                ended.set()
                return {"ok": True}
            return await hub.operation(call)

        server = RpcServer(runtime, address, make_hub_key(runtime), operation, self.log)
        self._on_signals(partial(self._signalled, hub, server, ended))
        say_ready()
        self.log.info("hub %s started, pid %d", __version__, os.getpid())
        await self._until_idle(hub, server, ended)
        with contextlib.suppress(FileNotFoundError):
            if sys.platform != "win32":
                os.unlink(address)
        await hub.close()
        self.log.info("hub exits")

    async def _until_idle(self, hub: Operations, server: RpcServer, ended: asyncio.Event) -> None:
        """Return once the hub is unused and accepts no clients any more."""
        loop = asyncio.get_running_loop()
        last_used = loop.time()
        while True:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(ended.wait(), min(1.0, max(0.1, self.idle_exit)))
                return await asyncio.sleep(0.1)  # let the answer be sent
            if server.count or hub.in_use:
                last_used = loop.time()
            elif loop.time() - last_used > self.idle_exit and server.close(if_unused=True):
                return

    def _on_signals(self, signalled: Callable[[int], None]) -> None:
        """Call `signalled(number)` on the event loop."""
        loop = asyncio.get_running_loop()

        def on_signal(number: int, frame: object) -> None:
            with contextlib.suppress(RuntimeError):  # the event loop is closed: the hub ends
                loop.call_soon_threadsafe(signalled, number)

        for name in ("SIGTERM", "SIGHUP", "SIGINT"):
            number = getattr(signal, name, None)
            if number is not None:
                signal.signal(number, on_signal)

    def _signalled(self, hub: Operations, server: RpcServer, ended: asyncio.Event, number: int) -> None:
        """Users who end all their processes on a shared machine must not lose kernels: SIGTERM ends a hub without any.
        SIGKILL ends each."""
        why = "only SIGTERM and SIGKILL end a hub"
        if number == signal.SIGTERM:
            why = (
                "it has kernels, or a sign-in for kernels to come" if hub.in_use else "clients are connected"
            )
            if not hub.in_use and server.close(if_unused=True):
                self.log.info("SIGTERM, and nothing uses the hub")
                return ended.set()
        self.log.info("signal %d ignored: %s", number, why)


def _run_on_selector_loop(main: Coroutine[Any, Any, None]) -> None:
    """Run on a selector event loop: pyzmq needs `add_reader`, which the default loop of Windows lacks."""
    loop = asyncio.SelectorEventLoop()
    # Connecting blocks, for minutes if the user is asked: one node must not block the others.
    loop.set_default_executor(ThreadPoolExecutor(64, thread_name_prefix="hub"))
    try:
        asyncio.set_event_loop(loop)
        loop.run_until_complete(main)
    finally:
        loop.close()


def raise_limit() -> None:
    """Raise this process's limit of open files as far as the system lets us, and never lower it.

    Each kernel needs up to 30, for its ports, their guards and their clients. Shells start programs with a limit of
    1,024 (macOS: 256), which a program may raise itself.
    """
    if sys.platform == "win32":  # there is no such limit
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in _FILE_LIMITS:
        limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        if soft == resource.RLIM_INFINITY or limit <= soft:
            return
        with contextlib.suppress(ValueError, OSError):
            return resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


def keep_memory_private() -> None:
    """Protect this process, which handles passwords and keys: no core file, and on Linux no access for other processes
    of the same user."""
    if sys.platform == "win32":
        return
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


# --- the log


def write_log_to(path: Path, log: logging.Logger, clock: Callable[[], float]) -> None:
    """Make `log` and every other logger of this process write there, and uncaught exceptions of threads."""
    handler = RotatingFileHandler(path, maxBytes=MAX_SIZE, backupCount=1, delay=True, encoding="utf-8")
    handler.setFormatter(SanitizingFormatter("%(asctime)s %(levelname)s %(message)s"))
    handler.addFilter(RateLimit(clock))
    log.handlers[:] = [handler]
    log.propagate = False
    logging.getLogger().handlers[:] = [handler]  # for asyncio and paramiko, too
    threading.excepthook = lambda fault: log.error(
        "uncaught exception on thread %s",
        fault.thread.name if fault.thread else "?",
        exc_info=fault.exc_value,
    )


class SanitizingFormatter(logging.Formatter):
    """Formats each message as one line, and keeps the last lines of a traceback."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Called by `format`."""
        record.message = sanitize.line(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: object) -> str:
        """Called by `format`."""
        return sanitize.block(super().formatException(ei), _MAX_TRACEBACK)  # type: ignore[arg-type]


class RateLimit(logging.Filter):
    """Passes BURST records of a kind in PERIOD seconds; the next one that passes says how many were suppressed.

    Records of a kind have the same format string and the same first argument.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__()
        self._clock = clock
        self._kinds: dict[tuple[str, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Called by the handler, which does not hold its lock."""
        first = record.args[0] if isinstance(record.args, tuple) and record.args else ""
        kind = str(record.msg)[:200], str(first)[:200]
        now = self._clock()
        if kind not in self._kinds and len(self._kinds) >= _MAX_KINDS:
            self._kinds = {one: known for one, known in self._kinds.items() if now - known[0] <= PERIOD}
        if kind not in self._kinds and len(self._kinds) >= _MAX_KINDS:
            kind = "", ""  # all further kinds together
        began, count = self._kinds.get(kind, (now, 0))
        if now - began > PERIOD:
            if count > BURST:
                record.msg = f"{record.msg} ({count - BURST} similar messages suppressed)"
            began, count = now, 0
        self._kinds[kind] = began, count + 1
        return count < BURST
