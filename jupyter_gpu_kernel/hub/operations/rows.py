"""The rows that commands list, from the replies of several nodes: each row once, with its node, and errors as rows."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from ...errors import AgentError
from ..kernel.remote_kernel import RemoteKernel
from ..node.nodes import NodeReply, SeenRows


def rows_of(
    answers: list[NodeReply],
    key: str,
    name: Callable[[dict[str, Any]], Hashable],
    seen: SeenRows | None = None,
) -> list[dict[str, Any]]:
    """Return the lists under `key`, each row once (by its `name`) with its node as `hop`, and errors as rows.

    `seen`: rows that are listed already.
    """
    seen, rows = SeenRows() if seen is None else seen, list[dict[str, Any]]()
    for reply in answers:
        listed = reply.answer.get(key, [])
        rows += [dict(row, hop=reply.node.name) for row in listed if seen.add(reply.node, name(row))]
        rows += [reply.error_row] if reply.error is not None else []
    return rows


def pending_story(remote: RemoteKernel) -> list[dict[str, Any]]:
    """Return the rows of `logs` for a kernel that has not been started: what it waits for now."""
    reason = remote.core.relay.start_reason or "the kernel has not been started: its first cell starts it"
    time = remote.status.get("since")
    row = {"time": time, "event": "pending", "hop": remote.link.name}
    return [{**row, "text": line} for line in reason.splitlines()]


def gpu_key(row: dict[str, Any]) -> Hashable:
    """Identify the GPU of a row on its node."""
    return row.get("uuid") or row.get("index")


def left_out_row(reply: NodeReply) -> dict[str, Any]:
    """Return the error row for a node with more rows than it may send."""
    cause = f"the {reply.answer['left_out']} oldest rows of this node are left out"
    error = AgentError(cause, hop=reply.node.name, remedy="Ask for a shorter time: --history 24h.")
    return {"node": reply.node.name, "error": error.to_json()}


def process_rows(answers: list[NodeReply], key: str) -> list[dict[str, Any]]:
    """Return rows about processes, with the name of the node, so that the node can be asked again."""
    rows = rows_of(answers, key, lambda row: (row["pid"], row.get("start")))
    return [dict(row, node=row["hop"]) if "hop" in row else row for row in rows]


def code_rows(answers: list[NodeReply]) -> list[dict[str, Any]]:
    """Return rows about pinned code, with the node that was asked, in the order of nodes and folders."""
    rows = rows_of(answers, "code", lambda row: row["folder"])
    rows = [dict(row, node=row["hop"]) for row in rows if "hop" in row]
    return sorted(rows, key=lambda row: (row["node"], row["folder"]))


def process_key(row: dict[str, Any]) -> tuple[Any, ...]:
    """Identify a row's process over all nodes."""
    return tuple(row.get(key) for key in ("node", "pid", "start"))


def still_runs_row(row: dict[str, Any]) -> dict[str, Any]:
    """Return the error row for a process that should have ended."""
    cause = f"process {row['pid']} was killed, but still exists"
    remedy = (
        "It may hang in the driver or a file system, and ends when that responds or the node is rebooted."
    )
    return {"node": row["node"], "error": AgentError(cause, hop=row["node"], remedy=remedy).to_json()}
