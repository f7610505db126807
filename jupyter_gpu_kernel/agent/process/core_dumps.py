"""Core files: a keeper leaves none, as it holds its kernel's key and environment; its kernel may, as its user wants."""

from __future__ import annotations

import contextlib
import resource
from typing import Iterator, List, Tuple

_before: List[Tuple[int, int]] = []


def forbid() -> None:
    """This process writes no core file from now on."""
    if not _before:
        _before.append(resource.getrlimit(resource.RLIMIT_CORE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, _before[0][1]))


@contextlib.contextmanager
def as_before() -> Iterator[None]:
    """A process that is started in here has the limit from before `forbid`."""
    if not _before:
        yield
        return
    resource.setrlimit(resource.RLIMIT_CORE, _before[0])
    try:
        yield
    finally:
        forbid()
