"""An agent's folder with real keepers in it, and the hub's end of a keeper's socket: what tests of the agent join."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from runtimes import RUNTIME, make
from waiting import DEADLINE

from jupyter_gpu_kernel.agent.exit.descendants import ROOT, TAG
from jupyter_gpu_kernel.agent.mux.handlers import RequestHandlers
from jupyter_gpu_kernel.agent.paths import Root
from jupyter_gpu_kernel.agent.refused import Refused
from jupyter_gpu_kernel.agent.story import read_story
from jupyter_gpu_kernel.agent.system import procfs
from jupyter_gpu_kernel.wire.messages import Channel, Lane, Message
from jupyter_gpu_kernel.wire.stream.endpoint import Endpoint
from jupyter_gpu_kernel.wire.stream.frames import FrameReader

AGENT = "from jupyter_gpu_kernel.agent import __main__ as agent; import sys; sys.exit(agent.main({!r}))"


class Hub:
    """The hub's end of a keeper's socket."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.got: list[Message] = []
        self._connection = Endpoint(RUNTIME, first=True)
        self._reader = FrameReader(greeting=False)
        sock.settimeout(DEADLINE)
        self._connection.opened()
        self._flush()

    @property
    def keeper(self) -> int:
        """The keeper's pid, as the system knows it. A forked kernel has another parent."""
        return int(struct.unpack("3i", self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0])

    def ask(self, code: str, *, by_user: bool = True) -> str:
        """Sends a cell, or a request of the front end itself, which has those behind it aborted if it fails; returns
        its id."""
        content = {"code": code, "silent": False, "store_history": by_user, "stop_on_error": not by_user}
        parts = make("execute_request", content)
        self._connection.send(Lane.ORDERED, Message(Channel.SHELL, 1, parts).encode())
        self._flush()
        return str(json.loads(parts[0].decode())["msg_id"])

    def tell(self, *words: Message) -> None:
        """Sends words, all at once."""
        for one in words:
            self._connection.send(Lane.URGENT, one.encode())
        self._flush()

    def until(self, wanted: Callable[[Message], bool]) -> Message:
        """The first message like that."""
        while True:
            for message in self.got:
                if wanted(message):
                    return message
            assert self._receive(), "the keeper hung up"

    def leave(self) -> None:
        """Reads on until the keeper hangs up, as its last messages are waited for, and closes the socket."""
        with contextlib.suppress(ConnectionError):
            while self._receive():
                pass
        self.sock.close()

    def _receive(self) -> bool:
        data = self.sock.recv(1 << 20)
        for frame in self._reader.feed(data):
            self.got += [Message.decode(data) for data in self._connection.receive(frame)]
        self._flush()
        return bool(data)

    def reply(self, cell: str) -> Message:
        """The cell's."""
        return self.until(lambda message: message.channel is Channel.SHELL and _is_of(message, cell))

    def run(self, code: str) -> str:
        """What the cell printed, at its reply."""
        cell = self.ask(code)
        self.reply(cell)
        return "".join(str(one.content().get("text", "")) for one in self.got if _is_of(one, cell))

    def _flush(self) -> None:
        self._connection.acknowledge()
        self.sock.sendall(b"".join(frame.encode() for frame in self._connection.outgoing()))


def _is_of(message: Message, cell: str) -> bool:
    return message.channel is not Channel.KEEPER and message.parent().get("msg_id") == cell


def keeper_of(kernel: int) -> int:
    """The pid of the keeper of this kernel."""
    environment = procfs.environment(kernel)
    story = read_story(Path(environment[ROOT]) / "stories" / f"{environment[TAG]}.jsonl")
    return int([entry for entry in story if entry["event"] in ("start", "succession")][-1]["keeper"])


class Place:
    """An agent's folder, and the kernels in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.handlers = RequestHandlers(RUNTIME, Root(path), policy=path / "policy.json")

    def start(self, kernel_id: str = "", **settings: Any) -> Hub:
        """A kernel, and the hub's end of it."""
        _, sock = self.handlers.open(
            kernel_id or uuid.uuid4().hex[:8], {"create": dict({"gpus": 0}, **settings)}
        )
        return Hub(sock)

    def folder(self, kernel_id: str) -> Path:
        return self.path / "k" / kernel_id

    def story(self, kernel_id: str, event: str = "") -> list[dict[str, Any]]:
        """The kernel's story; of one kind of event."""
        reported = read_story(self.path / "stories" / f"{kernel_id}.jsonl")
        return [entry for entry in reported if event in ("", entry["event"])]

    def attach(self, code: str = AGENT.format(["attach"])) -> subprocess.Popen[bytes]:
        """An attach process."""
        env = dict(os.environ, JUPYTER_GPU_KERNEL_ROOT=str(self.path))
        command = [sys.executable, "-c", code]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, env=env)

    def clear(self) -> None:
        """Ends all kernels."""
        for kernel_id in Root(self.path).kernels():
            try:
                self.handlers.handle({"do": "stop", "kernel": kernel_id})
            except Refused:
                pass
