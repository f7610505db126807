"""Jupyter messages that we make ourselves: what a keeper or a stand-in says in the kernel's place.

Parts are (header, parent, metadata, content) as bytes, unsigned. A parent is given as the header's bytes,
untouched.
"""

from __future__ import annotations

import json
import uuid
from datetime import datetime, timezone
from typing import Any, Dict, Optional, Tuple

from .messages import Message, MessageError

Parts = Tuple[bytes, ...]
KERNEL_PROTOCOL = "5.3"
PASSING = "jupyter-gpu-kernel-passing-"
"""The ids of displays which tell of a moment begin with this: they are removed when it is over, or when the front end
leaves. They are not for saved notebooks."""


def make(
    msg_type: str,
    content: Dict[str, Any],
    parent: bytes = b"{}",
    session: str = "",
    metadata: Optional[Dict[str, Any]] = None,
) -> Parts:
    """A message's parts. `session` should be the kernel's own once known: JupyterLab watches it."""
    header = {
        "msg_id": uuid.uuid4().hex,
        "msg_type": msg_type,
        "username": "kernel",
        "session": session or "jupyter-gpu-kernel",
        "date": datetime.now(timezone.utc).isoformat(),
        "version": KERNEL_PROTOCOL,
    }
    return (
        json.dumps(header).encode(),
        parent,
        json.dumps(metadata or {}).encode(),
        json.dumps(content).encode(),
    )


def is_user_cell(content: Dict[str, Any]) -> bool:
    """Whether an execute_request is a cell that a user ran, not a front end's own code."""
    silent = bool(content.get("silent", False))
    return not silent and bool(content.get("store_history", not silent))


def user_cell(request: Message) -> bool:
    """Whether this is a cell that a user ran."""
    try:
        return request.header().get("msg_type") == "execute_request" and is_user_cell(request.content())
    except MessageError:
        return False


def error_content(name: str, value: str) -> Dict[str, Any]:
    """Content of an `error` message, and with status of an error reply."""
    return {"ename": name, "evalue": value, "traceback": [f"\x1b[31m{name}\x1b[0m: {value}"]}


def error_reply(name: str, value: str, count: int) -> Dict[str, Any]:
    """Content of an execute_reply for the cell of this number, which failed."""
    return dict(
        error_content(name, value), status="error", execution_count=count, user_expressions={}, payload=[]
    )


def aborted_reply() -> Dict[str, Any]:
    """Content of an execute_reply for a cell behind one that failed, as ipykernel sends it: without a number."""
    return {"status": "aborted"}
