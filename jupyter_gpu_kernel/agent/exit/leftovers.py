"""Leftover processes: those of the user's kernels that no longer exist."""

from __future__ import annotations

from typing import Any, Dict, List

from ..paths import Root
from ..procfs import boot_id
from .processes import SETUP, TAG, Process, end_all, find_processes, kernels_with_keeper, open_gpus
from .stale_folders import has_keeper


def list_leftovers(root: Root) -> List[Dict[str, Any]]:
    """Return the leftover processes on this node: [{pid, start, boot, command, kernel, gpus [number]}].

    What set-up lines started counts as well.
    """
    return [_to_json(process) for process in _find(root)]


def end_leftovers(root: Root, rows: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """End the processes of these rows, as far as they are leftovers on this node. Blocks for some seconds.

    Returns the rows of those that have ended.
    """
    boot = boot_id()
    wanted = {(row.get("pid"), row.get("start")) for row in rows if row.get("boot") == boot}
    found = [process for process in _find(root) if (process.pid, process.start) in wanted]
    ended = [_to_json(process) for process in found]
    end_all(found)
    return [row for row, process in zip(ended, found) if not process.alive]


def leftovers_on_gpu(gpu: Dict[str, Any], leftovers: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """Return the leftovers that use this GPU, according to nvidia-smi or to their open files."""
    pids = {process.get("pid") for process in gpu["processes"]}
    return [row for row in leftovers if row["pid"] in pids or gpu["index"] in row["gpus"]]


def _find(root: Root) -> List[Process]:
    """Only processes of kernels of this agent's folder: of others we do not know whether their keeper lives."""
    processes = [process for tag in (TAG, SETUP) for process in find_processes(tag=tag, root=str(root.path))]
    kernels = {process.kernel for process in processes}
    living = kernels_with_keeper() | {kernel for kernel in kernels if has_keeper(root.kernel(kernel))}
    return [process for process in processes if process.kernel not in living]


def _to_json(process: Process) -> Dict[str, Any]:
    return {
        "pid": process.pid,
        "start": process.start,
        "boot": boot_id(),
        "command": process.command,
        "kernel": process.kernel,
        "gpus": sorted(open_gpus(process.pid)),
    }
