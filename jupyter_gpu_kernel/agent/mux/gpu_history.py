"""The GPU hours of all kernels of this user on this node, from their stories and from the keepers of those that run."""

from __future__ import annotations

import socket
from typing import Any, Dict, List, Sequence

from ..gpus import hours
from ..paths import Root
from ..story import read_story

MAX_HOLDS = 3000
"""Rows in one answer."""
MAX_STORY = 3 * 1024 * 1024
"""Bytes at the end of each story that are read."""


def read_history(root: Root, states: Sequence[Dict[str, Any]], now: float, seconds: float) -> Dict[str, Any]:
    """Return the answer to the request `history`. states: the kernels that run, as `ps` shows them."""
    since = now - seconds
    running = {str(state["id"]): _usage(state) for state in states}
    found: List[Dict[str, Any]] = []
    for kernel_id in sorted({*root.kernels_with_story(since), *running}):
        story = read_story(root.story(kernel_id), MAX_STORY)
        kernel = hours.KernelHours.read(story, now, running.get(kernel_id))
        found += hours.rows(kernel_id, kernel, since, now)
    found.sort(key=lambda row: float(row["from"]))
    newest = hours.with_names(found)[-MAX_HOLDS:]
    node = socket.gethostname()
    return {"history": [dict(row, node=node) for row in newest], "left_out": len(found) - len(newest)}


def _usage(state: Dict[str, Any]) -> Dict[str, Any]:
    """What the status of a running kernel says of its GPUs: {} if its keeper does not reply."""
    if state["state"] in ("starting", "unresponsive"):
        return {}
    usage = state.get("usage")
    return {"gpus": state.get("gpus"), **(usage if isinstance(usage, dict) else {})}
