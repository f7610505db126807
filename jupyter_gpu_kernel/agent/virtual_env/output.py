"""What the program writes for the hub: lines that begin with MARK, a word and JSON."""

from __future__ import annotations

import json
import time
from typing import Any

MARK = "=== jupyter-gpu-kernel environment"
_INTERVAL = 5.0  # seconds


class Problem(Exception):
    """Why it does not work: a code, for which the hub has a remedy, and facts."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


def say(kind: str, value: Any = None) -> None:
    """Write one line of the answer. Raises OSError if nobody listens any more."""
    print(MARK, kind, json.dumps(value), flush=True)


class Step:
    """A step that may take long."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._began = self._told = time.monotonic()
        say("step", text)

    def goes_on(self) -> None:
        """Report that, every few seconds in words. Raises OSError if nobody listens any more."""
        now = time.monotonic()
        if now < self._told + _INTERVAL:
            return say("alive")
        self._told = now
        say("step", f"{self._text} ({now - self._began:.0f} s)")
