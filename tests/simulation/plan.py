"""What users do and what fails in one episode, drawn from its seed. Each seed has some of all kinds, not the others;
and some have one of the `stories`.

A decision is a kind, a time and arguments; leaving one out does not change the others, so failures can be shrunk.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from . import gpu_plan, stories

OPERATIONS = (
    "run", "burst", "fail", "ask", "display", "displays", "large cell", "comm", "sleep", "storm", "own code", "info",
    "complete", "interrupt", "interrupt command", "restart", "restart now", "second front end", "second leaves",
    "return", "crash", "clear",
)  # fmt: skip
FAULTS = (
    "drop", "silent cut", "half-open", "stall", "unreachable", "slow path", "slow reader", "hub killed",
    "hub killed in a send", "clock jump", "slow node", "keeper killed",
    "node rebooted", "disk full",
)  # fmt: skip
_STORIES = 0.4
"""The part of the seeds with a story; some of these have nothing else."""


NAMES = ("h0", "h1", "h2")
"""The names of hosts."""


@dataclass(frozen=True)
class Decision:
    """Something that is done at a time, in seconds.

    kind: The part of a method's name in `Users` (`_op_…`), `Notebooks` or `Faults` (`_fault_…`).
    arguments: "front": which front end does it (0, or 1 if there is a second one); "cells": lists of actions, as in
        `kernel`, which are sent one every "gap" seconds, and abort those behind them if they fail and "stop" is set;
        "seconds": how long a fault lasts; "up", "down": the directions that it concerns; "sends": before which message
        of the hub, or if "writes" before which write to a file, the hub is killed; "steps": the same of a keeper's
        steps; "by": seconds by which a clock jumps.
    """

    at: float
    kind: str
    arguments: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.at:8.3f} s  {self.kind:22}{json.dumps(self.arguments)[:150] if self.arguments else ''}"


@dataclass(frozen=True)
class Plan:
    """One episode: its decisions in order of time, and the circumstances."""

    seed: int
    decisions: tuple[Decision, ...]
    delay: float
    rate: float
    memory_mib: float
    cap_mib: float
    unread: int
    rate_limited: bool
    revives: bool
    knows_info: bool
    ends_with_shutdown: bool
    ids_collide: bool = False
    node_gpus: int = 0
    """The GPUs of the node; 0: kernels need none."""
    gpus: int = 0
    """How many each kernel needs."""
    gpu_timeout: float = 0.0
    hosts: int = 0
    """On how many hosts the kernel may start; 0: it has one node."""
    slurm: bool = False
    """Whether the kernel runs in a job of Slurm."""
    notebook: str = "/n.ipynb"
    """The path of the notebook; "" for a front end without one, such as a console."""

    def settings(self, *, outside: bool = False) -> dict[str, Any]:
        """Return the kernel's settings. `outside`: it does not run in a job, whatever others do."""
        if self.slurm and not outside:
            several: dict[str, Any] = {"route": ["login"], "slurm": True, "python": "/usr/bin/python3"}
        elif self.hosts:
            several = {"route": [NAMES[0]], "hosts": list(NAMES[: self.hosts]), "gpus": 1}
        else:
            several = {}
        return {
            "python": "python", "gpus": self.gpus, "gpu_timeout": self.gpu_timeout, "spare": "off",
            "journal_memory_mib": self.memory_mib, "journal_cap_mib": self.cap_mib, **several,
        }  # fmt: skip

    def with_decisions(self, *decisions: Decision) -> Plan:
        """Return the plan with these decisions."""
        return replace(self, decisions=decisions)

    def without(self, *places: int) -> Plan:
        """Return the plan without these decisions."""
        kept = tuple(one for place, one in enumerate(self.decisions) if place not in places)
        return replace(self, decisions=kept)

    def to_json(self) -> dict[str, Any]:
        """Return the plan as a JSON object."""
        decisions = [[one.at, one.kind, one.arguments] for one in self.decisions]
        return {**{name: getattr(self, name) for name in self.__dataclass_fields__}, "decisions": decisions}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Plan:
        """Return the plan that `to_json` has written."""
        return cls(**{**data, "decisions": tuple(Decision(*one) for one in data["decisions"])})

    def __str__(self) -> str:
        facts = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "decisions"}
        return "\n".join(
            [", ".join(f"{name}={value}" for name, value in facts.items()), *map(str, self.decisions)]
        )


def draw(seed: int) -> Plan:
    """Return the plan of this seed."""
    random = Random(f"plan {seed}")
    operations = ["run", *(one for one in OPERATIONS[1:] if random.random() < 0.4)]
    faults = [one for one in FAULTS if random.random() < 0.25]
    length = random.choice((3.0, 8.0, 8.0, 30.0))
    decisions = [_operation(random, random.choice(operations), length) for _ in range(random.randint(2, 7))]
    times = [_moment(random, decisions, length) for _ in range(random.randint(1, 4) if faults else 0)]
    decisions += [_fault(random, random.choice(faults), at) for at in times]
    teller = Random(f"story {seed}")
    if teller.random() < _STORIES:
        others = decisions if teller.random() < 0.4 else []
        decisions = others + [Decision(*one) for one in stories.draw(teller, length)]
    circumstances: dict[str, Any] = {}
    if gpu_plan.has_gpus(seed):
        fields = [(one.at, one.kind, one.arguments) for one in decisions]
        fields, circumstances = gpu_plan.draw(seed, fields, length)
        decisions = [Decision(*one) for one in fields]
    return Plan(
        seed=seed,
        decisions=tuple(sorted(decisions, key=lambda one: one.at)),
        delay=random.choice((0.0003, 0.005, 0.025, 0.1)),
        rate=random.choice((2e5, 5e6, 1e8)),
        memory_mib=random.choice((8.0, 8.0, 0.002, 0.02)),
        cap_mib=random.choice((512.0, 512.0, 512.0, 0.01)),
        unread=random.choice((4 * 1024 * 1024, 20_000)),
        rate_limited=random.random() < 0.7,
        revives=random.random() < 0.5,
        knows_info=random.random() < 0.5,
        ends_with_shutdown=random.random() < 0.6,
        ids_collide=Random(f"ids {seed}").random() < 0.3,
        **circumstances,
    )


def _cell(random: Random, kind: str) -> list[Any]:
    actions: list[Any] = []
    name = random.randint(0, 10**6)  # else another cell might supersede its display
    for _ in range(random.randint(1, 3)):
        actions.append(["prints", random.randint(1, 3), random.choice((3, 20, 20, 20, 20, 20, 20, 20_000))])
        if random.random() < 0.4:
            kind = "hold" if random.random() < 0.1 else "sleep"
            actions.append([kind, random.choice((0.05, 0.5, 3.0))])
        if random.random() < 0.2:
            actions.append(["print", "stderr", f"a warning {random.randint(0, 99)}\n"])
    if kind == "display":
        actions += [["display", f"d{name}", "first"], ["sleep", 0.3]]
        actions += [["update", actions[-2][1], str(number)] for number in range(random.randint(1, 5))]
    elif kind == "displays":
        actions += [["display", f"d{name}-{number}", "x" * 30] for number in range(random.randint(6, 16))]
    elif kind == "large cell":
        actions.append(["comment", "x" * random.choice((5000, 70_000, 300_000))])
    elif kind == "comm":
        actions += [["comm", f"w{name}", number] for number in range(random.randint(1, 6))]
    elif kind == "ask":
        actions += [["input"], ["prints", 1, 5]]
    elif kind == "sleep":
        actions += [["sleep", random.choice((2.0, 8.0, 25.0))], ["prints", 1, 5]]
    elif kind == "storm":
        for _ in range(random.randint(2, 4)):
            actions += [["prints", 6, random.choice((60, 5000))], ["sleep", 0.05]]
    elif kind == "crash":
        actions.append(random.choice((["crash"], ["crash"], ["crash", "replied"])))
    elif kind == "fail":
        actions.append(["error"])
    return actions


def _operation(random: Random, kind: str, length: float) -> Decision:
    at = random.uniform(0.0, length)
    front = random.choice((0, 0, 0, 1))
    if kind in ("run", "display", "displays", "large cell", "comm", "ask", "sleep", "storm", "crash", "fail"):
        cells = [_cell(random, kind)]
        if kind == "fail":
            cells += [_cell(random, "run") for _ in range(random.randint(0, 2))]
        return Decision(
            at, "cells", {"front": front, "cells": cells, "stop": random.random() < 0.8, "gap": 0.0}
        )
    if kind == "burst":
        cells = [_cell(random, random.choice(("run", "run", "run", "fail", "display"))) for _ in range(3)]
        gap = random.choice((0.0, 0.01, 0.15, 0.3))
        return Decision(
            at, "cells", {"front": front, "cells": cells, "stop": random.random() < 0.8, "gap": gap}
        )
    return Decision(at, kind, {"front": front})


def _moment(random: Random, operations: list[Decision], length: float) -> float:
    """Return a time at which something fails: any, or soon after a user has done something."""
    if random.random() < 0.5:
        return random.uniform(0.0, length)
    return random.choice(operations).at + random.expovariate(2.0)


def _fault(random: Random, kind: str, at: float) -> Decision:
    arguments: dict[str, Any] = {"seconds": random.choice((0.05, 1.0, 4.0, 12.0))}
    if kind in ("half-open", "stall"):
        arguments["up"], arguments["down"] = random.choice(((True, False), (False, True)))
    if kind == "hub killed in a send":
        arguments["sends"] = random.randint(1, 12)
        arguments["writes"] = arguments["sends"] % 2 == 0
    if kind == "clock jump":
        arguments["by"] = random.choice((-7200.0, -5.0, 5.0, 86400.0))
    return Decision(at, kind, arguments)
