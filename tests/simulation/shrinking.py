"""Finds the few decisions of a plan that suffice for its failure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from .plan import Plan
from .runner import run, workplace

_MOST = 300
"""Episodes that are tried."""


def shrink(plan: Plan, kind: str) -> Plan:
    """Return a plan with fewer decisions, cells and actions that fails in the same way."""
    with workplace() as folder:
        tries = iter(range(_MOST))
        while True:
            candidates = zip(_smaller(plan), tries, strict=False)
            smaller = next((one for one, _ in candidates if run(one, folder)[0].kind == kind), None)
            if smaller is None:
                return plan
            plan = smaller


def _smaller(plan: Plan) -> Iterator[Plan]:
    """Yield the plan without one of its decisions; then without one cell, or one action, of a decision."""
    for place in reversed(range(len(plan.decisions))):
        yield plan.without(place)
    for decision in plan.decisions:
        for cells in _fewer(decision.arguments.get("cells", [])):
            changed = replace(decision, arguments={**decision.arguments, "cells": cells})
            decisions = [changed if one is decision else one for one in plan.decisions]
            yield plan.with_decisions(*decisions)


def _fewer(cells: list[Any]) -> Iterator[list[Any]]:
    """Yield the cells without one of them, if there are several; or without one action of one of them."""
    for number, actions in enumerate(cells):
        before, behind = cells[:number], cells[number + 1 :]
        if before or behind:
            yield [*before, *behind]
        for place in range(len(actions)):
            yield [*before, [*actions[:place], *actions[place + 1 :]], *behind]
