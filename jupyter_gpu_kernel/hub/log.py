"""The hub's log: one file that is rotated, lines that are inert, and not too many of a kind.

Names and texts in it come from nodes and front ends, which may send as many faults as they like.
"""

from __future__ import annotations

import logging
import threading
import time
from logging.handlers import RotatingFileHandler
from pathlib import Path

from . import inert

SIZE = 1_000_000
"""Bytes of a file; there are two."""
BURST = 20
"""Lines of one kind within PERIOD seconds; those beyond are counted."""
PERIOD = 60.0
KINDS = 1000
_TRACEBACK = 60  # lines


def write_to(path: Path, log: logging.Logger) -> None:
    """`log` and every other logger of this process, also of faults on threads, write there."""
    handler = RotatingFileHandler(path, maxBytes=SIZE, backupCount=1, delay=True, encoding="utf-8")
    handler.setFormatter(Inert("%(asctime)s %(levelname)s %(message)s"))
    handler.addFilter(Rate())
    log.handlers[:] = [handler]
    log.propagate = False
    logging.getLogger().handlers[:] = [handler]  # asyncio's and paramiko's faults, too
    threading.excepthook = lambda fault: log.error(
        "a fault on thread %s", fault.thread.name if fault.thread else "?", exc_info=fault.exc_value
    )


class Inert(logging.Formatter):
    """Each record's message is one line; of a traceback the last lines are kept."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Called by `format`."""
        record.message = inert.line(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: object) -> str:
        """Called by `format`."""
        return inert.block(super().formatException(ei), _TRACEBACK)  # type: ignore[arg-type]


class Rate(logging.Filter):
    """Passes BURST records of a kind in PERIOD seconds; the next one that passes says how many did not.

    A kind is the text in the source, and whom it is about: its first argument.
    """

    def __init__(self) -> None:
        super().__init__()
        self._kinds: dict[tuple[str, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Called by the handler, which holds its lock only when it writes."""
        first = record.args[0] if isinstance(record.args, tuple) and record.args else ""
        kind = str(record.msg)[:200], str(first)[:200]
        if kind not in self._kinds and len(self._kinds) >= KINDS:
            kind = "", ""  # of which there are too many
        now = time.monotonic()
        began, count = self._kinds.get(kind, (now, 0))
        if now - began > PERIOD:
            if count > BURST:
                record.msg = f"{record.msg} (and {count - BURST} such lines before)"
            began, count = now, 0
        self._kinds[kind] = began, count + 1
        return count < BURST
