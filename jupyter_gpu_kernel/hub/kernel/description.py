"""How a remote kernel is described to clients."""

from __future__ import annotations

from typing import Any

from .core.kernel_core import KernelCore
from .kernel_state import KernelState
from .states import LinkState

NO_CELLS = {"priority": 0, "place": None, "cells": 0, "last_cell": None}
"""What `ps` tells of a kernel that has run no cell."""


def describe(kernel: KernelState, core: KernelCore, front_ends: int) -> dict[str, Any]:
    """Return {…the keeper's status, "kernel_id" (Jupyter's), "link", "hop", "error", …}, as JSON for clients.
    `front_ends`: how many front ends the kernel has."""
    settings, link, link_state, shown = (
        kernel.settings,
        kernel.link,
        kernel.link_state,
        core.relay.placeholder,
    )
    if core.not_started:  # no link is needed before the start
        settings, link_state = settings.before_start(), LinkState.UP
    problem = kernel.error or (link.problem if link_state is LinkState.AWAY else None)
    away_since = core.relay.notice.since if link_state is LinkState.AWAY else 0.0
    status = {
        **kernel.status,
        "id": kernel.kernel_id,  # whatever the node says
        "state": shown.newest_state(kernel.status["state"]),
        "since": shown.since or kernel.status.get("since"),
    }
    described = {
        "node": link.name,
        "name": settings.name,
        **status,
        **times_of(status, link.round_trip if link_state is LinkState.UP else None),
        "link": link_state.value,
        "hop": link.name,
        "error": problem.to_json(settings.name) if problem else None,
        "away_since": away_since or None,
        "kernel_id": settings.kernel_id,
        "front_ends": front_ends,
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
