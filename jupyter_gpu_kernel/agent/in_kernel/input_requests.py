"""Sends the input_request that waits for its answer again when the successor of a killed keeper asks for that.

There was no keeper when it was sent, or the killed one had it, or had its answer. The hub knows what front ends got.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Sequence

from ..read_marks import headers
from ..takeover import REPEAT_INPUT


class InputRequests:
    """For a subclass of the kernel and one of its socket for input, which the thread that asks uses alone."""

    def __init__(self) -> None:
        self._waiting: Optional[List[Any]] = None  # the frames of the request that has no answer

    def kernel_members(self, base: Any) -> Dict[str, Callable[..., Any]]:
        """Return the method by which a subclass of this kernel says when a request does not wait any more."""

        def input_request(kernel: Any, *args: Any, **named: Any) -> Any:
            try:
                return base._input_request(kernel, *args, **named)
            finally:
                self._waiting = None

        return {"_input_request": input_request}

    def socket_members(self, base: Any) -> Dict[str, Callable[..., Any]]:
        """Return the methods by which a subclass of this ZeroMQ socket sends a request again."""

        def send_multipart(socket: Any, frames: Sequence[Any], *args: Any, **named: Any) -> Any:
            self._waiting = list(frames)
            return base.send_multipart(socket, frames, *args, **named)

        def recv_multipart(socket: Any, *args: Any, **named: Any) -> Any:
            frames = base.recv_multipart(socket, *args, **named)
            while any(REPEAT_INPUT.encode() in header for header in headers(frames)):
                if self._waiting is not None:
                    base.send_multipart(socket, self._waiting)
                frames = base.recv_multipart(socket, *args, **named)
            return frames

        return {"send_multipart": send_multipart, "recv_multipart": recv_multipart}
