"""What the hub's process sets up for itself: its log, its limit of open files, and the protection of its memory.

The log is one rotated file, with sanitized text and a limited rate per kind of message, as messages contain names and
text of nodes and front ends, which may cause as many of them as they like.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import sys
import threading
from collections.abc import Callable
from logging.handlers import RotatingFileHandler
from pathlib import Path

from . import sanitize

MAX_SIZE = 1_000_000
"""Bytes of a file of the log; two are kept."""
BURST = 20
"""Messages of one kind within PERIOD seconds; further ones are only counted."""
PERIOD = 60.0
_MAX_KINDS = 1000
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


def write_log_to(path: Path, log: logging.Logger, clock: Callable[[], float]) -> None:
    """Make `log` and every other logger of this process write there, and uncaught exceptions of threads."""
    handler = RotatingFileHandler(path, maxBytes=MAX_SIZE, backupCount=1, delay=True, encoding="utf-8")
    handler.setFormatter(SanitizingFormatter("%(asctime)s %(levelname)s %(message)s"))
    handler.addFilter(RateLimit(clock))
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


class RateLimit(logging.Filter):
    """Passes BURST records of a kind in PERIOD seconds; the next one that passes says how many were suppressed.

    Records of a kind have the same format string and the same first argument.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__()
        self._clock = clock
        self._kinds: dict[tuple[str, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Called by the handler, which does not hold its lock."""
        first = record.args[0] if isinstance(record.args, tuple) and record.args else ""
        kind = str(record.msg)[:200], str(first)[:200]
        now = self._clock()
        if kind not in self._kinds and len(self._kinds) >= _MAX_KINDS:
            self._kinds = {one: known for one, known in self._kinds.items() if now - known[0] <= PERIOD}
        if kind not in self._kinds and len(self._kinds) >= _MAX_KINDS:
            kind = "", ""  # all further kinds together
        began, count = self._kinds.get(kind, (now, 0))
        if now - began > PERIOD:
            if count > BURST:
                record.msg = f"{record.msg} ({count - BURST} similar messages suppressed)"
            began, count = now, 0
        self._kinds[kind] = began, count + 1
        return count < BURST
