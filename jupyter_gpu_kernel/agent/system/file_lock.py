"""Locks of files, each held by one process as long as the descriptor is open. The system releases them at its end."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Optional


def take_lock(path: Path, create: bool = True) -> Optional[int]:
    """Return a descriptor that holds the lock of this file; None if it is held. A missing file is made, or raises
    FileNotFoundError."""
    fd = os.open(str(path), os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o600)
    if lock_now(fd):
        return fd
    os.close(fd)
    return None


def lock_now(fd: int, how: int = fcntl.LOCK_EX) -> bool:
    """Lock the file with this descriptor, unless another process holds its lock. Return whether that was done."""
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock of this file. Several processes can ask at once."""
    try:
        fd = os.open(str(path), os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not lock_now(fd, fcntl.LOCK_SH)
    finally:
        os.close(fd)
