"""Leaving the terminal: runs a function in a session of its own, while the caller still hears whether it
began well."""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path
from typing import Callable

_BEGUN = b"begun"


def detach(work: Callable[[Callable[[], None]], None], log: Path) -> int:
    """Runs `work(begun)` in a new session; returns in the caller 0 once it called `begun()`, else 1 with
    its error on stderr.

    Must be called before any thread or zmq context exists. `log` takes what the detached process still
    prints.
    """
    read_fd, write_fd = os.pipe()
    if os.fork():
        os.close(write_fd)
        with os.fdopen(read_fd, "rb") as pipe:
            said = pipe.read()
        if said == _BEGUN:
            return 0
        sys.stderr.write(said.decode("utf-8", "replace") or "the keeper ended before it began\n")
        return 1
    os.setsid()
    if os.fork():
        os._exit(0)
    _run(work, write_fd, log)
    return 0


def _run(work: Callable[[Callable[[], None]], None], write_fd: int, log: Path) -> None:
    os.set_inheritable(write_fd, False)

    def begun() -> None:
        os.write(write_fd, _BEGUN)
        os.close(write_fd)

    status = 0
    try:
        _redirect(log)
        work(begun)
    except BaseException as error:
        status = 1
        try:
            os.write(write_fd, f"{type(error).__name__}: {error}\n".encode())
        except OSError:  # already begun: the log has it
            traceback.print_exc()
            sys.stderr.flush()
    os._exit(status)


def _redirect(log: Path) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    null = os.open(os.devnull, os.O_RDWR)
    out = os.open(str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for target, fd in ((0, null), (1, out), (2, out)):
        os.dup2(fd, target)
