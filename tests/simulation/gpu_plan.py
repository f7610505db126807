"""Which seeds have GPUs, and what happens to these: notebooks with kernels of their own, and foreign processes."""

from __future__ import annotations

from random import Random
from typing import Any

SHARE = 0.1
"""How many of the seeds have GPUs."""
Fields = tuple[float, str, dict[str, Any]]
"""A decision's time, kind and arguments."""


def has_gpus(seed: int) -> bool:
    """Return whether the kernels of this seed need GPUs."""
    return Random(f"has GPUs {seed}").random() < SHARE


def draw(seed: int, decisions: list[Fields], length: float) -> tuple[list[Fields], dict[str, Any]]:
    """Return the decisions of a seed with GPUs, and its circumstances. `decisions`: those that it has anyway."""
    random = Random(f"GPUs {seed}")
    node_gpus = random.choice((1, 1, 2, 3))
    gpus = 2 if node_gpus > 1 and random.random() < 0.25 else 1
    decisions = list(decisions)
    for number in range(1, 1 + random.choice((0, 0, 1, 2))):
        decisions += _notebook(random, number, length)
    if random.random() < 0.25:
        decisions += _crowd(random, node_gpus)
    for _ in range(random.choice((0, 0, 1, 3))):
        facts = {"gpu": random.randrange(node_gpus), "seconds": random.choice((1.0, 4.0, 12.0, 40.0))}
        decisions.append((random.uniform(0.0, length), "foreign process", facts))
    timeout = random.choice((0.0, 0.0, 10.0))
    circumstances = {"node_gpus": node_gpus, "gpus": gpus, "gpu_timeout": timeout}
    return [(at, kind, _opening(random, facts)) for at, kind, facts in decisions], circumstances


def draw_in_jobs(seed: int, decisions: list[Fields], length: float) -> tuple[list[Fields], dict[str, Any]]:
    """Return the decisions of a seed whose kernels run in jobs with GPUs, and its circumstances."""
    random = Random(f"GPUs in jobs {seed}")
    others = random.randint(0, 2)
    decisions = list(decisions)
    for number in range(1, 1 + others):
        decisions += _notebook(random, number, length, replaces=0.0, outside=random.random() < 0.4)
    circumstances = {"node_gpus": 1 + others + random.randint(0, 1), "gpus": 1}
    return [(at, kind, _opening(random, facts)) for at, kind, facts in decisions], circumstances


def _notebook(random: Random, number: int, length: float, replaces: float = 0.3, **how: Any) -> list[Fields]:
    """Return the life of another notebook. `replaces`: how often its kernel is replaced; `how`: it is opened."""
    at = random.uniform(0.0, 0.7 * length)
    priority = random.choice((0, 0, 0, 5, -5))
    found: list[Fields] = [(at, "open notebook", {"number": number, "priority": priority, **how})]
    kinds = [
        "cells",
        *random.choices(("cells", "interrupt", "restart", "restart now", "shutdown", "close"), k=2),
    ]
    if random.random() < replaces:
        kinds[1:1] = ["replace", "cells"]
    for kind in kinds:
        facts: dict[str, Any] = {"number": number, "do": kind}
        if kind == "cells":
            cell = [["prints", 1, 20], ["sleep", random.choice((0.1, 2.0, 8.0))], ["prints", 1, 20]]
            facts |= {"cells": [cell], "stop": random.random() < 0.8, "gap": 0.0}
        found.append((at + random.uniform(0.2, 0.6 * length), "in notebook", facts))
    return found


def _crowd(random: Random, node_gpus: int) -> list[Fields]:
    """Return what lets several kernels wait at once: foreign processes have all GPUs."""
    seconds = random.choice((4.0, 12.0, 25.0))
    found: list[Fields] = [
        (0.01 * gpu, "foreign process", {"gpu": gpu, "seconds": seconds}) for gpu in range(node_gpus)
    ]
    for number in range(4, random.randint(6, 7)):
        at = random.uniform(0.1, 0.7 * seconds)
        cell = [["prints", 1, 20], ["sleep", random.choice((0.1, 2.0))]]
        facts = {"number": number, "do": "cells", "cells": [cell], "stop": True, "gap": 0.0}
        found.append((at, "open notebook", {"number": number, "priority": random.choice((0, 5, -5))}))
        found.append((at + random.uniform(0.1, 3.0), "in notebook", facts))
    return found


def _opening(random: Random, arguments: dict[str, Any]) -> dict[str, Any]:
    """Let some cells use the kernel's GPUs."""
    if "cells" not in arguments or random.random() < 0.4:
        return arguments
    return {**arguments, "cells": [[["open GPUs"], *cell] for cell in arguments["cells"]]}
