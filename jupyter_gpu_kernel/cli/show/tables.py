"""Tables for the terminal, of lists that the hub returns. This module knows the lists' keys, and not the hub.

A table is described by its columns: the head of each, and the key of a row's value or the function that makes the cell
of a row. The hub has checked the types and the sizes of what other machines say (hub/validate.py). Here each cell
becomes one line without control characters, and is cut where it is too long; a value that is unknown is shown as “?”.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from ...errors import GpuKernelError
from ...hub.sanitize import line
from ...wire.texts import duration, node_name

_CELL, _LAST = 60, 2000  # longest cell, and longest cell of the last column, in characters
UNKNOWN = "Of some of this time it is unknown whether a cell ran; IDLE leaves that out."
Row = dict[str, Any]
Columns = Sequence[tuple[str, str | Callable[[Any], str]]]
"""The head of each column, and the key of a value of each row, or what makes the cell of a row."""


def table(columns: Columns, rows: Sequence[Any]) -> str:
    """The table of these rows."""
    lines = [[cell(row) if callable(cell) else text_of(row.get(cell)) for _, cell in columns] for row in rows]
    return grid([name for name, _ in columns], lines)


def grid(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table with columns as wide as their widest cell."""
    lines = [[*(line(cell, _CELL) for cell in row[:-1]), line(row[-1], _LAST)] for row in [heads, *rows]]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = (map(str.ljust, cells, widths) for cells in lines)
    return "\n".join("  ".join(row).rstrip() for row in padded)


# --- parts of cells


def text_of(value: Any) -> str:
    """A value as text, “?” for one that is unknown."""
    return "?" if value in (None, "") else str(value)


def date(seconds_since_epoch: float | None, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """A time in this computer's time zone, “?” if it is unknown."""
    return "?" if seconds_since_epoch is None else datetime.fromtimestamp(seconds_since_epoch).strftime(form)


def ago(seconds_since_epoch: float | None) -> str:
    """How long ago a time (in seconds since the epoch) was; "" if the time is unknown."""
    if seconds_since_epoch is None:
        return ""
    number, unit, *_ = duration(max(0, int(time.time() - seconds_since_epoch))).split()
    return f"{number} {unit} ago"


def ordinal(number: int) -> str:
    """The number of a place: "1st", "2nd", "13th"."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _node(row: Row) -> str:
    return node_name(text_of(row.get("node")), str(row.get("hop") or ""))


def _since(row: Row) -> str:
    return ago(row.get("since")) or "?"


def _user(row: Row) -> str:
    return "you" if row.get("yours") else text_of(row.get("user"))


def _notebook(row: Row) -> str:
    return text_of(row.get("notebook") or "-")


# --- GPUs


def _gpu_index(row: Row) -> str:
    index = row.get("index")
    return text_of(row.get("uuid") if index is None else index)


def _model(row: Row) -> str:
    """The GPU's name without its maker, so that the table is narrower: "RTX 3090"."""
    return text_of(row.get("name")).removeprefix("NVIDIA ").removeprefix("GeForce ") or "?"


def _use(row: Row) -> str:
    use = row.get("utilization")
    return "?" if use is None else f"{text_of(use)} %"


def _who(row: Row) -> str:
    """The users of the GPU with the memory of each process, and the user who leases it, since when."""
    users = [f"{_user(one)} ({text_of(one.get('memory_mib'))} MiB)" for one in row.get("processes", ())]
    if lease := row.get("lease"):
        since = ago(lease.get("since"))
        users.append(f"leased by {_user(lease)}" + (f" {since}" if since else ""))
    idle = ago(row.get("idle_since")).removesuffix(" ago")
    users += [f"idle for {idle}"] if idle and users else []
    users += [f"left over from kernel {text_of(one.get('kernel'))}" for one in row.get("leftovers", ())]
    return ", ".join(dict.fromkeys(users))


def _free(row: Row) -> str:
    if "error" in row:
        return f"not known: {GpuKernelError.from_json(row['error']).cause}"
    if not row.get("free"):
        return f"no: {text_of(row.get('reason'))}"
    return f"yes, but {text_of(row['warning'])}" if row.get("warning") else "yes"


_GPUS: Columns = (
    ("NODE", _node),
    ("GPU", "index"),
    ("NAME", _model),
    (
        "MEMORY MiB",
        lambda row: f"{text_of(row.get('memory_used_mib'))}/{text_of(row.get('memory_total_mib'))}",
    ),
    ("USE", _use),
    ("WHO", lambda row: _who(row) or "-"),
    ("FREE", _free),
)


def gpus(rows: Sequence[Row]) -> str:
    """GPUs, as the operations `gpus` and `probe` return them; "" if there is none.

    A node that could not be asked has one row, with the cause of its error.
    """
    return table(_GPUS, rows) if rows else ""


def _waiter(row: Row) -> str:
    passed = f"  (passed over: {text_of(row['passed'])})" if row.get("passed") else ""
    return _notebook(row) + passed


_QUEUE: Columns = (
    ("PLACE", "place"),
    ("NODE", "node"),
    ("WHO WAITS", _user),
    ("GPUS", "gpus"),
    ("SINCE", _since),
    ("PRIORITY", lambda row: text_of(row.get("priority")) if row.get("yours") else "-"),
    ("KERNEL", "id"),
    ("NOTEBOOK", _waiter),
)


def queue(rows: Sequence[Row]) -> str:
    """The kernels that wait for these GPUs, each once; "" if there is none."""
    waiting: dict[tuple[str, ...], Row] = {}
    for row in rows:
        for one in row.get("queue", ()):
            name = (_node(row), text_of(one.get("user")), text_of(one.get("id")))
            waiting.setdefault(name, {**one, "node": _node(row)})
    return table(_QUEUE, list(waiting.values())) if waiting else ""


def history(rows: Sequence[Row]) -> str:
    """GPU hours, as the operation `history` returns them: for each GPU of each kernel, each node, and in all."""
    lines = [_gpu_hours(held) for held in _grouped(rows, "hop", "node", "uuid", "kernel")]
    nodes = _grouped(rows, "hop", "node")
    totals = [(_node(one[0]), one) for one in nodes] if len(nodes) > 1 else []
    for name, held in [*totals, ("all", rows)]:
        lines.append((name, "total", "", *_hours(held), "", "", "", ""))
    heads = ("NODE", "GPU", "NAME", "HELD", "BUSY", "IDLE", "FROM", "TO", "KERNEL", "NOTEBOOK")
    return grid(heads, lines) + (f"\n{UNKNOWN}" if _sum(rows, "seconds_unknown") >= 36 else "")


def _grouped(rows: Sequence[Row], *keys: str) -> list[list[Row]]:
    """The rows that have the same values of these keys, in the order in which these appear."""
    found: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(str(row.get(key)) for key in keys), []).append(row)
    return list(found.values())


def _sum(rows: Sequence[Row], key: str) -> float:
    return sum(row.get(key) or 0.0 for row in rows)


def _hours(rows: Sequence[Row]) -> tuple[str, str, str]:
    """The time in which GPUs were held, that in which a cell ran there, and the idle share, as far as it is known."""
    held, busy = _sum(rows, "seconds_held"), _sum(rows, "seconds_busy")
    known = held - _sum(rows, "seconds_unknown")
    if known < 1:
        return (duration(held), "?", "?")
    return (duration(held), duration(busy), f"{100 * max(0.0, 1 - busy / known):.0f} %")


def _gpu_hours(rows: Sequence[Row]) -> tuple[str, ...]:
    first, last = rows[0], rows[-1]
    name = _model(first) if first.get("name") else "-"
    ended = "now" if last.get("to") is None else date(last.get("to"))
    times = (*_hours(rows), date(first.get("from")), ended)
    return (_node(first), _gpu_index(first), name, *times, text_of(first.get("kernel")), _notebook(last))


_LEFTOVERS: Columns = (
    ("NODE", "node"),
    ("PID", "pid"),
    ("KERNEL", "kernel"),
    ("GPUS", lambda row: ", ".join(map(text_of, row.get("gpus", ()))) or "-"),
    ("COMMAND", "command"),
)


def leftovers(rows: Sequence[Row]) -> str:
    """Processes that `stop --leftovers` is going to end."""
    return table(_LEFTOVERS, rows)


_PINNED_CODE: Columns = (
    ("NODE", "node"),
    ("KERNEL", "kernel"),
    ("PINNED CODE", lambda row: f"kept: {text_of(row['kept'])}" if row.get("kept") else "removed"),
    ("FOLDER", "folder"),
)


def pinned_code(rows: Sequence[Row]) -> str:
    """What `stop --leftovers` did with the pinned code of kernels that no longer exist."""
    return table(_PINNED_CODE, rows)


# --- kernels


def _state(row: Row) -> str:
    """The kernel's state, with its place in the queue and its priority: "waiting (2nd, priority 5)"."""
    place, priority = row.get("place"), row.get("priority")
    facts = [ordinal(place)] if place else []
    facts += [f"priority {priority}"] if priority else []
    facts += _job_facts(row.get("job") or {})
    return text_of(row.get("state")) + (f" ({', '.join(facts)})" if facts else "")


def _job_facts(job: Row) -> list[str]:
    """The job in which the kernel runs, or for which it waits: "job 12", "Resources", "3 h 20 min left"."""
    if not job.get("id"):
        return []
    facts = [f"job {job['id']} by {job['way']}" if job.get("way") else f"job {job['id']}"]
    if job.get("state") == "PENDING":
        return facts + ([job["reason"]] if job.get("reason") else [])
    if end := job.get("end_time"):
        facts.append(f"{duration(max(0, int(end - time.time())))} left")
    return facts


def _attached(row: Row) -> str:
    """Whether a front end of this computer, or of another one, is attached."""
    if row.get("attached"):
        return "yes"
    return f"from {text_of(row['attached_from'])}" if row.get("attached_from") else "no"


def _notebook_and_end(row: Row) -> str:
    """The notebook, and why the kernel ended."""
    return _notebook(row) + (f"  (ended: {text_of(row['cause'])})" if row.get("cause") else "")


_KERNELS: Columns = (
    ("ID", "id"),
    ("NAME", "name"),
    ("NODE", _node),
    ("STATE", _state),
    ("SINCE", _since),
    ("GPUS", lambda row: str(len(row.get("gpus", ()))) if row.get("pid") else "?"),  # no process is known yet
    ("PID", lambda row: text_of(row.get("pid") or None)),
    ("ATTACHED", _attached),
    ("NOTEBOOK", _notebook_and_end),
)


def kernels(rows: Sequence[Row]) -> str:
    """Kernels, as the operation `ps` returns them."""
    nodes = list(dict.fromkeys(map(_node, rows)))  # each node's kernels as they were, then its queue in order
    return table(_KERNELS, sorted(rows, key=lambda row: (nodes.index(_node(row)), row.get("place") or 0)))


# --- the steps of a connection, and a kernel's story

_CHECK: Columns = (
    ("", lambda row: ("ok" if row.get("checked", True) else "-") if row["ok"] else "FAILED"),
    ("HOP", lambda row: row["hop"]),
    ("STEP", "step"),
    ("TIME", lambda row: f"{row['seconds']:.2f} s"),
    ("", lambda row: str(row.get("message") or "").partition("\n")[0]),
)


def check(rows: Sequence[Row]) -> str:
    """The steps of a connection, as the operation `check` returns them."""
    return table(_CHECK, rows)


_STORY: Columns = (("TIME", lambda row: date(row.get("time"))), ("EVENT", "event"), ("", "text"))


def story(rows: Sequence[Row]) -> str:
    """The story of a kernel, as the operation `logs` returns it; with the nodes, if several report the kernel.

    Of the GPU hours, which are reported every 15 minutes, only those at the GPUs' release are shown.
    """
    rows = [row for row in rows if row.get("event") != "usage" or row.get("released")]
    several = len({str(row.get("hop")) for row in rows}) > 1
    return table((("NODE", "hop"), *_STORY) if several else _STORY, rows)
