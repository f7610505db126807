"""What the plans have in common."""

from __future__ import annotations

from typing import Any

from ..plan import Decision, Plan

BASE = Plan(
    seed=0,
    decisions=(),
    delay=0.005,
    rate=1e8,
    memory_mib=8.0,
    cap_mib=512.0,
    unread=20_000,
    rate_limited=True,
    revives=True,
    knows_info=True,
    ends_with_shutdown=True,
)


def cells(at: float, *actions: list[Any], front: int = 0, stop: bool = True, gap: float = 0.0) -> Decision:
    """A front end runs cells with these actions, one every `gap` seconds.

    stop: Whether the cells behind one that fails are aborted.
    """
    return Decision(at, "cells", {"front": front, "cells": list(actions), "stop": stop, "gap": gap})
