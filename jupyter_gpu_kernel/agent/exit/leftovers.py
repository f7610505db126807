"""Finds and removes what kernels that no longer exist have left: their processes, and folders whose keeper was killed.

A folder is stale if no process holds its lock or listens on its socket. A keeper that is being started holds the lock
before there is anything in its folder. The reason of the keeper's end is written into the story.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

from ..paths import Root, is_locked, take_lock
from ..story import Story, read_story
from ..system.agent_runtime import AgentRuntime, has_listener
from ..system.procfs import boot_id, booted_at
from .descendants import SETUP, TAG, Descendant, end_all, find_descendants, kernels_with_keeper, open_gpus
from .node_checks import kills_sessions, user_lingers
from .reason import ExitReason, KeeperFacts, explain_keeper

UNUSED_TIMEOUT = 2.0
"""Seconds within which a keeper that did not start has ended."""


class Leftovers:
    """What kernels whose folders are, or were, in `root` have left on this node."""

    def __init__(self, runtime: AgentRuntime, root: Root) -> None:
        self._runtime = runtime
        self._root = root

    # -------------------------------------------------------------------------------------- processes

    def list_processes(self) -> List[Dict[str, Any]]:
        """Return the leftover processes on this node: [{pid, start, boot, command, kernel, gpus [number]}].

        What set-up lines started counts as well.
        """
        return [_to_json(process) for process in self._find()]

    def end_processes(self, rows: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
        """End the processes of these rows, as far as they are leftovers on this node. Blocks for some seconds.

        Returns the rows of those that have ended.
        """
        boot = boot_id()
        wanted = {(row.get("pid"), row.get("start")) for row in rows if row.get("boot") == boot}
        found = [process for process in self._find() if (process.pid, process.start) in wanted]
        ended = [_to_json(process) for process in found]
        end_all(self._runtime, found)
        return [row for row, process in zip(ended, found) if not process.alive]

    def _find(self) -> List[Descendant]:
        """Only processes of kernels of this agent's folder: of others we do not know whether their keeper lives."""
        folder = str(self._root.path)
        found = [process for tag in (TAG, SETUP) for process in find_descendants(tag=tag, root=folder)]
        kernels = {process.kernel for process in found}
        served = {kernel for kernel in kernels if has_keeper(self._root.kernel(kernel))}
        living = kernels_with_keeper() | served
        return [process for process in found if process.kernel not in living]

    # -------------------------------------------------------------------------------------- folders

    def is_gone(self, kernel_id: str) -> bool:
        """Return whether the kernel and its keeper have ended, and none is being started."""
        folder = self._root.kernel(kernel_id)
        return not (has_keeper(folder) or is_being_served(folder) or self.kernel_runs(kernel_id))

    def kernel_runs(self, kernel_id: str) -> bool:
        """Whether the kernel's own process runs, and not only processes that it has started."""
        story = read_story(self._root.story(kernel_id))
        starts = [entry.get("pid") for entry in story if entry.get("event") == "start"]
        pid = starts[-1] if starts else None
        processes = find_descendants(kernel_id, root=str(self._root.path))
        return any(process.pid == pid or not pid for process in processes)

    def remove_stale(self, kernel_id: str) -> bool:
        """Remove the kernel's folder if it is stale, and end its story. Returns whether it was removed."""
        return self._remove(kernel_id, lambda: self._end_story(kernel_id))

    def remove_unused(self, kernel_id: str) -> None:
        """Remove the folder of a kernel that did not start. Waits a moment for its processes to end."""
        folder = self._root.kernel(kernel_id)
        # If the processes do not end in time, the next list of kernels removes the folder.
        self._runtime.wait_until(
            lambda: not folder.is_dir() or self._remove(kernel_id, lambda: None), UNUSED_TIMEOUT
        )

    def _remove(self, kernel_id: str, before: Callable[[], None]) -> bool:
        """Remove the folder if it is stale, after calling `before`. Returns whether it was removed."""
        folder = self._root.kernel(kernel_id)
        if not folder.is_dir() or has_keeper(folder) or self.kernel_runs(kernel_id):
            return False
        lock = self._take_lock(folder)
        if lock is None:
            return False
        try:
            if has_keeper(folder):
                return False
            before()
            shutil.rmtree(str(folder), ignore_errors=True)
            return True
        finally:
            os.close(lock)

    def _take_lock(self, folder: Path) -> Optional[int]:
        """Take the folder's lock; None if it is held."""
        try:
            return take_lock(folder / "lock")
        except OSError:  # such as without inodes: the folder stays, and the other kernels are listed
            return None

    def _end_story(self, kernel_id: str) -> None:
        """Write the end of the kernel into its story, unless it is there. A kernel without a story was not started: an
        `attach` has made its folder, and has not locked it yet."""
        path = self._root.story(kernel_id)
        story = read_story(path)
        if not story or story[-1].get("event") == "end":
            return
        reason = explain_keeper(_keeper_facts(story))
        Story(path, self._runtime.time).tell("end", f"the kernel ended: {reason}", **reason._asdict())


def has_keeper(folder: Path) -> bool:
    """Return whether a keeper listens in this kernel's folder, however busy it is."""
    return has_listener(folder / "keeper")


def is_being_served(folder: Path) -> bool:
    """Return whether the folder's lock is held: by its keeper, or by a process that starts one."""
    return is_locked(folder / "lock")


def on_gpu(gpu: Dict[str, Any], rows: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """Return the leftover processes that use this GPU, according to nvidia-smi or to their open files."""
    pids = {process.get("pid") for process in gpu["processes"]}
    return [row for row in rows if row["pid"] in pids or gpu["index"] in row["gpus"]]


def explain_missing_story(boot: str) -> Dict[str, Any]:
    """Return the last entry that the story would have of a kernel of this boot id; {} if that is unknown."""
    now = boot_id()
    if not boot or not now:
        return {}
    if boot == now:
        return ExitReason("its folder is gone", "perhaps a cleaner of temporary files removed it")._asdict()
    return dict(explain_keeper(KeeperFacts({"boot": boot}, {}, now, booted_at()))._asdict())


def _to_json(process: Descendant) -> Dict[str, Any]:
    return {
        "pid": process.pid,
        "start": process.start,
        "boot": boot_id(),
        "command": process.command,
        "kernel": process.kernel,
        "gpus": sorted(open_gpus(process.pid)),
    }


def _keeper_facts(story: Sequence[Mapping[str, Any]]) -> KeeperFacts:
    starts = [entry for entry in story if entry.get("event") == "start"]
    scheduler = [entry for entry in story[-4:] if entry.get("kind") == "scheduler"]
    last = scheduler[0] if scheduler else (story[-1] if story else {})
    ends = [f"{entry.get('job')} ended: {entry['why']}" for entry in story[-6:] if entry.get("why")]
    return KeeperFacts(
        starts[-1] if starts else {}, last, boot_id(), booted_at(), user_lingers(), kills_sessions(),
        ends[-1] if ends else "",
    )  # fmt: skip
