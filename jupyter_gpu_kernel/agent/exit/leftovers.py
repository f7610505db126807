"""What kernels leave behind when nobody could clean up: folders without a keeper, and processes of kernels that
no longer exist. Only the user's own; the office asks.

A folder is stale when nobody holds its lock and nobody listens at its door: a keeper that is just starting holds
the lock from before its folder has anything in it.
"""

from __future__ import annotations

import fcntl
import os
import pwd
import re
import shutil
import socket
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

from ..keeper.client import NO_KEEPER
from ..paths import Root
from ..procfs import boot_id, booted_at
from ..story import Story, read_story
from .processes import SETUP, TAG, Process, end_all, open_gpus, serving, tagged
from .reason import ExitReason, KeeperFacts, explain_keeper, same_boot

ENDS = 2.0
"""Seconds in which a keeper that did not begin is gone."""
YOUNG = 60.0
"""Seconds for which a folder without a lock is left alone."""
_LOGIND = ("/usr/lib/systemd", "/run/systemd", "/etc/systemd")


def has_keeper(folder: Path) -> bool:
    """Whether a keeper listens in this kernel's folder, however busy it is."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as sock:
        return sock.connect_ex(str(folder / "keeper")) not in NO_KEEPER


def runs(root: Root, kernel_id: str) -> bool:
    """Whether the kernel's own process still does, and not only something that it started."""
    starts = [
        entry.get("pid") for entry in read_story(root.story(kernel_id)) if entry.get("event") == "start"
    ]
    processes = tagged(kernel_id, root=str(root.path))
    pid = starts[-1] if starts else None
    return any(process.pid == pid or not pid for process in processes)


def locked(folder: Path) -> bool:
    """Whether somebody holds the lock of this kernel's folder: its keeper, or who starts one."""
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


def clean(root: Root, kernel_id: str) -> bool:
    """Removes the kernel's folder if it is stale, and tells the story why. Whether it did."""
    return _remove(root, kernel_id, lambda: _tell(root, kernel_id))


def remove_unused(root: Root, kernel_id: str) -> None:
    """Removes the folder of a kernel that did not start, once nothing of it is left. Waits a moment for that."""
    deadline = time.monotonic() + ENDS
    while root.kernel(kernel_id).is_dir() and not _remove(root, kernel_id, lambda: None):
        if time.monotonic() > deadline:
            return  # whoever lists kernels later removes it
        time.sleep(0.02)


def _remove(root: Root, kernel_id: str, before: Callable[[], None]) -> bool:
    """Whether the folder was stale; then `before()` is called, and it is removed."""
    folder = root.kernel(kernel_id)
    if not folder.is_dir() or has_keeper(folder) or runs(root, kernel_id):
        return False
    lock = _take(folder)
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


def _take(folder: Path) -> Optional[int]:
    """The lock of the folder, or of an old one without a lock file a stand-in for it; None: somebody has it."""
    try:
        lock = os.open(str(folder / "lock"), os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return _old(folder)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        return None
    return lock


def _old(folder: Path) -> Optional[int]:
    try:
        if time.time() - folder.stat().st_mtime < YOUNG or folder.name in serving():
            return None
        return os.open(str(folder), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:  # its keeper took it away just now
        return None


def _tell(root: Root, kernel_id: str) -> None:
    """The end of the story, if it has none."""
    story = read_story(root.story(kernel_id))
    last = story[-1] if story else {}
    if last.get("event") == "end":
        return
    last = next((entry for entry in story[-4:] if entry.get("kind") == "scheduler"), last)
    starts = [entry for entry in story if entry.get("event") == "start"]
    death = explain_keeper(
        KeeperFacts(
            starts[-1] if starts else {},
            last,
            boot_id(),
            booted_at(),
            Path("/var/lib/systemd/linger", _user()).exists(),
            kills_sessions(),
        )
    )
    Story(root.story(kernel_id)).tell("end", f"the kernel ended: {death}", **death._asdict())


def end_without_story(boot: str) -> Dict[str, Any]:
    """The end, as the story would have it, of a kernel of that boot id; {} if that is not known."""
    now = boot_id()
    if not boot or not now:
        return {}
    if same_boot(boot, now):
        return ExitReason("its folder is gone", "perhaps a cleaner of temporary files took it")._asdict()
    return dict(explain_keeper(KeeperFacts({"boot": boot}, {}, now, booted_at()))._asdict())


def leftovers(root: Root) -> List[Dict[str, Any]]:
    """Own processes of kernels that no longer exist: [{pid, start, boot, command, kernel, gpus [number]}].

    What set-up lines started counts as well."""
    return [_shown(process) for process in _orphans(root)]


def end_leftovers(root: Root, wanted: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """Ends those of `wanted` (also of other nodes) that still are leftovers here; returns those that are gone then.
    Blocks a moment."""
    boot = boot_id()
    names = {(one.get("pid"), one.get("start")) for one in wanted if one.get("boot") == boot}
    found = [process for process in _orphans(root) if (process.pid, process.start) in names]
    shown = [_shown(process) for process in found]
    end_all(found)
    return [one for one, process in zip(shown, found) if not process.alive]


def _orphans(root: Root) -> List[Process]:
    """Only those whose keeper was one of ours: of others it cannot be known whether it lives."""
    ours = [process for tag in (TAG, SETUP) for process in tagged(tag=tag, root=str(root.path))]
    names = {process.kernel for process in ours}
    lives = serving() | {name for name in names if has_keeper(root.kernel(name))}
    return [process for process in ours if process.kernel not in lives]


def _shown(process: Process) -> Dict[str, Any]:
    gpus = sorted(open_gpus(process.pid))
    known = {"pid": process.pid, "start": process.start, "boot": boot_id(), "command": process.command}
    return dict(known, kernel=process.kernel, gpus=gpus)


def on_gpu(row: Dict[str, Any], leftovers: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """Those of the leftovers that are on this GPU, by nvidia-smi's list or by what they have open."""
    pids = {process.get("pid") for process in row["processes"]}
    return [one for one in leftovers if one["pid"] in pids or row["index"] in one["gpus"]]


def kills_sessions(folders: Any = _LOGIND) -> Optional[bool]:
    """logind's KillUserProcesses, the last word of its configuration; None where that says nothing."""
    value = None
    for folder in folders:
        for file in [Path(folder, "logind.conf"), *sorted(Path(folder, "logind.conf.d").glob("*.conf"))]:
            try:
                said = re.findall(
                    r"^\s*KillUserProcesses\s*=\s*(\w+)", file.read_text(errors="replace"), re.MULTILINE
                )
            except OSError:
                continue
            value = said[-1].lower() in ("yes", "true", "1", "on") if said else value
    return value


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a uid without a name
        return str(os.getuid())
