"""The `attach` process of one SSH connection: routes frames between the hub, on stdio, and the keepers' unix sockets.

It has no state: when it dies, the keepers go on and the hub resumes. It answers the hub's requests with `handlers`.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import sys
import threading
from typing import Any, Callable, Dict, Optional

from ...wire.fields import FieldError, number, text
from ...wire.stream.frames import CHUNK, MAGIC, Frame, FrameError, FrameReader, Kind, json_frame, reply_frame
from ...wire.stream.window import MOST
from ..paths import Root
from ..refused import Refused
from ..story import forget_old_stories
from ..system.agent_runtime import AgentRuntime
from .handlers import RequestHandlers

SILENCE = 60
"""Seconds without data from the hub, which pings every few seconds. Then the link is dead, and this process ends."""
ROUTED = (Kind.HELLO, Kind.DATA, Kind.ACK)
"""Frames between hub and keeper; all others are between hub and attach."""
MAX_REQUESTS = 64
MAX_ATTACHMENT = (1 << 32) - 1
MAX_PENDING = 2 * MOST


class KeeperLink:
    """The socket to one keeper, and its number at the hub. `pending`: bytes that the keeper has not read yet.

    A keeper that is stopped must not block the others. The hub's window bounds `pending`.
    """

    def __init__(self, number: int, sock: socket.socket) -> None:
        self.number = number
        self.sock = sock
        self.reader = FrameReader(greeting=False)
        self.pending = bytearray()
        sock.setblocking(False)

    def flush(self) -> None:
        """Send what the socket takes."""
        try:
            while self.pending:
                del self.pending[: self.sock.send(self.pending)]
        except BlockingIOError:
            pass  # the selector reports when it takes more


class Router:
    """Routes frames between the hub and the keepers: `run()` until the hub closes the stream."""

    def __init__(
        self, handlers: RequestHandlers, on_data: Callable[[], object], stdin: int = 0, stdout: int = 1
    ) -> None:
        """`on_data()` is called at the start, and whenever the hub has sent something."""
        self._handlers = handlers
        self._on_data = on_data
        self._stdin = stdin
        self._stdout = stdout
        self._write_lock = threading.Lock()
        self._attachments_lock = threading.Lock()
        """Held while the loop handles an event, or the thread of a request adds an attachment."""
        self._selector = selectors.DefaultSelector()
        self._attachments: Dict[int, KeeperLink] = {}
        self._filled: Dict[int, KeeperLink] = {}  # those with new `pending` of this turn
        self._request_slots = threading.BoundedSemaphore(MAX_REQUESTS)

    def run(self) -> None:
        """Send the greeting, then route frames; return at the end of stdin."""
        self._on_data()
        self._write(MAGIC)
        reader = FrameReader(greeting=False)
        self._selector.register(self._stdin, selectors.EVENT_READ, None)
        while True:
            for key, events in self._selector.select(60.0):
                with self._attachments_lock:
                    if key.data is not None:
                        self._ready(key.data, events)
                    elif not self._read_hub(reader):
                        return

    def _read_hub(self, reader: FrameReader) -> bool:
        """Handle what the hub has sent. Returns whether the stream goes on."""
        data = os.read(self._stdin, CHUNK)
        if not data:
            return False
        self._on_data()
        try:
            frames = reader.feed(data)
        except FrameError:
            return False  # the hub connects again
        for frame in frames:
            self._from_hub(frame)
        self._flush_filled()
        return True

    def _from_hub(self, frame: Frame) -> None:
        if frame.kind is Kind.PING:
            self._write(Frame(Kind.PONG, number=frame.number).encode())
        elif frame.kind is Kind.REQUEST:
            self._flush_filled()
            self._request(frame)
        elif frame.kind is Kind.CLOSE:
            self._flush_filled()
            self._drop(frame.attachment)
        elif frame.kind in ROUTED:
            attachment = self._attachments.get(frame.attachment)
            if attachment is None:
                return self._closed(frame.attachment, "no such attachment")
            attachment.pending += frame.encode()
            self._filled[attachment.number] = attachment

    def _flush_filled(self) -> None:
        """Send each keeper all that has come for it, in one piece: every piece wakes the keeper up."""
        filled, self._filled = self._filled, {}
        for attachment in filled.values():
            self._ready(attachment, selectors.EVENT_WRITE)
            if len(attachment.pending) > MAX_PENDING:
                self._drop(attachment.number, "more was sent than the window allows")

    def _ready(self, attachment: KeeperLink, events: int) -> None:
        if self._attachments.get(attachment.number) is not attachment:
            return  # dropped in this turn
        try:
            if events & selectors.EVENT_READ:
                self._from_keeper(attachment)
            if events & selectors.EVENT_WRITE:
                attachment.flush()
                both = selectors.EVENT_READ | selectors.EVENT_WRITE
                wanted = both if attachment.pending else selectors.EVENT_READ
                self._selector.modify(attachment.sock, wanted, attachment)
        except (OSError, EOFError, FrameError) as error:
            self._drop(attachment.number, str(error))

    def _from_keeper(self, attachment: KeeperLink) -> None:
        data = attachment.sock.recv(CHUNK)
        if not data:
            raise EOFError("the keeper closed the connection")
        frames = attachment.reader.feed(data)
        if not all(frame.kind in ROUTED for frame in frames):
            raise FrameError("the keeper sent a frame that is not for the hub")
        self._write(b"".join(frame._replace(attachment=attachment.number).encode() for frame in frames))

    def _request(self, frame: Frame) -> None:
        """Handle a request on its own thread: starting a keeper or running nvidia-smi takes seconds."""
        if self._request_slots.acquire(blocking=False):
            threading.Thread(target=self._handle, args=(frame,), daemon=True).start()
        else:
            reply = {"error": {"code": "busy", "text": f"more than {MAX_REQUESTS} requests at once"}}
            self._write(reply_frame(reply, frame.number).encode())

    def _handle(self, frame: Frame) -> None:
        try:
            request = frame.json()
            if request.get("do") == "open":
                attachment = number(request, "attachment", least=1, most=MAX_ATTACHMENT)
                kernel_id, sock = self._handlers.open(text(request, "kernel"), request)
                self._add(KeeperLink(attachment, sock))
                reply: Dict[str, Any] = {"ok": True, "kernel": kernel_id}
            else:
                reply = dict(self._handlers.handle(request), root=self._handlers.identity())
        except Refused as error:
            reply = {"error": {"code": error.code, "text": str(error)}}
        except (FieldError, FrameError) as error:
            reply = {"error": {"code": "malformed", "text": str(error)}}
        except Exception as error:  # a bug must not end the other kernels' connections
            reply = {"error": {"code": "fault", "text": f"{type(error).__name__}: {error}"}}
        self._request_slots.release()
        self._write(reply_frame(reply, frame.number).encode())

    def _add(self, attachment: KeeperLink) -> None:
        """Add the attachment before the reply to the hub, which sends no frame for it earlier."""
        with self._attachments_lock:
            self._drop(attachment.number)
            self._selector.register(attachment.sock, selectors.EVENT_READ, attachment)
            self._attachments[attachment.number] = attachment

    def _drop(self, number: int, reason: Optional[str] = None) -> None:
        attachment = self._attachments.pop(number, None)
        if attachment is None:
            return
        self._selector.unregister(attachment.sock)
        attachment.sock.close()
        if reason is not None:
            self._closed(number, reason)

    def _closed(self, number: int, reason: str) -> None:
        self._write(json_frame(Kind.CLOSE, {"reason": reason}, attachment=number).encode())

    def _write(self, data: bytes) -> None:
        with self._write_lock:
            view = memoryview(data)
            while view:
                view = view[os.write(self._stdout, view) :]


def main(runtime: AgentRuntime, root: Root) -> int:
    """Run on stdin and stdout. A stray SIGTERM does not end the process; the end of stdin does."""
    for caught in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(caught, lambda caught, frame: None)
    sys.stdout.flush()
    forget_old_stories(root.path / "stories", runtime.time())
    try:
        # The alarm ends this process, also in a write that blocks indefinitely.
        Router(RequestHandlers(runtime, root), lambda: signal.alarm(SILENCE)).run()
    except BrokenPipeError:
        return 0
    return 0
