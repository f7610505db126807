"""The machines that the user's ssh configuration names, so that they can be offered; nothing else of it is shown."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from ....errors import RouteError
from . import ssh_config
from .destination import Destination, parse_destination
from .directives import first
from .route import config_jumps

MAX_HOSTS = 300
_MAX_FILES = 100
_AT_ONCE = 8  # programs ssh, each of which takes some milliseconds
_PATIENCE = 5.0  # seconds for all of them
_PATTERN = re.compile(r"[*?!]")


def hosts(config: str = "") -> list[dict[str, Any]]:
    """Return [{"name", "user", "port", "jumps"}] of the names in `Host` lines of ~/.ssh/config (or `config`), and of
    the files that it includes, in their order; patterns are left out. The values are those that ssh finds for a name.

    A name that ssh cannot look up is left out. This may take some seconds, since it runs ssh for each name; "port" is
    None for those that take longer, since `Match exec` may run any program.
    """
    file = Path(config) if config else Path.home() / ".ssh" / "config"
    names = list(dict.fromkeys(itertools.islice(_names(file, set()), 10 * MAX_HOSTS)))
    pool = ThreadPoolExecutor(_AT_ONCE)
    found = {name: pool.submit(_host, name, config or None) for name in names[:MAX_HOSTS]}
    done, _ = wait(found.values(), _PATIENCE)
    pool.shutdown(wait=False, cancel_futures=True)
    unknown: dict[str, Any] = {"user": "", "port": None, "jumps": []}
    rows = [one.result() if one in done else {"name": name, **unknown} for name, one in found.items()]
    return [row for row in rows if row is not None]


def _names(file: Path, seen: set[Path]) -> Iterator[str]:
    """Yield the names in this file, and in files that it includes, also if only for some hosts."""
    if file in seen or len(seen) >= _MAX_FILES:
        return
    seen.add(file)
    with contextlib.suppress(OSError):  # it cannot be read, so ssh cannot either
        for keyword, words in ssh_config.parsed_lines(file):
            if keyword == "include":
                for included in ssh_config.included_files(words, file):
                    yield from _names(included, seen)
            elif keyword == "host":
                yield from (word for word in words if not _PATTERN.search(word))


def _host(name: str, config: str | None) -> dict[str, Any] | None:
    try:
        parse_destination(name)
        values = ssh_config.lookup(Destination(name, name, config=config))
    except RouteError:
        return None
    port = first(values, "port")
    return {
        "name": name,
        "user": first(values, "user"),
        "port": int(port) if port.isdecimal() else 22,
        "jumps": [jump for jump in config_jumps(values) if jump != "none"],
    }
