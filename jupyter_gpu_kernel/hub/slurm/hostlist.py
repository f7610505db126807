"""Slurm's lists of hosts: "gpu[1-2,5],login" → the names. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

MOST = 4096
"""Hosts of one list that are read."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,250}")
_PART = re.compile(r"([^,\[\]]*)(?:\[([0-9,-]+)\])?([^,\[\]]*)(?:\[([0-9,-]+)\])?([^,\[\]]*)(?:,|$)")
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")


def expand(text: str) -> tuple[str, ...]:
    """Return the names in a list, at most MOST; () if it is none: "", "(null)", "n/a"."""
    names: list[str] = []
    at = 0
    while at < len(text):
        match = _PART.match(text, at)
        if match is None or match.end() == at:
            return ()
        before, first, middle, second, after = match.groups()
        for one in _numbers(first):
            for two in _numbers(second):
                names.append(f"{before}{one}{middle}{two}{after}")
                if len(names) == MOST:
                    return tuple(names)
        at = match.end()
    return tuple(names) if all(map(is_host, names)) and names != ["n/a"] else ()


def is_host(name: str) -> bool:
    """Whether this can be the name of a host: it becomes an argument of ssh."""
    return _NAME.fullmatch(name) is not None


def _numbers(ranges: str | None) -> Iterator[str]:
    if ranges is None:
        yield ""
        return
    for one in ranges.split(","):
        if match := _RANGE.fullmatch(one):
            first, last = match[1], match[2] or match[1]
            for number in range(int(first), min(int(last), int(first) + MOST) + 1):
                yield str(number).zfill(len(first))
