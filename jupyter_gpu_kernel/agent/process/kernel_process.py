"""The kernel's process and its sockets: start, talk, signal, reap. It knows ZMQ and signatures, nothing
of the link.

The kernel listens on ipc sockets in its own 0700 folder, so nobody else on the node can reach it, and
signs with a key that never leaves the node.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import signal
import subprocess
import time
import uuid
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Protocol, Tuple

import zmq

from ...wire.messages import MAX_CLIENTS, MAX_PARTS, Channel
from ..daemon import original_core_limit
from ..failover.keeper_pipe import KeeperPipe
from ..loop import Loop
from ..paths import agent_command

DELIMITER = b"<IDS|MSG>"
_CLIENT = re.compile(rb"[0-9]{1,10}")
_PORTS = {Channel.SHELL: 1, Channel.IOPUB: 2, Channel.STDIN: 3, Channel.CONTROL: 4}
_HEARTBEAT_PORT = 5
_BATCH = 200
"""Messages taken in one turn of the loop: what an interrupt may have to wait for. Large ones count for more."""
_SMALL = 4096
STDERR_TAIL = 4000
LAST_WORDS = 1.0
"""Seconds to hear a dead process out, where another process holds its socket open."""
LAST_WORDS_MS = 20

OnMessage = Callable[[Channel, int, Tuple[bytes, ...]], None]


class Process(Protocol):
    """What is used of subprocess.Popen; a process that is not our child has it as well."""

    @property
    def pid(self) -> int:
        """Its id."""

    def poll(self) -> Optional[int]:
        """The return code; None while it runs."""


class KernelProcess:
    """One ipykernel. `on_message(channel, client, parts)` for whatever it says, `on_end(returncode)` once
    it is gone."""

    def __init__(self, loop: Loop, folder: Path, on_message: OnMessage) -> None:
        self.folder = folder
        self.pid = 0
        self._loop = loop
        self._on_message = on_message
        self._key = uuid.uuid4().hex.encode()
        self._process: Optional[Process] = None
        self._ready_fd = -1  # where a started process says that its sockets are bound
        self.pipe = KeeperPipe()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context.instance()
        self._sockets: Dict[Channel, zmq.Socket[bytes]] = {}

    # -------------------------------------------------------------------------------------- process

    def start(
        self,
        python: str,
        env: Dict[str, str],
        cwd: Optional[str],
        on_ready: Callable[[], None],
    ) -> None:
        """Starts the process in a session of its own; `on_ready()` once its sockets are bound. OSError if
        it cannot be."""
        self._write_connection_file()
        read_fd, write_fd = os.pipe()
        keeper_fd = self.pipe.open()
        env = dict(
            env, JUPYTER_GPU_KERNEL_READY_FD=str(write_fd), JUPYTER_GPU_KERNEL_KEEPER_FD=str(keeper_fd)
        )
        env.pop("JPY_PARENT_PID", None)
        command = [*agent_command(python), "ipykernel", "-f", str(self.folder / "connection.json")]
        command.append("--HistoryManager.hist_file=:memory:")
        log = os.open(str(self.folder / "stderr"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        try:
            with original_core_limit():
                self._process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=cwd, env=env,
                    pass_fds=[write_fd, keeper_fd], start_new_session=True,
                )  # fmt: skip
        except BaseException:
            os.close(read_fd)
            self.pipe.close()
            raise
        finally:
            os.close(write_fd)
            os.close(keeper_fd)
            os.close(log)
        self.pid = self._process.pid
        self._ready_fd = read_fd
        os.set_blocking(read_fd, False)
        self._loop.watch(read_fd, lambda _: self._ready(on_ready))

    def adopt(self, process: Process, pipe: KeeperPipe) -> None:
        """Take over a running kernel whose keeper was killed. OSError, ValueError: its folder is damaged."""
        info: Dict[str, Any] = json.loads((self.folder / "connection.json").read_text())
        self._key = str(info["key"]).encode()
        self._process, self.pid, self.pipe = process, process.pid, pipe
        self._connect()

    def _ready(self, on_ready: Callable[[], None]) -> None:
        try:
            ready = os.read(self._ready_fd, 1)
        except BlockingIOError:  # the event was for the process before, whose descriptor had the same number
            return
        self._close_ready()
        if ready:  # else it ended first: `reap` tells
            self._connect()
            on_ready()

    def _close_ready(self) -> None:
        if self._ready_fd >= 0:
            self._loop.forget(self._ready_fd)
            os.close(self._ready_fd)
        self._ready_fd = -1

    def reap(self) -> Optional[int]:
        """The return code once the process has ended (negative: a signal), else None."""
        return None if self._process is None else self._process.poll()

    def signal_group(self, number: int) -> None:
        """Signals the kernel and its children, as far as they stayed in its process group."""
        if self._process is None:
            return
        try:
            os.killpg(self._process.pid, number)
        except (ProcessLookupError, PermissionError):  # gone, but perhaps for a `sudo` that is not ours
            pass

    def stderr_tail(self) -> str:
        """The last lines that the process wrote before, or beside, its own output channels."""
        try:
            data = (self.folder / "stderr").read_bytes()[-STDERR_TAIL:]
        except OSError:
            return ""
        text = data.decode("utf-8", "replace")
        return "".join(c for c in text if c.isprintable() or c in "\n\t").strip()

    def end(self) -> None:
        """After the process has ended: takes what it still said, ends its children, closes the sockets."""
        self.signal_group(signal.SIGKILL)  # what a forked child holds open is not at its end
        self._hear_last_words()
        for channel in list(self._sockets):
            self._receive(channel, drain=True)
        for channel, socket in self._sockets.items():
            self._loop.forget(socket)
            socket.close(linger=0)
            self._unlink(_PORTS[channel])
        self._unlink(_HEARTBEAT_PORT)
        self._sockets.clear()
        self._close_ready()  # its last word may be there unread, and is none of the next process
        self.pipe.close()
        self._process = None
        self.pid = 0

    def _hear_last_words(self) -> None:
        """A dead process's output may still be in its socket: until zmq's own thread has fetched all of it, and found
        the socket closed."""
        iopub = self._sockets.get(Channel.IOPUB)
        if iopub is None:
            return
        closed, deadline = iopub.get_monitor_socket(zmq.EVENT_DISCONNECTED), time.monotonic() + LAST_WORDS
        while time.monotonic() < deadline:
            if iopub.poll(LAST_WORDS_MS):
                self._receive(Channel.IOPUB)
            elif closed.poll(0):
                break
        iopub.disable_monitor()
        closed.close(linger=0)

    # -------------------------------------------------------------------------------------- messages

    def send(self, channel: Channel, client: int, parts: Tuple[bytes, ...]) -> None:
        """One message to the kernel. The client number travels as identity: the kernel gives it back. Where the process
        has ended nothing is sent."""
        if channel not in self._sockets:
            return
        frames = [b"%d" % client, DELIMITER, self._sign(parts[:4]), *parts]
        self._sockets[channel].send_multipart(frames, copy=len(parts) == 4)

    def _connect(self) -> None:
        # One for all sockets: stdin must have the shell's. A successor must have ours, to hear what we asked for.
        identity = hashlib.sha256(b"identity" + self._key).hexdigest().encode()
        for channel, port in _PORTS.items():
            socket = self._context.socket(zmq.SUB if channel is Channel.IOPUB else zmq.DEALER)
            socket.linger = 0
            socket.rcvhwm = socket.sndhwm = 0
            if channel is Channel.IOPUB:
                socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)  # for the process's end: `_hear_last_words`
                socket.subscribe(b"")
            else:
                socket.identity = identity
            socket.connect("ipc://%s-%d" % (self.folder / "z", port))
            self._sockets[channel] = socket
            self._loop.watch(socket, lambda _, channel=channel: self._receive(channel))  # type: ignore[misc]

    def _receive(self, channel: Channel, drain: bool = False) -> None:
        socket = self._sockets.get(channel)
        if socket is None:  # the event is older than the process's end, which was noticed in the same turn
            return
        left = _BATCH
        while left > 0 or drain:
            try:
                frames = socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            left -= 1 + sum(map(len, frames)) // _SMALL
            self._take(channel, frames)
            if channel not in self._sockets:
                return

    def _take(self, channel: Channel, frames: List[bytes]) -> None:
        at = frames.index(DELIMITER) if DELIMITER in frames else len(frames)
        signature, parts = b"".join(frames[at + 1 : at + 2]), tuple(frames[at + 2 :])
        if not 4 <= len(parts) <= MAX_PARTS or not hmac.compare_digest(signature, self._sign(parts[:4])):
            return  # only processes of this very user can even reach the socket
        client = 0
        if channel is not Channel.IOPUB and at and _CLIENT.fullmatch(frames[at - 1]):
            client = min(int(frames[at - 1]), MAX_CLIENTS)
        self._on_message(channel, client, parts)

    def _sign(self, parts: Tuple[bytes, ...]) -> bytes:
        mac = hmac.new(self._key, digestmod=hashlib.sha256)
        for part in parts:
            mac.update(part)
        return mac.hexdigest().encode()

    def _write_connection_file(self) -> None:
        ports = {name + "_port": port for name, port in _names()}
        info = dict(ports, transport="ipc", ip=str(self.folder / "z"), key=self._key.decode())
        info.update(signature_scheme="hmac-sha256", kernel_name="")
        path = self.folder / "connection.json"
        fd = os.open(str(path), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(fd, "w") as file:
            json.dump(info, file)

    def _unlink(self, port: int) -> None:
        try:
            os.unlink("%s-%d" % (self.folder / "z", port))
        except FileNotFoundError:
            pass


def _names() -> List[Tuple[str, int]]:
    named = [(channel.name.lower(), port) for channel, port in _PORTS.items()]
    return [*named, ("hb", _HEARTBEAT_PORT)]
