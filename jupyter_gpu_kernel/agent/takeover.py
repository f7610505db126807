"""What a kernel and the successor of its killed keeper must both know."""

from __future__ import annotations

import hashlib


def keeper_identity(key: bytes) -> bytes:
    """Return the ZeroMQ identity of the sockets of all keepers of the kernel with this key. Stdin needs the identity of
    shell, and a successor needs that of its predecessor, to receive the replies."""
    return hashlib.sha256(b"identity" + key).hexdigest().encode()


SESSION = "keeper"
"""The session in the headers of a keeper's own requests."""
TAKEN_OVER = "gpu_kernel_taken_over"
"""The type of the request on control by which a successor says that it receives what the kernel publishes. The kernel
sends again what the killed keeper may not have read; what it replies is in `in_kernel/unread_messages.py`."""
REPEAT_INPUT = "gpu_kernel_repeat_input"
"""The type of the message on stdin by which a successor asks for the input_request that has no answer yet."""
