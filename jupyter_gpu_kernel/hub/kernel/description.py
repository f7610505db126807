"""How a remote kernel is described to clients, and what remains known of a kernel after its front end has left."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...errors import GpuKernelError
from ..kernel_settings import KernelSettings
from ..node.node_link import NodeLink
from .states import LinkState

NO_CELLS = {"priority": 0, "place": None, "cells": 0, "last_cell": None}
"""What `ps` tells of a kernel that has run no cell."""


class LeftKernel(NamedTuple):
    """A kernel that its front end has left. `settings` lead to its node."""

    kernel_id: str
    link: NodeLink
    settings: KernelSettings


def describe(
    settings: KernelSettings,
    status: dict[str, Any],
    link: NodeLink,
    link_state: LinkState,
    problem: GpuKernelError | None,
    away_since: float,
) -> dict[str, Any]:
    """Return {…the keeper's status, "kernel_id" (Jupyter's), "link", "hop", "error", …}, as JSON for clients."""
    described = {
        "node": link.name,
        "name": settings.name,
        **status,
        **times_of(status, link.round_trip if link_state is LinkState.UP else None),
        "link": link_state.value,
        "hop": link.name,
        "error": problem.to_json(settings.name) if problem else None,
        "away_since": away_since if link_state is LinkState.AWAY and away_since else None,
        "kernel_id": settings.kernel_id,
    }
    if settings.hosts:  # where it is now, for another hub, which adopts it
        known = {"python": settings.python, "given_python": settings.given_python}
        described |= {"route": list(settings.route), **known}
    return described


def times_of(status: dict[str, Any], round_trip: float | None) -> dict[str, Any]:
    """Return {"busy_since", "ends_at", "round_trip_ms"}: since when a cell runs, the end of the kernel's job, and how
    long a message takes to the node and back, over a link that is up. A value that does not apply is None."""
    return {
        "busy_since": status.get("since") if status.get("state") == "busy" else None,
        "ends_at": (status.get("job") or {}).get("end_time"),
        "round_trip_ms": None if round_trip is None else round(round_trip * 1000, 1),
    }
