"""Removes the folders of kernels whose keeper was killed, and writes the reason into their stories.

A folder is stale if no process holds its lock or listens on its socket. A keeper that is being started holds the lock
before there is anything in its folder.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import time
from pathlib import Path
from typing import Any, Callable, Dict, Mapping, Optional, Sequence

from ..keeper.client import NO_KEEPER
from ..paths import Root
from ..procfs import boot_id, booted_at
from ..story import Story, read_story
from .node_checks import kills_sessions, user_lingers
from .processes import find_processes, kernels_with_keeper
from .reason import ExitReason, KeeperFacts, explain_keeper, same_boot

UNUSED_TIMEOUT = 2.0
"""Seconds within which a keeper that did not start has ended."""
YOUNG = 60.0
"""The age in seconds up to which a folder without a lock file is kept."""


def has_keeper(folder: Path) -> bool:
    """Return whether a keeper listens in this kernel's folder, however busy it is."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as sock:
        return sock.connect_ex(str(folder / "keeper")) not in NO_KEEPER


def is_locked(folder: Path) -> bool:
    """Return whether the folder's lock is held: by its keeper, or by a process that starts one."""
    try:
        lock = os.open(str(folder / "lock"), os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(lock)
    return False


def remove_stale(root: Root, kernel_id: str) -> bool:
    """Remove the kernel's folder if it is stale, and end its story. Returns whether it was removed."""
    return _remove(root, kernel_id, lambda: _end_story(root, kernel_id))


def remove_unused(root: Root, kernel_id: str) -> None:
    """Remove the folder of a kernel that did not start. Waits a moment for its processes to end."""
    deadline = time.monotonic() + UNUSED_TIMEOUT
    while root.kernel(kernel_id).is_dir() and not _remove(root, kernel_id, lambda: None):
        if time.monotonic() > deadline:
            return  # the next list of kernels removes it
        time.sleep(0.02)


def explain_missing_story(boot: str) -> Dict[str, Any]:
    """Return the last entry that the story would have of a kernel of this boot id; {} if that is unknown."""
    now = boot_id()
    if not boot or not now:
        return {}
    if same_boot(boot, now):
        return ExitReason("its folder is gone", "perhaps a cleaner of temporary files removed it")._asdict()
    return dict(explain_keeper(KeeperFacts({"boot": boot}, {}, now, booted_at()))._asdict())


def _remove(root: Root, kernel_id: str, before: Callable[[], None]) -> bool:
    """Remove the folder if it is stale, after calling `before`. Returns whether it was removed."""
    folder = root.kernel(kernel_id)
    if not folder.is_dir() or has_keeper(folder) or _kernel_runs(root, kernel_id):
        return False
    lock = _take_lock(folder)
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


def _kernel_runs(root: Root, kernel_id: str) -> bool:
    """Whether the kernel's own process runs, and not only processes that it has started."""
    starts = [
        entry.get("pid") for entry in read_story(root.story(kernel_id)) if entry.get("event") == "start"
    ]
    pid = starts[-1] if starts else None
    processes = find_processes(kernel_id, root=str(root.path))
    return any(process.pid == pid or not pid for process in processes)


def _take_lock(folder: Path) -> Optional[int]:
    """Take the folder's lock; None if it is held. For an old folder without a lock file, any descriptor of it."""
    try:
        lock = os.open(str(folder / "lock"), os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return _open_old(folder)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        return None
    return lock


def _open_old(folder: Path) -> Optional[int]:
    try:
        if time.time() - folder.stat().st_mtime < YOUNG or folder.name in kernels_with_keeper():
            return None
        return os.open(str(folder), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:  # its keeper has just removed it
        return None


def _end_story(root: Root, kernel_id: str) -> None:
    """Write the end of the kernel into its story, unless it is there."""
    story = read_story(root.story(kernel_id))
    if story and story[-1].get("event") == "end":
        return
    reason = explain_keeper(_keeper_facts(story))
    Story(root.story(kernel_id)).tell("end", f"the kernel ended: {reason}", **reason._asdict())


def _keeper_facts(story: Sequence[Mapping[str, Any]]) -> KeeperFacts:
    starts = [entry for entry in story if entry.get("event") == "start"]
    scheduler = [entry for entry in story[-4:] if entry.get("kind") == "scheduler"]
    last = scheduler[0] if scheduler else (story[-1] if story else {})
    return KeeperFacts(
        starts[-1] if starts else {}, last, boot_id(), booted_at(), user_lingers(), kills_sessions()
    )
