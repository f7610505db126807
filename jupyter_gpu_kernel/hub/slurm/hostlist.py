"""The names of hosts in Slurm's lists, as far as they can be names. Pure."""

from __future__ import annotations

import re

from ...wire import hostlist

MOST = 4096
"""Hosts of one list that are read."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,250}")


def expand(text: str, most: int = MOST) -> tuple[str, ...]:
    """Return the names in a list, at most `most`; () if it is none: "", "(null)", "n/a"."""
    try:
        names = tuple(hostlist.expand(text, most))
    except ValueError:
        return ()
    return names if all(map(is_host, names)) and names != ("n/a",) else ()


def is_host(name: str) -> bool:
    """Whether this can be the name of a host: it becomes an argument of ssh."""
    return _NAME.fullmatch(name) is not None
