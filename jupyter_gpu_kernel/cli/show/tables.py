"""Tables for the terminal, of lists that the hub returns. This module knows the lists' keys, and not the hub.

The hub has checked the types and the sizes of what other machines say (hub/validate.py). Here each cell of a table
becomes one line without control characters, and is cut where it is too long; a value that is unknown is shown as “?”.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from ...errors import GpuKernelError
from ...hub.sanitize import line
from ...wire.texts import duration, node_name
from .gpu_hours import UNKNOWN, Hours, groups

_CELL, _LAST = 60, 2000  # longest cell, and longest cell of the last column, in characters


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table with columns as wide as their widest cell."""
    lines = [[*(line(cell, _CELL) for cell in row[:-1]), line(row[-1], _LAST)] for row in [heads, *rows]]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = (map(str.ljust, cells, widths) for cells in lines)
    return "\n".join("  ".join(row).rstrip() for row in padded)


def gpus(rows: Sequence[dict[str, Any]]) -> str:
    """GPUs, as the operations `gpus` and `probe` return them; "" if there is none.

    A node that could not be asked has one row, with the cause of its error.
    """
    heads = ("NODE", "GPU", "NAME", "MEMORY MiB", "USE", "WHO", "FREE")
    return table(heads, list(map(_gpu, rows))) if rows else ""


def queue(rows: Sequence[dict[str, Any]]) -> str:
    """The kernels that wait for these GPUs, each once; "" if there is none."""
    lines: dict[tuple[str, ...], tuple[str, ...]] = {}
    for row in rows:
        for one in row.get("queue", ()):
            name = (_node(row), _text(one.get("user")), _text(one.get("id")))
            lines.setdefault(name, (_text(one.get("place")), _node(row), *_queued(one)))
    heads = ("PLACE", "NODE", "WHO WAITS", "GPUS", "SINCE", "PRIORITY", "KERNEL", "NOTEBOOK")
    return table(heads, list(lines.values())) if lines else ""


def _queued(row: dict[str, Any]) -> tuple[str, ...]:
    return (
        _user(row),
        _text(row.get("gpus")),
        ago(row.get("since")) or "?",
        _text(row.get("priority")) if row.get("yours") else "-",
        _text(row.get("id")),
        _text(row.get("notebook") or "-")
        + (f"  (passed over: {_text(row['passed'])})" if row.get("passed") else ""),
    )


def _gpu(row: dict[str, Any]) -> tuple[str, ...]:
    use = row.get("utilization")
    return (
        _node(row),
        _text(row.get("index")),
        _model(row.get("name")),
        f"{_text(row.get('memory_used_mib'))}/{_text(row.get('memory_total_mib'))}",
        "?" if use is None else f"{_text(use)} %",
        _who(row) or "-",
        _free(row),
    )


def _model(name: Any) -> str:
    """The GPU's name without its maker, so that the table is narrower: "RTX 3090"."""
    return _text(name).removeprefix("NVIDIA ").removeprefix("GeForce ") or "?"


def _free(row: dict[str, Any]) -> str:
    if "error" in row:
        return f"not known: {GpuKernelError.from_json(row['error']).cause}"
    if not row.get("free"):
        return f"no: {_text(row.get('reason'))}"
    return f"yes, but {_text(row['warning'])}" if row.get("warning") else "yes"


def _who(row: dict[str, Any]) -> str:
    """The users of the GPU with the memory of each process, and the user who leases it, since when."""
    users = [f"{_user(one)} ({_text(one.get('memory_mib'))} MiB)" for one in row.get("processes", ())]
    if lease := row.get("lease"):
        since = ago(lease.get("since"))
        users.append(f"leased by {_user(lease)}" + (f" {since}" if since else ""))
    idle = ago(row.get("idle_since")).removesuffix(" ago")
    users += [f"idle for {idle}"] if idle and users else []
    users += [f"left over from kernel {_text(one.get('kernel'))}" for one in row.get("leftovers", ())]
    return ", ".join(dict.fromkeys(users))


def _user(row: dict[str, Any]) -> str:
    return "you" if row.get("yours") else _text(row.get("user"))


def history(rows: Sequence[dict[str, Any]]) -> str:
    """GPU hours, as the operation `history` returns them: for each GPU of each kernel, each node, and in all."""
    lines = [_gpu_hours(held) for held in groups(rows, "hop", "node", "uuid", "kernel")]
    nodes = groups(rows, "hop", "node")
    totals = [(_node(one[0]), one) for one in nodes] if len(nodes) > 1 else []
    for name, held in [*totals, ("all", rows)]:
        lines.append((name, "total", "", *Hours.of(held).cells, "", "", "", ""))
    heads = ("NODE", "GPU", "NAME", "HELD", "BUSY", "IDLE", "FROM", "TO", "KERNEL", "NOTEBOOK")
    text = table(heads, lines)
    unknown = Hours.of(rows).unknown
    return text + (f"\n{UNKNOWN}" if unknown >= 36 else "")


def _gpu_hours(rows: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    first, last = rows[0], rows[-1]
    index = first.get("index")
    return (
        _node(first),
        _text(first.get("uuid") if index is None else index),
        _model(first.get("name") or "-"),
        *Hours.of(rows).cells,
        _date(first.get("from")),
        "now" if last.get("to") is None else _date(last.get("to")),
        _text(first.get("kernel")),
        _text(last.get("notebook") or "-"),
    )


def leftovers(rows: Sequence[dict[str, Any]]) -> str:
    """Processes that `stop --leftovers` is going to end."""
    heads = ("NODE", "PID", "KERNEL", "GPUS", "COMMAND")
    return table(heads, [_leftover(row) for row in rows])


def _leftover(row: dict[str, Any]) -> tuple[str, ...]:
    gpus = ", ".join(map(_text, row.get("gpus", ()))) or "-"
    known = (_text(row.get(name)) for name in ("node", "pid", "kernel"))
    return (*known, gpus, _text(row.get("command")))


def pinned_code(rows: Sequence[dict[str, Any]]) -> str:
    """What `stop --leftovers` did with the pinned code of kernels that no longer exist."""
    heads = ("NODE", "KERNEL", "PINNED CODE", "FOLDER")
    return table(heads, [_pinned_code(row) for row in rows])


def _pinned_code(row: dict[str, Any]) -> tuple[str, ...]:
    node, kernel, folder = (_text(row.get(name)) for name in ("node", "kernel", "folder"))
    return node, kernel, f"kept: {_text(row['kept'])}" if row.get("kept") else "removed", folder


def kernels(rows: Sequence[dict[str, Any]]) -> str:
    """Kernels, as the operation `ps` returns them."""
    heads = ("ID", "NAME", "NODE", "STATE", "SINCE", "GPUS", "PID", "ATTACHED", "NOTEBOOK")
    nodes = list(dict.fromkeys(map(_node, rows)))  # each node's kernels as they were, then its queue in order
    ordered = sorted(rows, key=lambda row: (nodes.index(_node(row)), row.get("place") or 0))
    return table(heads, [_kernel(row) for row in ordered])


def _kernel(row: dict[str, Any]) -> tuple[str, ...]:
    return (
        _text(row.get("id")),
        _text(row.get("name")),
        _node(row),
        _state(row),
        ago(row.get("since")) or "?",
        str(len(row.get("gpus", ()))) if row.get("pid") else "?",  # no process is known yet
        _text(row.get("pid") or None),
        _attached(row),
        _last_column(row),
    )


def _state(row: dict[str, Any]) -> str:
    """The kernel's state, with its place in the queue and its priority: "waiting (2nd, priority 5)"."""
    place, priority = row.get("place"), row.get("priority")
    facts = [ordinal(place)] if place else []
    facts += [f"priority {priority}"] if priority else []
    facts += _job_facts(row.get("job") or {})
    return _text(row.get("state")) + (f" ({', '.join(facts)})" if facts else "")


def _job_facts(job: dict[str, Any]) -> list[str]:
    """The job in which the kernel runs, or for which it waits: "job 12", "Resources", "3 h 20 min left"."""
    if not job.get("id"):
        return []
    facts = [f"job {job['id']} by {job['way']}" if job.get("way") else f"job {job['id']}"]
    if job.get("state") == "PENDING":
        return facts + ([job["reason"]] if job.get("reason") else [])
    if end := job.get("end_time"):
        facts.append(f"{duration(max(0, int(end - time.time())))} left")
    return facts


def ordinal(number: int) -> str:
    """The number of a place: "1st", "2nd", "13th"."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _attached(row: dict[str, Any]) -> str:
    """Whether a front end of this computer, or of another one, is attached."""
    if row.get("attached"):
        return "yes"
    return f"from {_text(row['attached_from'])}" if row.get("attached_from") else "no"


def _last_column(row: dict[str, Any]) -> str:
    """The notebook, and why the kernel ended."""
    notebook = _text(row.get("notebook") or "-")
    return f"{notebook}  (ended: {_text(row['cause'])})" if row.get("cause") else notebook


def _node(row: dict[str, Any]) -> str:
    return node_name(_text(row.get("node")), str(row.get("hop") or ""))


def check(rows: Sequence[dict[str, Any]]) -> str:
    """The steps of a connection, as the operation `check` returns them."""
    return table(
        ("", "HOP", "STEP", "TIME", ""),
        [
            (
                ("ok" if row.get("checked", True) else "-") if row["ok"] else "FAILED",
                row["hop"],
                row["step"],
                f"{row['seconds']:.2f} s",
                str(row.get("message") or "").partition("\n")[0],
            )
            for row in rows
        ],
    )


def story(rows: Sequence[dict[str, Any]]) -> str:
    """The story of a kernel, as the operation `logs` returns it; with the nodes, if several report the kernel.

    Of the GPU hours, which are reported every 15 minutes, only those at the GPUs' release are shown.
    """
    rows = [row for row in rows if row.get("event") != "usage" or row.get("released")]
    several = len({str(row.get("hop")) for row in rows}) > 1
    lines = [(_date(row.get("time")), _text(row.get("event")), _text(row.get("text"))) for row in rows]
    if not several:
        return table(("TIME", "EVENT", ""), lines)
    nodes = [_text(row.get("hop")) for row in rows]
    return table(
        ("NODE", "TIME", "EVENT", ""), [(node, *line) for node, line in zip(nodes, lines, strict=True)]
    )


def ago(seconds_since_epoch: float | None) -> str:
    """How long ago a time (in seconds since the epoch) was; "" if the time is unknown."""
    if seconds_since_epoch is None:
        return ""
    number, unit, *_ = duration(max(0, int(time.time() - seconds_since_epoch))).split()
    return f"{number} {unit} ago"


def _date(seconds_since_epoch: float | None) -> str:
    if seconds_since_epoch is None:
        return "?"
    return datetime.fromtimestamp(seconds_since_epoch).strftime("%Y-%m-%d %H:%M:%S")


def _text(value: Any) -> str:
    return "?" if value in (None, "") else str(value)
