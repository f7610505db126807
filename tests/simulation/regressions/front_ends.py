"""Notebooks are closed and opened again; cells come while others fail."""

from __future__ import annotations

from dataclasses import replace

from ..plan import Decision
from .common import BASE, cells

PLANS = {
    "the text for a new front end is shown in a cell of one that has left": replace(
        BASE, seed=3779, delay=0.025, rate=2e5, memory_mib=0.002
    ).with_decisions(
        cells(7.884, [["sleep", 12.0]]),
        Decision(8.884, "return"),
        cells(10.884, []),
        Decision(14.586, "return"),
    ),
    "a reply for a front end that has left goes to the next one": replace(
        BASE, seed=918, revives=False, knows_info=False, ends_with_shutdown=False
    ).with_decisions(
        cells(0.337873, [["sleep", 5.0]]),
        Decision(0.897719, "complete", {"front": 1}),
        Decision(2.099099, "return", {"front": 0}),
        cells(4.753169, []),
    ),
    "a cell comes while the reply of a failed one is held": replace(
        BASE,
        seed=6619,
        delay=0.025,
        memory_mib=0.02,
        unread=4194304,
        revives=False,
        knows_info=False,
        ends_with_shutdown=False,
    ).with_decisions(
        Decision(2.84318513290481, "own code", {"front": 0}),
        Decision(4.338622624449245, "unreachable", {"seconds": 12.0}),
        cells(
            8.393052309337836,
            [["prints", 2, 20], ["print", "stderr", "a warning 79\n"], ["prints", 4, 20], ["error"]],
        ),
        Decision(13.444848307555835, "own code", {"front": 0}),
    ),
    "the states of a request that the keeper has answered are lost while a greeting is shown": replace(
        BASE,
        seed=77,
        delay=0.1,
        rate=2e5,
        memory_mib=0.002,
        unread=4194304,
        knows_info=False,
        ids_collide=True,
    ).with_decisions(
        cells(0.008944503464413667, [["prints", 8, 5000], ["prints", 8, 5000]]),
        Decision(1.299909818685117, "return"),
        Decision(2.496272422083967, "stall", {"seconds": 1.0, "up": True, "down": False}),
        cells(2.542512784212655, [["prints", 3, 20], ["sleep", 3.0], ["prints", 1, 20]], gap=0.01),
        Decision(5.312538702312656, "keeper killed", {"steps": 42}),
        *[Decision(5.412538702312656, "info", {"front": 0})] * 4,
        *[Decision(5.7125387023126555, "info", {"front": 0})] * 3,
        Decision(6.312538702312656, "info", {"front": 0}),
    ),
    "the statuses of a comm overtake its output while a greeting is shown": replace(
        BASE, seed=0
    ).with_decisions(
        cells(1.5, [["sleep", 3.0], ["prints", 1, 20]]),
        Decision(2.0, "return"),
        cells(6.0, [["prints", 1, 20]]),
        *[Decision(7.0 + 0.2 * number, "comm", {"front": 0}) for number in range(15)],
    ),
}
