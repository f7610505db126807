"""What a kernel and its keepers agree on beyond Jupyter's protocol: how much of the output is read, and what is sent
again when another keeper takes over the kernel of a killed one.

A message of iopub may carry a mark: a frame before the delimiter, beside the topic. A mark says how many bytes the
kernel has sent up to and with this message. The keeper returns the number through its pipe to the kernel when it has
handled the message.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any, Dict, List, Optional, Sequence

DELIMITER = b"<IDS|MSG>"
"""The frame between a message's routing prefix and its signature, as in Jupyter's messaging protocol."""
SESSION = "keeper"
"""The session in the headers of a keeper's own requests."""
TAKEN_OVER = "gpu_kernel_taken_over"
"""The type of the request on control by which a successor says that it receives what the kernel publishes. The kernel
sends again what the killed keeper may not have read; what it replies is in `in_kernel/unread_messages.py`."""
REPEAT_INPUT = "gpu_kernel_repeat_input"
"""The type of the message on stdin by which a successor asks for the input_request that has no answer yet."""
_MARK = re.compile(rb"sent:([0-9]{1,18})")


def keeper_identity(key: bytes) -> bytes:
    """Return the ZeroMQ identity of the sockets of all keepers of the kernel with this key. Stdin needs the identity of
    shell, and a successor needs that of its predecessor, to receive the replies."""
    return hashlib.sha256(b"identity" + key).hexdigest().encode()


def message_parts(frames: Sequence[Any]) -> List[bytes]:
    """Return header, parent header, metadata and content of the message with these frames; [] if there is none."""
    delimiters = [at for at, frame in enumerate(frames) if isinstance(frame, bytes) and frame == DELIMITER]
    return [bytes(frame) for frame in frames[delimiters[0] + 2 :][:4]] if delimiters else []


def add_mark(frames: Sequence[Any], total: int) -> List[Any]:
    """Return the frames with a mark. Those without a delimiter are returned as they are."""
    for at, frame in enumerate(frames):
        if isinstance(frame, bytes) and frame == DELIMITER:
            return [*frames[:at], b"sent:%d" % total, *frames[at:]]
    return list(frames)


def read_mark(frame: bytes) -> Optional[int]:
    """Return the number of bytes in a mark; None if this frame is no mark."""
    mark = _MARK.fullmatch(frame)
    return int(mark.group(1)) if mark else None


def returned(total: int) -> Dict[str, Any]:
    """Return what the keeper writes to the kernel when it has handled the message with this mark."""
    return {"read": total}
