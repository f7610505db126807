"""The hub's log: one rotated file, with sanitized text and a limited rate per kind of message.

Messages contain names and text of nodes and front ends, which may cause as many of them as they like.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from logging.handlers import RotatingFileHandler
from pathlib import Path

from . import sanitize

MAX_SIZE = 1_000_000
"""Bytes of a file; two are kept."""
BURST = 20
"""Messages of one kind within PERIOD seconds; further ones are only counted."""
PERIOD = 60.0
_MAX_KINDS = 1000
_MAX_TRACEBACK = 60  # lines


def write_to(path: Path, log: logging.Logger, clock: Callable[[], float]) -> None:
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
