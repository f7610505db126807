"""The steps of `check --gpu`: asks the node about its driver and about each framework, and reports what they mean."""

from __future__ import annotations

import asyncio
from typing import Any

from ..rpc import Call
from .check_report import Report
from .gpu_framework import judge_framework
from .gpu_stack import FRAMEWORKS, NodeStack, Verdict, conclude, judge_driver
from .node import Node

LIMIT = 150.0
"""Seconds that a framework may take: a first import from a slow file system takes a minute."""
TIMEOUT = LIMIT + 180.0
"""Seconds for one request: set-up lines, the search for a free GPU, and one framework."""


async def check_gpu(report: Report, node: Node, settings: dict[str, Any], python: str, call: Call) -> None:
    """Add a row for the driver, one for each framework that is installed, and the verdict."""
    sent = dict(settings, python=python)

    async def ask(look: str) -> tuple[dict[str, Any], float]:
        clock = asyncio.get_running_loop().time
        began = clock()
        answer = await node.request(python, call, "stack", TIMEOUT, look=look, limit=LIMIT, settings=sent)
        return answer, clock() - began

    def add(step: str, verdict: Verdict, seconds: float, facts: dict[str, Any]) -> None:
        row = report.add(step, seconds, verdict.message, verdict.remedy, ok=verdict.ok)
        row |= {"checked": verdict.checked, "facts": facts}

    answer, seconds = await report.attempt("driver", ask("node"), shown="driver and Python packages")
    stack = NodeStack.from_answer(python, answer)
    driver = judge_driver(stack, answer)
    add("driver", driver, seconds, {key: answer.get(key) for key in ("driver", "cuda", "gpus")})
    verdicts: dict[str, Verdict] = {}
    for name in FRAMEWORKS:
        if name in answer["facts"].get("installed", {}):
            looked, seconds = await report.attempt(
                name, ask(name), shown=f"importing {name} and multiplying matrices"
            )
            verdicts[name] = judge_framework(name, stack, looked)
            add(name, verdicts[name], seconds, looked)
    add("verdict", conclude(verdicts, stack, driver), 0.0, {})
