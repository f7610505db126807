"""Which boot of the node this is, and since when. A container's counts as one of its own."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

from .processes import start_of


def boot_id() -> str:
    """Another one after every boot, of a container too (its first process's start says so); "" where there is none."""
    try:
        machine = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
    return f"{machine}/{start_of(1)}"


def same_boot(before: str, now: str) -> bool:
    """Whether two boot ids are of one boot; older agents' have the machine's part alone."""
    return f"{now}/".startswith(f"{before}/")


def booted() -> str:
    """When that was: "at 12:00 on 2030-01-31"; "" if it is not known."""
    try:
        found = re.search(r"^btime (\d+)$", Path("/proc/stat").read_text(), re.MULTILINE)
    except OSError:
        return ""
    if not found:
        return ""
    first = start_of(1) / os.sysconf("SC_CLK_TCK")  # a container's is later
    return time.strftime("at %H:%M on %Y-%m-%d", time.localtime(int(found[1]) + first))
