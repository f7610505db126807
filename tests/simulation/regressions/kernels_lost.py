"""Kernels end, or are lost with their node."""

from __future__ import annotations

from dataclasses import replace

from ..plan import Decision
from .common import BASE, cells

PLANS = {
    "a front end is told that its kernel has ended before it gets the last output": replace(
        BASE, seed=0
    ).with_decisions(
        cells(1.0, [["prints", 3, 20], ["sleep", 1.0], ["prints", 2, 20], ["sleep", 0.5], ["crash"]]),
        Decision(1.5, "unreachable", {"seconds": 4.0}),
        Decision(9.0, "info", {"front": 0}),
    ),
    "a kernel_info_request comes long after its kernel has crashed": replace(
        BASE, seed=4008469, delay=0.1, rate=5e6, memory_mib=0.02, ends_with_shutdown=False
    ).with_decisions(
        cells(3.275, [["crash"]], stop=False),
        Decision(28.714, "info", {"front": 0}),
    ),
    "a cell for a kernel that is lost waits until the restart, and is forgotten": replace(
        BASE, seed=47, delay=0.025, unread=4194304, revives=False
    ).with_decisions(
        cells(1.192067, [["sleep", 0.5], ["crash"]]),
        Decision(1.653343, "keeper killed", {"seconds": 0.05}),
        Decision(3.859691, "own code", {"front": 0}),
    ),
    "the state of a lost kernel is an older one, which had not been passed on": replace(
        BASE,
        seed=2021,
        delay=0.025,
        rate=5e6,
        memory_mib=0.02,
        rate_limited=False,
        revives=False,
        knows_info=False,
        ends_with_shutdown=False,
    ).with_decisions(
        Decision(4.258772, "slow reader", {"seconds": 60.0, "front": 0}),
        cells(4.268772, [["prints", 8, 5000]]),
        Decision(7.797506, "restart now", {"front": 0, "seconds": 1.0, "sends": 10}),
        Decision(7.891253, "node rebooted", {"front": 0, "seconds": 1.0, "sends": 10}),
    ),
    "a text in pieces ends within a line when the node is rebooted": replace(
        BASE, seed=5270, delay=0.0003, rate=2e5
    ).with_decisions(
        cells(5.018, [["prints", 8, 40_000], *[["prints", 8, 480_000]] * 2]),
        Decision(5.023, "unreachable", {"seconds": 4.0}),
        Decision(11.995, "node rebooted", {"seconds": 1.0}),
    ),
}
