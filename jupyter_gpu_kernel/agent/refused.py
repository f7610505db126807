"""The error of a request of a hub that is not served. The local side has a remedy for each code (`errors.py`)."""

from __future__ import annotations


class Refused(Exception):
    """A request that cannot be served; `code` is one word for programs."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code
