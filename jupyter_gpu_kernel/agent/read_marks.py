"""Marks in messages of the kernel's iopub, by which the kernel learns how much of its output the keeper has handled.

A mark is a frame before the delimiter, beside the topic. It says how many bytes the kernel has sent up to and with this
message. The keeper returns the number through its pipe to the kernel.
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, Optional, Sequence

DELIMITER = b"<IDS|MSG>"
"""The frame between a message's routing prefix and its signature, as in Jupyter's messaging protocol."""
_MARK = re.compile(rb"sent:([0-9]{1,18})")


def message_parts(frames: Sequence[Any]) -> List[bytes]:
    """Return header, parent header, metadata and content of the message with these frames; [] if it is none."""
    delimiters = [at for at, frame in enumerate(frames) if isinstance(frame, bytes) and frame == DELIMITER]
    return [bytes(frame) for frame in frames[delimiters[0] + 2 :][:4]] if delimiters else []


def add_mark(frames: Sequence[Any], total: int) -> List[Any]:
    """Return the frames with a mark. Those without a delimiter are returned as they are."""
    for at, frame in enumerate(frames):
        if isinstance(frame, bytes) and frame == DELIMITER:
            return [*frames[:at], b"sent:%d" % total, *frames[at:]]
    return list(frames)


def read_mark(frame: bytes) -> Optional[int]:
    """Return the number of bytes in a mark; None if this frame is none."""
    mark = _MARK.fullmatch(frame)
    return int(mark.group(1)) if mark else None


def returned(total: int) -> Dict[str, Any]:
    """Return what the keeper writes to the kernel when it has handled the message with this mark."""
    return {"read": total}
