"""What `add --hosts` makes of the probes of several hosts: which failed, and the Python that all have. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...adding import common_python, working_hosts
from ...errors import GpuKernelError
from ...wire.texts import printable


def hosts_result(probes: list[dict[str, Any]], result: Callable[[dict[str, Any]], list[str]]) -> list[str]:
    """Return the lines about each host; `result(probe)` has those of one that works."""
    lines: list[str] = []
    for one in probes:
        lines.append(printable(f"{one['host']}:"))
        if "error" in one:
            error = GpuKernelError.from_json(one["error"])
            lines += [f"  {line}" for line in printable(str(error)).splitlines()]
            lines.append("  It stays in the list; kernels start on the other hosts while it cannot be used.")
        else:
            lines += [f"  {line}" for text in result(one) for line in text.splitlines()]
    if not common_python(working_hosts(probes)):
        lines.append("The Pythons have different paths, so each start looks for one (or give --python PATH).")
    return lines
