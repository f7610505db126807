"""Files that only this user can read, written as a whole."""

from __future__ import annotations

import contextlib
import os
import threading
from typing import Union

Path = Union[str, "os.PathLike[str]"]


def private(path: str, flags: int) -> int:
    """Open a file: the `opener` for `open`. A new file is readable by its owner only."""
    return os.open(path, flags, 0o600)


def create_file(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Write a file that must not exist yet. Raises OSError, and leaves no file then."""
    fd = os.open(os.fspath(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with open(fd, "wb") as file:
            file.write(data)
    except OSError:
        os.unlink(os.fspath(path))
        raise


def replace_file(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Write a file. Whoever reads it meanwhile, or after a crash, finds the old content or the new. Raises OSError."""
    folder, name = os.path.split(os.fspath(path))
    new = os.path.join(folder, f".{os.getpid()}-{threading.get_ident()}.{name}")
    with contextlib.suppress(FileNotFoundError):  # of a process with the same id that was killed
        os.unlink(new)
    create_file(new, data, mode)
    try:
        os.replace(new, os.fspath(path))
    except OSError:
        os.unlink(new)
        raise
