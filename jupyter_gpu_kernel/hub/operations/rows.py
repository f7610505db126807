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


def _gpu_key(row: dict[str, Any]) -> Hashable:
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


def gpu_rows(
    of_jobs: list[NodeReply], direct: list[NodeReply]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the rows of the GPUs of jobs' nodes, and of the nodes to which kernelspecs lead without a job.

    A machine may be among both. Then the job has its GPUs, although they look free to others while the job is idle.
    """
    seen = SeenRows()
    job_rows = rows_of(of_jobs, "gpus", _gpu_key, seen)
    return job_rows, rows_of(direct, "gpus", _gpu_key, seen)


def end_rows(
    requested: list[dict[str, Any]], answers: list[NodeReply], left: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return the rows of the processes that have ended, and an error for each of the `requested` that still exists.
    `answers`: to the request to end them. `left`: the rows of what is left afterwards."""
    names = {_process_key(row) for row in requested if "pid" in row}
    rows = [row for row in left if "error" in row or _process_key(row) in names]
    running = {_process_key(row) for row in rows}
    ended = process_rows(answers, "ended")
    gone = [row for row in ended if "error" in row or _process_key(row) not in running]
    return [*gone, *(row if "error" in row else _still_runs_row(row) for row in rows)]


def _process_key(row: dict[str, Any]) -> tuple[Any, ...]:
    """Identify the process of a row over all nodes."""
    return tuple(row.get(key) for key in ("node", "pid", "start"))


def _still_runs_row(row: dict[str, Any]) -> dict[str, Any]:
    """Return the error row for a process that should have ended."""
    cause = f"process {row['pid']} was killed, but still exists"
    remedy = (
        "It may hang in the driver or a file system, and ends when that responds or the node is rebooted."
    )
    return {"node": row["node"], "error": AgentError(cause, hop=row["node"], remedy=remedy).to_json()}
