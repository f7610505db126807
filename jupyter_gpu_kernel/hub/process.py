"""What the hub's process sets up for itself: its log, its limit of open files, and the protection of its memory.

The log is one file of bounded size, with sanitized text, as messages contain names and text of nodes and front ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import sys
import threading
from logging.handlers import RotatingFileHandler
from pathlib import Path

from . import sanitize

MAX_SIZE = 1_000_000
"""Bytes of a file of the log; two are kept."""
_MAX_TRACEBACK = 60  # lines
_FILE_LIMITS = (65_536, 10_240, 4_096)
"""Limits of open files to try, the highest first: macOS refuses more than 10,240, whatever its hard limit says."""
_PR_SET_DUMPABLE = 4


def raise_limit() -> None:
    """Raise this process's limit of open files as far as the system lets us, and never lower it.

    Each kernel needs up to 30, for its ports, their guards and their clients. Shells start programs with a limit of
    1,024 (macOS: 256), which a program may raise itself.
    """
    if sys.platform == "win32":  # there is no such limit
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in _FILE_LIMITS:
        limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        if soft == resource.RLIM_INFINITY or limit <= soft:
            return
        with contextlib.suppress(ValueError, OSError):
            return resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


def keep_memory_private() -> None:
    """Protect this process, which handles passwords and keys: no core file, and on Linux no access for other processes
    of the same user."""
    if sys.platform == "win32":
        return
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


# --- the log


def write_log_to(path: Path, log: logging.Logger) -> None:
    """Make `log` and every other logger of this process write there, and uncaught exceptions of threads."""
    handler = RotatingFileHandler(path, maxBytes=MAX_SIZE, backupCount=1, delay=True, encoding="utf-8")
    handler.setFormatter(SanitizingFormatter("%(asctime)s %(levelname)s %(message)s"))
    log.handlers[:] = [handler]
    log.propagate = False
    logging.getLogger().handlers[:] = [handler]  # for asyncio and paramiko, too
    threading.excepthook = lambda fault: log.error(
        "uncaught exception on thread %s",
        fault.thread.name if fault.thread else "?",
        exc_info=fault.exc_value,
    )


class SanitizingFormatter(logging.Formatter):
    """Formats each message as one line, and keeps the last lines of a traceback."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Called by `format`."""
        record.message = sanitize.line(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: object) -> str:
        """Called by `format`."""
        return sanitize.block(super().formatException(ei), _MAX_TRACEBACK)  # type: ignore[arg-type]
