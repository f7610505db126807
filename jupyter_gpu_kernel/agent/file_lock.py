"""Locks of files, each held by one process as long as the descriptor is open. The system releases them at its end."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Optional


def take_lock(path: Path) -> Optional[int]:
    """Return a descriptor that holds the lock of this file, which is made if it is missing; None if it is held."""
    fd = os.open(str(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        return None
    return fd


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock of this file. Several processes can ask at once."""
    try:
        fd = os.open(str(path), os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False
