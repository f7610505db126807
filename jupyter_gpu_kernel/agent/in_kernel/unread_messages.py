"""What the kernel has sent, and its keeper may not have read: if the keeper is killed, its successor gets it again.

What is on its way in the sockets is lost with a keeper. Therefore the kernel keeps the messages of iopub until the
keeper has returned a mark behind them (`output_window.py`), its last replies, and the input_request that has no
answer yet. The successor says when it receives, and drops what the killed keeper had read.
"""

from __future__ import annotations

import re
from collections import deque
from typing import Any, Callable, Deque, Dict, List, Optional, Sequence, Tuple

from ..kernel_protocol import DELIMITER, REPEAT_INPUT, SESSION, message_parts

MAX_REPLIES = 1024 * 1024
"""Bytes of replies that are kept; the last one is kept also if it is larger."""
_KEEPERS = re.compile(b'"session": ?"%s"' % SESSION.encode())
"""In the parent header of messages about a keeper's own requests."""
Members = Dict[str, Callable[..., Any]]
Send = Callable[[], object]


class UnreadOutput:
    """Sends the messages of iopub, keeps them until the keeper has read them, and sends them again to a successor.

    While there is no keeper, messages are only kept, as ZeroMQ would drop them. Call `send` in iopub's thread, which
    also calls its argument; `release` in any thread, and the other methods in the one that watches the keeper.
    """

    def __init__(self) -> None:
        self._keeps = False
        self._kept: Deque[Tuple[int, Send]] = deque()
        self._turn = 0  # how many keepers have ended
        self._released = 0  # the last turn that has ended
        self._schedule: Callable[[Send], object] = lambda function: function()

    def bind(self, schedule: Callable[[Send], object]) -> None:
        """`schedule(function)` calls a function in iopub's thread."""
        self._schedule = schedule

    def keep(self) -> None:
        """There is a keeper, which returns marks."""
        self._keeps = True

    def read(self, total: int) -> None:
        """The keeper has read the messages up to the one with this total."""
        while self._kept and self._kept[0][0] <= total:
            self._kept.popleft()

    def hold(self) -> None:
        """There is no keeper."""
        self._turn += 1

    def release(self) -> None:
        """The next keeper receives: send what is kept again, in order."""
        turn = self._turn
        self._schedule(lambda: self._release(turn))

    def drop(self) -> None:
        """There will be no keeper any more."""
        self._keeps, self._released = False, self._turn
        self._kept.clear()

    def send(self, total: int, send: Send) -> None:
        """Call `send()`, which sends a message, now or when it is released. `total`: bytes sent up to this message."""
        if self._keeps:
            self._kept.append((total, send))
        if self._released == self._turn:
            send()

    def _release(self, turn: int) -> None:
        if turn != self._turn or turn == self._released:  # that keeper was killed, too, or has reported twice
            return
        self._released = turn
        for _, send in self._kept.copy():  # whose beginning another thread may remove
            send()


def is_of_keeper(parts: Sequence[bytes]) -> bool:
    """Return whether this message is about a request of a keeper itself."""
    return len(parts) == 4 and _KEEPERS.search(parts[1]) is not None


class LastReplies:
    """The last replies on one channel. They are kept in the socket's thread; any thread may ask for them."""

    def __init__(self, keeper: bytes) -> None:
        self._keeper = keeper
        self._kept: Deque[List[bytes]] = deque()
        self._size = 0

    def socket_members(self, base: Any) -> Members:
        """Return the method by which a subclass of this ZeroMQ socket keeps what it sends."""

        def send_multipart(socket: Any, frames: Sequence[Any], *args: Any, **named: Any) -> Any:
            frames = list(map(as_bytes, to_keeper(self._keeper, frames)))
            self._add([frames[frames.index(DELIMITER) - 1], *message_parts(frames)])
            return base.send_multipart(socket, frames, *args, **named)

        return {"send_multipart": send_multipart}

    def _add(self, reply: List[bytes]) -> None:
        if not is_of_keeper(reply[1:]):
            self._kept.append(reply)
            self._size += sum(map(len, reply))
        while self._size > MAX_REPLIES and len(self._kept) > 1:
            self._size -= sum(map(len, self._kept.popleft()))

    def to_json(self) -> List[List[str]]:
        """Return the kept replies, oldest first: the number of its client and the four parts of each."""
        return [[part.decode("utf-8", "replace") for part in reply] for reply in self._kept.copy()]


class InputRequest:
    """Sends the input_request that waits for its answer again, when the successor of a killed keeper asks for that.

    There was no keeper when the request was sent, or the killed one had the request, or its answer; the hub knows what
    front ends got. Its methods are for a subclass of the kernel, and for one of the kernel's socket for input, which
    only the thread that asks uses.
    """

    def __init__(self, keeper: bytes) -> None:
        self._keeper = keeper
        self._waiting: Optional[List[Any]] = None  # the frames of the request without an answer

    def kernel_members(self, base: Any) -> Members:
        """Return the method by which a subclass of this kernel says when a request does not wait any more."""

        def input_request(kernel: Any, *args: Any, **named: Any) -> Any:
            try:
                return base._input_request(kernel, *args, **named)
            finally:
                self._waiting = None

        return {"_input_request": input_request}

    def socket_members(self, base: Any) -> Members:
        """Return the methods by which a subclass of this ZeroMQ socket sends a request again."""

        def send_multipart(socket: Any, frames: Sequence[Any], *args: Any, **named: Any) -> Any:
            self._waiting = to_keeper(self._keeper, frames)
            return base.send_multipart(socket, self._waiting, *args, **named)

        def recv_multipart(socket: Any, *args: Any, **named: Any) -> Any:
            frames = base.recv_multipart(socket, *args, **named)
            while any(REPEAT_INPUT.encode() in part for part in message_parts(frames)[:2]):
                if self._waiting is not None:
                    base.send_multipart(socket, self._waiting)
                frames = base.recv_multipart(socket, *args, **named)
            return frames

        return {"send_multipart": send_multipart, "recv_multipart": recv_multipart}


class UnreadMessages:
    """What the kernel keeps of each channel but iopub. `keeper`: the ZeroMQ identity of its keepers."""

    def __init__(self, keeper: bytes) -> None:
        self.shell = LastReplies(keeper)
        self.control = LastReplies(keeper)
        self.input = InputRequest(keeper)

    def replies(self) -> Dict[str, Any]:
        """Return the content of the reply to a successor that has taken over."""
        return {"status": "ok", "shell": self.shell.to_json(), "control": self.control.to_json()}


def to_keeper(keeper: bytes, frames: Sequence[Any]) -> List[Any]:
    """Return the frames of a message to the kernel's client, which is the keeper with this identity or another program.

    A request that waited in the socket when its keeper was killed is read when the successor has the identity. ZeroMQ
    has given the old connection another identity then, which begins with a zero, and would drop the reply.
    """
    return [keeper, *frames[1:]] if as_bytes(frames[0])[:1] == b"\0" else list(frames)


def as_bytes(frame: Any) -> bytes:
    """Return a frame's bytes. What the user's code may change, or wants to resize, is copied."""
    return frame if isinstance(frame, bytes) else memoryview(frame).tobytes()
