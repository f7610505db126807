"""A work node that is this machine, breakable streams to it, the hub's loop: what tests of the link join.

with Node() as node, LoopThread() as loop:
    remote = loop.kernel(loop.link(node))  # a real keeper, a real ipykernel
    with Front(remote.edge.connection) as front:  # fronts.py
        front.run("1 + 1").outputs
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from runtimes import RUNTIME
from waiting import DEADLINE, eventually

from jupyter_gpu_kernel.agent.mux.handlers import RequestHandlers
from jupyter_gpu_kernel.agent.paths import Root
from jupyter_gpu_kernel.agent.refused import Refused
from jupyter_gpu_kernel.errors import ConnectError
from jupyter_gpu_kernel.hub.front_end.front_ends import FrontEndSpec
from jupyter_gpu_kernel.hub.kernel.kernel_info import KernelInfoCache
from jupyter_gpu_kernel.hub.kernel.kernel_state import HubContext, Origin
from jupyter_gpu_kernel.hub.kernel.remote_kernel import RemoteKernel
from jupyter_gpu_kernel.hub.kernel.vscode.sessions import VSCodeSession
from jupyter_gpu_kernel.hub.kernel_settings import KernelSettings
from jupyter_gpu_kernel.hub.node.link import Link, LinkTimeouts
from jupyter_gpu_kernel.hub.transport.stream import Stream

T = TypeVar("T")
QUICK = LinkTimeouts(ping_every=0.1, dead_after=0.6, greeting_within=20.0, retry=0.01, retry_most=0.05)
log = logging.getLogger("tests")


def wait_for(condition: Callable[[], T], what: str = "it") -> T:
    """The condition's first true value; for things that send no event."""
    return eventually(condition, what)


class Pipe(Stream):
    """A stream to an `attach` process, as a rule of this checkout."""

    def __init__(self, root: Path, env: dict[str, str], program: list[str]) -> None:
        command = [sys.executable, *program, "attach"]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env={**os.environ, **env, "JUPYTER_GPU_KERNEL_ROOT": str(root)},
        )
        assert self.process.stdin and self.process.stdout
        self._in, self._out = self.process.stdin, self.process.stdout
        self._reading = threading.Lock()

    def read(self, size: int, /) -> bytes:
        with self._reading:
            return b"" if self._out.closed else self._out.read(size)

    def write(self, data: bytes, /) -> None:
        view = memoryview(data)
        while view:
            view = view[self._in.write(view) :]

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        with self._reading:  # the end of the process ends the read
            self._out.close()
        with contextlib.suppress(OSError):
            self._in.close()

    def stderr_tail(self) -> str:
        return ""


class Faults(NamedTuple):
    """It fails after so many bytes, and tears all before. Stalled, it is silent and stays."""

    rng: random.Random
    read_limit: int
    write_limit: int
    stalls: bool

    @classmethod
    def drawn(cls, rng: random.Random) -> Faults:
        """Faults soon or late, in either direction."""
        read_limit = int(10 ** rng.uniform(2.5, 5.7))
        return cls(rng, read_limit, int(10 ** rng.uniform(2.5, 4.2)), rng.random() < 0.3)


class Breakable(Stream):
    """A stream that tears what it carries, and may be cut or stalled, by the test or by its faults."""

    def __init__(self, stream: Pipe, faults: Faults | None = None) -> None:
        self.stream = stream
        self.written = 0
        self._faults = faults
        self.bytes_read = 0
        self._reads, self._writes = threading.Event(), threading.Event()
        self.resume()
        self._closed = False

    def read(self, size: int, /) -> bytes:
        """Short reads where there are faults; a limit may fall into the middle of a frame."""
        faults = self._faults
        if faults is not None:
            if self.bytes_read >= faults.read_limit:
                self._fail()
            size = min(
                size, faults.rng.choice((7, 600, 5000, 70000)), max(1, faults.read_limit - self.bytes_read)
            )
        self._flow(self._reads)
        data = self.stream.read(size)
        self._flow(self._reads)  # what came during a stall stays with us
        self.bytes_read += len(data)
        if self._left is not None:
            self._left -= len(data)
            if self._left <= 0:
                self.stall(writes=False)
        return data

    def write(self, data: bytes, /) -> None:
        """All, or a torn part and an error."""
        self._flow(self._writes)
        self.written += len(data)
        if self._faults is not None and self.written > self._faults.write_limit:
            self.stream.write(data[: max(0, self._faults.write_limit - self.written)])
            self._fail()
        self.stream.write(data)

    def cut(self) -> None:
        """The stream is gone, and the process behind it."""
        self._closed = True
        self.resume()
        self.stream.close()

    close = cut

    def stderr_tail(self) -> str:
        return self.stream.stderr_tail()

    def stall(self, writes: bool = True) -> None:
        """Nothing is read any more, nor written, and nobody is told."""
        self._reads.clear()
        if writes:
            self._writes.clear()

    def resume(self, size: int | None = None) -> None:
        """After a stall: what was kept back comes through; after about `size` bytes read it stalls again."""
        self._left = size
        self._reads.set()
        self._writes.set()

    def _flow(self, event: threading.Event) -> None:
        event.wait()
        if self._closed:
            raise OSError("the stream was cut")

    def _fail(self) -> None:
        assert self._faults is not None
        if self._faults.stalls:
            self.stall()
            self._flow(self._reads)
        self.stream.close()
        raise OSError("the stream was cut")


class Node:
    """This machine as a work node. `faults()` is asked at every dial; `streams` are those dialled.

    `pull()` the cable, and it cannot be dialled until it is `plugged` again.
    """

    def __init__(self, **env: str) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="jgk", dir="/tmp"))  # short: sockets have short names
        self.env = env
        self.program = ["-m", "jupyter_gpu_kernel.agent"]  # for Python
        self.streams: list[Breakable] = []
        self.plugged = True
        self.faults: Callable[[], Faults | None] = lambda: None
        self.handlers = RequestHandlers(RUNTIME, Root(self.root))

    def __enter__(self) -> Node:
        return self

    def __exit__(self, *exception: object) -> None:
        for stream in self.streams:
            stream.close()
        for state in self.handlers.handle({"do": "list"})["kernels"]:
            if state["state"] != "ended" and state["pid"]:  # one that is busy would be given time to end
                with contextlib.suppress(ProcessLookupError):
                    os.kill(state["pid"], signal.SIGKILL)
        kernels = Root(self.root).kernels()
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(self._stop, kernels))
        shutil.rmtree(self.root, ignore_errors=True)  # a process that ends may remove a part of it

    def _stop(self, kernel: str) -> None:
        with contextlib.suppress(Refused):  # gone already
            self.handlers.handle({"do": "stop", "kernel": kernel})

    def dial(self, again: bool = False) -> Breakable:
        """A link's dial function."""
        if not self.plugged:
            raise ConnectError("the cable is out")
        stream = Breakable(Pipe(self.root, self.env, self.program), self.faults())
        self.streams.append(stream)
        return stream

    def pull(self) -> None:
        """Every stream is gone."""
        self.plugged = False
        for stream in self.streams:
            stream.cut()

    def story(self, kernel: str) -> str:
        """The texts of a kernel's story."""
        reported = self.handlers.handle({"do": "story", "kernel": kernel})["story"]
        return "\n".join(str(entry["text"]) for entry in reported)


class LoopThread:
    """The hub's loop, on a thread."""

    def __init__(self) -> None:
        self.loop = asyncio.SelectorEventLoop()
        self.loop.set_default_executor(ThreadPoolExecutor(64))  # as the hub's
        self.faults: list[dict[str, Any]] = []
        self.loop.set_exception_handler(lambda _, context: self.faults.append(context))
        self._closing: list[Callable[[], Coroutine[Any, Any, None]]] = []
        self._thread = threading.Thread(target=self._run, name="loop")

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def __enter__(self) -> LoopThread:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        for close in reversed(self._closing):
            self.run(close())
        self.run(self._settle())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()
        assert not self.faults, self.faults

    async def _settle(self) -> None:
        await self.loop.shutdown_default_executor()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The coroutine's result."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(DEADLINE)

    def call(self, function: Callable[..., T], *arguments: Any, **named: Any) -> T:
        """The function's result, called on the loop."""

        async def called() -> T:
            return function(*arguments, **named)

        return self.run(called())

    def closing(self, close: Callable[[], None]) -> None:
        """Called on the loop at the end."""

        async def called() -> None:
            close()

        self._closing.append(called)

    def link(self, node: Node, clocks: LinkTimeouts = QUICK) -> Link:
        """A link to the node, closed at the end."""
        link = self.call(lambda: Link(RUNTIME, "node", node.dial, log, clocks))
        self._closing.append(link.close)
        return link

    def kernel(
        self,
        link: Link,
        kernel_id: str = "",
        key: str = "key",
        session: VSCodeSession | None = None,
        infos: KernelInfoCache | None = None,
        **settings: Any,
    ) -> RemoteKernel:
        """A kernel behind the link, perhaps not up yet; let go of at the end."""
        kernel_id = kernel_id or uuid.uuid4().hex[:12]
        given = {"id": kernel_id, "gpus": 0, "python": sys.executable, "name": "test", **settings}
        connection = {"ip": "127.0.0.1", "transport": "tcp", "key": key, "signature_scheme": "hmac-sha256"}
        front_end = FrontEndSpec(connection)
        remote = self.call(
            lambda: RemoteKernel(
                HubContext(RUNTIME, log, infos),
                kernel_id,
                KernelSettings.from_json(given),
                front_end,
                link,
                Origin(session=session),
            )
        )

        async def close() -> None:
            remote.close()

        self._closing.append(close)
        return remote


def until(remote: RemoteKernel, *states: str) -> None:
    """Waits for one of the keeper's states."""
    wait_for(lambda: remote.status["state"] in states, f"{remote}: {states}")
