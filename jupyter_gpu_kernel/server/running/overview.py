"""`GET overview`: everything that the panel shows, and its rows, which are made from the answers of the hub.

Several pages share one request to the hub, and its answer."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ... import kernelspecs
from ...kernelspecs import Kernelspec
from ...program import command
from ...provisioner import RemoteGPUProvisioner
from ...wire.runtime import Runtime
from ..api import Handler, hub_client, route, shown_node, with_command
from .gpu_use import GpuHistory, processes

Row = dict[str, Any]
_LATE = 10.0
"""Seconds without an answer until a node that is connected, or was never, is said to have a problem."""
_ERROR = ("cause", "remedy")
_OF_LINK = ("link", "round_trip_ms", "away_since")
_FRESH = 2.0
"""Seconds for which an answer serves other pages, too."""
_PATIENCE = 2.0
"""Seconds for which the hub waits for each node; then it returns the node's last reply, or that it is late."""
_TIMEOUT = 60.0


class Overview:
    """Asks the hub when a page asks, and at no other time."""

    def __init__(self, runtime: Runtime, kernel_manager: Any, root: str) -> None:
        """`kernel_manager`: of the server; `root`: the folder of its notebooks, "" if there is none on this machine."""
        self._runtime = runtime
        self._kernel_manager = kernel_manager
        self._root = root
        self._history = GpuHistory()
        self._asking: asyncio.Task[dict[str, Any]] | None = None
        self._answered_at = 0.0

    async def get(self) -> dict[str, Any]:
        """Return {time, nodes, kernels}. Raises GpuKernelError if the hub cannot be asked."""
        if self._asking is None or (self._asking.done() and self._is_old):
            self._asking = asyncio.create_task(self._ask())
        return await asyncio.shield(self._asking)  # another page may wait for it, too

    async def kernel(self, kernel_id: str) -> dict[str, Any] | None:
        """Return a new row of this kernel; None if no node that answers has it."""
        self.outdated()
        rows = (await self.get())["kernels"]
        return next((row for row in rows if row["id"] == kernel_id), None)

    def outdated(self) -> None:
        """Something has just been changed: the next page gets a new answer, and not one that is on its way already."""
        self._asking = None

    @property
    def _is_old(self) -> bool:
        assert self._asking is not None, "there is an answer"
        return self._asking.exception() is not None or self._runtime.monotonic() - self._answered_at > _FRESH

    async def _ask(self) -> dict[str, Any]:
        specs: list[Kernelspec] = await asyncio.to_thread(kernelspecs.find_all)
        answers = await _ask_hub(specs) if specs else {op: [] for op in ("nodes", "gpus", "ps", "kernels")}
        now, program = self._runtime.time(), command()
        served = served_ids(self._kernel_manager, answers["kernels"])
        kernels = await asyncio.to_thread(kernel_rows, answers["ps"], answers["kernels"], served, self._root)
        self._history.add(now, answers["gpus"])
        nodes = node_rows(specs, answers, kernels, self._history)
        self._answered_at = self._runtime.monotonic()
        return {
            "time": now,
            "nodes": [with_command(one, program) for one in nodes],
            "kernels": [with_command(one, program) for one in kernels],
        }


async def _ask_hub(specs: list[Kernelspec]) -> dict[str, list[dict[str, Any]]]:
    """Return the answer to each operation. Nobody is asked for a password."""
    arguments = [spec.for_hub for spec in specs]
    async with hub_client() as hub:
        gpus, ps = await asyncio.gather(
            *(hub.acall(op, specs=arguments, patience=_PATIENCE, timeout=_TIMEOUT) for op in ("gpus", "ps"))
        )
        nodes = await hub.acall("nodes", specs=arguments, timeout=_TIMEOUT)
        attached = await hub.acall("kernels", timeout=_TIMEOUT)
    return {"gpus": gpus, "ps": ps, "nodes": nodes, "kernels": attached}


def served_ids(kernel_manager: Any, attached: Iterable[dict[str, Any]]) -> dict[str, str]:
    """Return Jupyter's id of each remote kernel that this server has, by our id. `attached`: the hub's rows of the
    kernels of front ends on this machine.

    A kernel that the provisioner serves is known to it; one whose kernelspec has argv alone, to the hub.
    """
    known = set(kernel_manager.list_kernel_ids())
    by_hub = {one["id"]: one["kernel_id"] for one in attached if one.get("kernel_id")}
    by_id = {**by_hub, **RemoteGPUProvisioner.served()}
    return {ours: theirs for ours, theirs in by_id.items() if theirs in known}


@route("GET", "overview")
async def overview(handler: Handler) -> dict[str, Any]:
    """All nodes of this machine's kernelspecs with their GPUs, and the user's kernels: {time, nodes, kernels}.

    It may start the hub, and connects to nodes where that needs no answer of the user. Of a node that is slow, the
    overview has the last answer if that is recent, else a note that the node is late.
    """
    return await handler.state.overview.get()


# --- the rows of kernels


def kernel_rows(
    listed: Iterable[Row], attached: Iterable[Row], served: Mapping[str, str], root: str
) -> list[Row]:
    """Return the rows of `ps`, each with what the hub knows of the kernel, and this server.

    `attached`: the kernels of front ends on this machine; `served`: Jupyter's id of each kernel that this server has,
    by ours; `root`: the folder of its notebooks. Looks at files.
    """
    by_id = {one["id"]: one for one in attached}  # of a kernel in a job, whose node may have two names
    by_node = {(one["hop"], one["id"]): one for one in attached}
    rows = [row for row in listed if "id" in row]
    return [
        _kernel(row, by_node.get((row.get("hop"), row["id"])) or by_id.get(row["id"], {}), served, root)
        for row in rows
    ]


def _kernel(row: Row, known: Row, served: Mapping[str, str], root: str) -> Row:
    error = known.get("error") or {}
    return {
        "name": "",
        "gpus": [],
        **dict.fromkeys((*_OF_LINK, "busy_since", "ends_at", "problem", "cause", "remedy")),
        **{key: known[key] for key in _OF_LINK if key in known},
        **{key: error[key] for key in _ERROR if error},
        **row,
        "node": shown_node(row),
        "kernel_id": served.get(row["id"]),
        "path": relative_path(str(row.get("notebook") or ""), root),
        "error": error or None,
    }


def relative_path(notebook: str, root: str) -> str | None:
    """Return the path of a notebook relative to the server's root, with “/”; None if it is not there.

    Other paths are not looked at: a node may have chosen them, and to look at one can mean to sign in to a file server.
    """
    if not notebook or not root or not os.path.isabs(notebook):
        return None
    lexical, real_root = Path(os.path.normpath(notebook)), os.path.realpath(root)
    is_below = any(lexical.is_relative_to(each) for each in (os.path.normpath(root), real_root))
    if not is_below or not os.path.isfile(lexical):
        return None
    try:
        return Path(os.path.realpath(lexical)).relative_to(real_root).as_posix()
    except ValueError:
        return None


# --- the rows of nodes


def node_rows(
    specs: Iterable[Kernelspec], answers: dict[str, list[Row]], kernels: Iterable[Row], history: GpuHistory
) -> list[Row]:
    """Return a row for each node to which a kernelspec leads, and for each other one that has answered."""
    titles = {spec.name: spec.display_name for spec in specs}
    holders = _holders(kernels)
    nodes: dict[str, Row] = {}
    for known in answers["nodes"]:
        node = nodes.setdefault(known["node"], _node(known))
        node["names"] += [name for name in known["names"] if name not in node["names"]]
    for row in answers["gpus"]:
        name = row.get("hop") or row["node"]
        node = nodes.setdefault(name, _node({"node": name, "connected": True, "state": "up"}))
        _add(node, row, holders, history)
    for row in answers["ps"]:
        if "error" in row and "id" not in row and row["node"] in nodes:
            _add_problem(nodes[row["node"]], row)
    for node in nodes.values():
        node["display_names"] = [titles.get(name, name) for name in node["names"]]
        if node["problem"] and node["state"] == "connecting":
            node["state"] = "failed"
    return list(nodes.values())


def _node(known: Row) -> Row:
    return {
        "node": known["node"],
        "names": [],
        "display_names": [],
        "connected": known["connected"],
        "state": known["state"],
        "problem": known.get("problem"),
        "gpus": [],
        "queue": [],
        "cluster": None,
    }


def _holders(kernels: Iterable[Row]) -> dict[str, set[tuple[str, str, bool]]]:
    """Return the user's kernels that have each GPU, as their nodes report: {uuid: {(node, id, whether in a job)}}."""
    holders: dict[str, set[tuple[str, str, bool]]] = {}
    for one in kernels:
        for uuid in one.get("gpus") or ():
            holders.setdefault(uuid, set()).add((one.get("hop", ""), one["id"], bool(one.get("job"))))
    return holders


def _add(node: Row, row: Row, holders: dict[str, set[tuple[str, str, bool]]], history: GpuHistory) -> None:
    """Add a row of `gpus` to its node."""
    if "error" in row:
        return _add_problem(node, row)
    if "slurm" in row:
        node |= {"cluster": row["slurm"], "state": "up"}  # nothing of ours runs there, and so it has no link
        return
    waiting = {(one["place"], one["id"]) for one in node["queue"]}
    node["queue"] += [_waiter(one) for one in row["queue"] if (one["place"], one["id"]) not in waiting]
    gpu = {key: value for key, value in row.items() if key != "queue"}
    having, leased_by = holders.get(row["uuid"], set()), (row.get("lease") or {}).get("id")
    # Not what another node claims; but the node of a job may have another name, and its GPU is known not to be free.
    in_use = row.get("free") is False and not row.get("lease")
    holding = sorted(one for hop, one, in_job in having if hop == row.get("hop", "") or (in_job and in_use))
    kernel = leased_by if leased_by in {one for _, one, _ in having} else next(iter(holding), None)
    node["gpus"].append({**gpu, "processes": processes(row), "history": history.of(row), "kernel": kernel})


def _add_problem(node: Row, row: Row) -> None:
    """Take the first error of a node. One that has not had the time to answer is connecting."""
    if row.get("late") is not None and row["late"] < _LATE and not node["problem"]:
        node["state"] = "connecting"
        return
    node["problem"] = node["problem"] or row["error"]


def _waiter(row: Row) -> Row:
    return {
        "user": row["user"],
        "count": row["gpus"],
        "since": row["since"],
        "priority": row["priority"] if row["yours"] else None,
        "id": row["id"],
        "notebook": row["notebook"],
        "mine": row["yours"],
        "place": row["place"],
    }
