"""A work node that is this machine, breakable streams to it, a front end: what tests of the link join.

with Node() as node, LoopThread() as loop:
    remote = loop.kernel(loop.link(node))  # a real keeper, a real ipykernel
    with Front(remote.edge.connection) as front:
        front.run("1 + 1").outputs
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import zmq
from jupyter_client.blocking.client import BlockingKernelClient

from jupyter_gpu_kernel.agent.office import Office, Refused
from jupyter_gpu_kernel.agent.places import Root
from jupyter_gpu_kernel.hub.kernels import RemoteKernel
from jupyter_gpu_kernel.hub.link import Clocks, Link

T = TypeVar("T")
DEADLINE = 60.0
"""Seconds until a test gives up waiting; nothing measures how long it took."""
QUICK = Clocks(ping_every=0.1, dead_after=0.6, greeting_within=20.0, retry=0.01, retry_most=0.05)
log = logging.getLogger("tests")


def wait_for(condition: Callable[[], T], what: str = "it") -> T:
    """The condition's first true value; for things that send no event."""
    deadline = time.monotonic() + DEADLINE
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{what} did not come about"
        time.sleep(0.01)
    return value


class Pipe:
    """A stream to an `attach` process of this checkout."""

    def __init__(self, root: Path, env: dict[str, str]) -> None:
        command = [sys.executable, "-m", "jupyter_gpu_kernel.agent", "attach"]
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


class Breakable:
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
    """This machine as a work node. `faults()` is asked at every dial; `streams` are those dialled."""

    def __init__(self, **env: str) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="jgk", dir="/tmp"))  # short: sockets have short names
        self.env = env
        self.streams: list[Breakable] = []
        self.faults: Callable[[], Faults | None] = lambda: None
        self.office = Office(Root(self.root))

    def __enter__(self) -> Node:
        return self

    def __exit__(self, *exception: object) -> None:
        for stream in self.streams:
            stream.close()
        kernels = Root(self.root).kernels()
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(self._stop, kernels))
        shutil.rmtree(self.root)

    def _stop(self, kernel: str) -> None:
        with contextlib.suppress(Refused):  # gone already
            self.office.answer({"do": "stop", "kernel": kernel})

    def dial(self, again: bool = False) -> Breakable:
        """A link's dial function."""
        stream = Breakable(Pipe(self.root, self.env), self.faults())
        self.streams.append(stream)
        return stream

    def story(self, kernel: str) -> str:
        """The texts of a kernel's story."""
        told = self.office.answer({"do": "story", "kernel": kernel})["story"]
        return "\n".join(str(entry["text"]) for entry in told)


class LoopThread:
    """The hub's loop, on a thread."""

    def __init__(self) -> None:
        self.loop = asyncio.SelectorEventLoop()
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

    def link(self, node: Node, clocks: Clocks = QUICK) -> Link:
        """A link to the node, closed at the end."""
        link = self.call(lambda: Link("node", node.dial, log, clocks))
        self._closing.append(link.close)
        return link

    def kernel(self, link: Link, kernel_id: str = "", key: str = "key", **settings: Any) -> RemoteKernel:
        """A kernel behind the link, perhaps not up yet; let go of at the end."""
        kernel_id = kernel_id or uuid.uuid4().hex[:12]
        settings = {"id": kernel_id, "gpus": 0, "python": sys.executable, "name": "test", **settings}
        connection = {"ip": "127.0.0.1", "transport": "tcp", "key": key, "signature_scheme": "hmac-sha256"}
        remote = self.call(lambda: RemoteKernel(kernel_id, settings, connection, link, log))

        async def close() -> None:
            remote.close()

        self._closing.append(close)
        return remote


def until(remote: RemoteKernel, *states: str) -> None:
    """Waits for one of the keeper's states."""
    wait_for(lambda: remote.state["state"] in states, f"{remote}: {states}")


class Cell(NamedTuple):
    """What a cell brought: the reply's content, and all of iopub that has it as parent, in order."""

    reply: dict[str, Any]
    messages: list[dict[str, Any]]

    @property
    def outputs(self) -> list[tuple[str, Any]]:
        """(type, what it says), neighbouring stream texts joined: how they are cut is not promised."""
        found: list[tuple[str, Any]] = []
        for message in self.messages:
            kind, content = message["msg_type"], message["content"]
            if kind == "stream":
                kind = str(content["name"])
                if found and found[-1][0] == kind:
                    content = {"text": found.pop()[1] + content["text"]}
            found.append((kind, _essence(kind, content)))
        return found

    @property
    def shown(self) -> list[tuple[str, Any]]:
        """What the notebook holds at the end: updates and clear_output applied, neighbouring texts joined.

        Also that the cell began once, and how often it became busy and idle.
        """
        found: list[tuple[str, Any]] = []
        displays: dict[str, int] = {}
        for message in self.messages:
            kind, content = message["msg_type"], message["content"]
            name = content.get("transient", {}).get("display_id", "")
            if kind == "clear_output":
                found = [entry for entry in found if entry[0] in ("status", "execute_input")]
            elif kind == "update_display_data":
                if name in displays:
                    found[displays[name]] = ("display_data", content["data"])
            elif kind == "stream" and found and found[-1][0] == content["name"]:
                found[-1] = (content["name"], found[-1][1] + content["text"])
            else:
                if kind == "display_data":
                    displays[name] = len(found)
                kind = str(content["name"]) if kind == "stream" else kind
                found.append((kind, _essence(kind, content)))
        return found

    @property
    def text(self) -> str:
        """What it printed."""
        return "".join(said for kind, said in self.outputs if kind in ("stdout", "stderr"))


def _essence(kind: str, content: dict[str, Any]) -> Any:
    if kind == "error":
        return content["ename"], content["evalue"]
    for key in ("text", "execution_state", "data", "code", "wait"):
        if key in content:
            return content[key]
    return content


class Front:
    """A front end on a kernel's five ports."""

    def __init__(self, connection: dict[str, Any]) -> None:
        self.client: Any = BlockingKernelClient(context=zmq.Context())
        self.client.load_connection_info(connection)
        self.client.start_channels()
        self.client.wait_for_ready(timeout=DEADLINE)

    def __enter__(self) -> Front:
        return self

    def __exit__(self, *exception: object) -> None:
        self.client.stop_channels()
        self.client.context.destroy(linger=0)

    def run(self, code: str, answers: Iterable[str] = (), **how: Any) -> Cell:
        """Runs a cell to its end; `answers` are what its input() gets."""
        return self.finish(self.client.execute(code, **how), answers)

    def finish(self, request: str, answers: Iterable[str] = ()) -> Cell:
        """The rest of a cell: everything on iopub until idle, and the reply."""
        replies = iter(answers)
        messages = []
        for message in self.iopub(request, replies):
            messages.append(message)
        return Cell(self.reply(request), messages)

    def reply(self, request: str) -> dict[str, Any]:
        """The content of the request's reply on shell."""
        while True:
            message = self.client.get_shell_msg(timeout=DEADLINE)
            if message["parent_header"].get("msg_id") == request:
                return dict(message["content"])

    def iopub(self, request: str, answers: Iterator[str] | None = None) -> Iterator[dict[str, Any]]:
        """What the request brings on iopub, until its idle."""
        poller = zmq.Poller()
        for channel in (self.client.iopub_channel, self.client.stdin_channel):
            poller.register(channel.socket, zmq.POLLIN)
        while True:
            ready = dict(poller.poll(DEADLINE * 1000))
            assert ready, f"nothing more came for {request}"
            if self.client.stdin_channel.socket in ready:
                self.client.get_stdin_msg(timeout=1)
                self.client.input(next(answers or iter(())))
            if self.client.iopub_channel.socket not in ready:
                continue
            message = self.client.get_iopub_msg(timeout=1)
            if message["parent_header"].get("msg_id") != request:
                continue
            yield message
            if message["content"].get("execution_state") == "idle":
                return

    def until_text(self, request: str, text: str) -> str:
        """Everything the request printed until `text` is in it."""
        said = ""
        for message in self.iopub(request):
            said += message["content"].get("text", "")
            if text in said:
                return said
        raise AssertionError(f"{text!r} did not come, but {said!r}")

    def control(self, msg_type: str, **content: Any) -> dict[str, Any]:
        """A control request's reply."""
        return self.control_reply(self.ask_control(msg_type, **content))

    def ask_control(self, msg_type: str, **content: Any) -> str:
        """Sends a control request; returns its id, for `control_reply`."""
        message = self.client.session.msg(msg_type, content)
        self.client.control_channel.send(message)
        return str(message["header"]["msg_id"])

    def control_reply(self, request: str) -> dict[str, Any]:
        """The content of the request's reply on control."""
        while True:
            reply = self.client.get_control_msg(timeout=DEADLINE)
            if reply["parent_header"].get("msg_id") == request:
                return dict(reply["content"])
