"""The record of an environment of ours, the lock on one that is being made, and who uses one.

An environment is ours, and complete, if its RECORD says so: a file with a checksum, which names the environment's own
path, so that a copy of it proves nothing. While it is made, UNFINISHED is there: whoever makes it holds the lock on
this file. What is unfinished and not locked is begun anew.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, BinaryIO, Dict, List, Optional

from .output import Problem

RECORD = "jupyter-gpu-kernel-environment.json"
UNFINISHED = ".jupyter-gpu-kernel-unfinished"
MIB = 1 << 20
_PATIENCE = 10.0  # seconds for a process to end that was told to
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)


def read_record(path: Path) -> Optional[Dict[str, Any]]:
    """Return the environment's record; None if it is not ours, or not complete."""
    try:
        if os.lstat(str(path)).st_uid != os.getuid() or path.is_symlink():
            return None
        record = json.loads((path / RECORD).read_text("utf-8"))
        valid = record["path"] == str(path) and record.pop("sum") == _digest(record)
        return record if valid else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def write_record(path: Path, record: Dict[str, Any]) -> None:
    new = path / (RECORD + ".new")
    with open(str(new), "w", encoding="utf-8") as file:
        json.dump({**record, "sum": _digest(json.loads(json.dumps(record)))}, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(str(new), str(path / RECORD))


def _digest(record: Dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def state_of(path: Path) -> str:
    """Return "new", "ours", "broken" (ours, but its Python does not start), "elsewhere" (the same, but it was made on
    another node, where it may start), "unfinished", "busy" or "foreign"."""
    if not os.path.lexists(str(path)):
        return "new"
    if path.is_symlink() or not path.is_dir() or path.stat().st_uid != os.getuid():
        return "foreign"
    if (path / UNFINISHED).exists():
        with contextlib.suppress(Problem):
            lock(path, create=False).close()
            return "unfinished"
        return "busy"
    record = read_record(path)
    if record is not None:
        if starts(path / "bin" / "python"):
            return "ours"
        return "broken" if record.get("node") == os.uname().nodename else "elsewhere"
    return "foreign" if any(path.iterdir()) else "new"


def starts(python: Path) -> bool:
    command = [str(python), "-I", "-c", "import ipykernel, zmq"]
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)
        return done.returncode == 0
    return False


def lock(path: Path, create: bool) -> BinaryIO:
    """Return the open and locked file UNFINISHED. Raises Problem if another process has the lock."""
    busy = Problem("busy", f"{path} is being made by another process")
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
    name = str(path / UNFINISHED)
    new = False
    try:
        if create:
            with contextlib.suppress(FileExistsError):
                os.close(os.open(name, flags | os.O_CREAT | os.O_EXCL, 0o600))
                new = True
        file = os.fdopen(os.open(name, flags), "r+b")
    except FileNotFoundError:
        raise busy from None  # it was finished or removed in this moment
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        here = os.stat(name)
        if not os.path.samestat(here, os.fstat(file.fileno())):
            raise busy
    except OSError as error:
        if new and error.errno in _NO_LOCKS:
            return file  # without locks, whoever creates the file is the one
        file.close()
        raise busy from None
    except Problem:
        file.close()
        raise
    return file


def write_maker(held: BinaryIO, request_id: str) -> None:
    """Note in the locked file who makes the environment."""
    maker = {"id": request_id, "pid": os.getpid(), "node": os.uname().nodename}
    held.truncate()
    held.write(json.dumps(maker).encode())
    held.flush()


def end_earlier_try(path: Path, request_id: str) -> None:
    """End the process that makes the environment for the same request, over a connection that was lost."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        maker = json.loads((path / UNFINISHED).read_text("utf-8"))
        if maker["id"] == request_id and maker["node"] == os.uname().nodename:
            os.kill(int(maker["pid"]), signal.SIGTERM)
            until = time.monotonic() + _PATIENCE
            while (path / UNFINISHED).exists() and time.monotonic() < until:
                time.sleep(0.1)


def used_mib(path: Path) -> int:
    total = 0
    for folder, _, files in os.walk(str(path)):
        for name in [*files, "."]:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(folder, name)).st_blocks * 512
    return -(-total // MIB)


def users(path: Path) -> List[Dict[str, Any]]:
    """Return the user's processes on this node that were started with the environment's programs."""
    found = []
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError, ValueError):
            if os.stat(f"/proc/{entry}").st_uid != os.getuid() or int(entry) == os.getpid():
                continue
            with open(f"/proc/{entry}/cmdline", "rb") as file:
                words = file.read(8192).decode("utf-8", "replace").split("\0")
            if words[0].startswith(f"{path}/"):
                kernel = words[words.index("serve") + 1] if "serve" in words[:-1] else ""
                found.append({"pid": int(entry), "kernel": kernel, "command": " ".join(words)[:200]})
    return sorted(found, key=lambda one: (not one["kernel"], one["pid"]))
