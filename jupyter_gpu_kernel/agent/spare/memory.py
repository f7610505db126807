"""Whether the node, or our cgroup, is short of memory."""

from __future__ import annotations

from ..exit.node_checks import read_memory

_LEAST_MIB = 1024
_LEAST_SHARE = 0.1


def is_short() -> bool:
    """Whether so little memory is left that nothing may be kept in it for later."""
    memory = read_memory()
    available, total = memory["node_available_mib"], memory["node_total_mib"]
    if available is not None and available < min(_LEAST_MIB, total / 2):
        return True
    used, limit = memory["cgroup_used_mib"], memory["cgroup_limit_mib"]
    if used is not None and limit is not None and limit - used < limit * _LEAST_SHARE:
        return True
    return available is not None and available < total * _LEAST_SHARE
