"""The user goes on at another computer."""

from __future__ import annotations

from dataclasses import replace

from ..plan import Decision
from .common import BASE, cells

PLANS = {
    "the input of a cell comes again that ended when another computer took the kernel": replace(
        BASE, seed=8000886, delay=0.025, rate=5e6, unread=4194304, rate_limited=False
    ).with_decisions(
        cells(0.823, [["sleep", 25.0]], stop=False),
        cells(0.881, [], stop=False),
        Decision(3.018, "other computer"),
        cells(5.661, []),
        Decision(5.781, "disk full", {"seconds": 1.0}),
        Decision(8.235, "keeper killed"),
    ),
    "a cell waits for code of a front end that has left, which was answered before it ran": replace(
        BASE, seed=5001911, rate=5e6, unread=4194304, rate_limited=False, revives=False, ids_collide=True
    ).with_decisions(
        Decision(1.008, "other computer"),
        cells(1.065, [["input"]], front=1, stop=False),
        cells(1.134, []),
        Decision(2.502, "own code", {"front": 0}),
        cells(3.306, [], front=1),
    ),
    "a request to a kernel that another computer has gets no reply": replace(
        BASE, seed=161, rate=5e6, unread=4194304
    ).with_decisions(Decision(2.281, "other computer"), Decision(4.453, "complete")),
    "a cell gets no reply, as its kernel had ended before the node was rebooted": replace(
        BASE, seed=137, rate=5e6, memory_mib=0.002, revives=False, ends_with_shutdown=False
    ).with_decisions(
        cells(0.977, [["sleep", 0.05], ["crash"]], stop=False),
        Decision(0.987, "other computer"),
        cells(3.591, []),
        Decision(3.947, "node rebooted", {"seconds": 1.0}),
        cells(8.226, [], front=1),
    ),
    "a cell gets a second reply, as the first one waited when another computer took the kernel": replace(
        BASE, seed=1967, delay=0.025, rate=2e5, revives=False
    ).with_decisions(
        cells(
            0.6019556376805157,
            [
                *(["sleep", seconds] for seconds in (0.5, 3.0, 0.05)),
                *(["prints", 8, 60], ["sleep", 0.05]),
                *(["prints", 8, 5000], ["sleep", 0.05], ["prints", 8, 5000]),
            ],
            stop=False,
        ),
        Decision(4.062741597031103, "hub killed in a send", {"seconds": 1.0, "sends": 8, "writes": True}),
        Decision(8.75540039183827, "other computer"),
    ),
    "a restart that was requested before another computer took the kernel is still to come": replace(
        BASE, seed=444, rate=2e5, knows_info=False
    ).with_decisions(
        Decision(4.87, "other computer"),
        cells(4.993, []),
        Decision(4.998, "unreachable", {"seconds": 4.0}),
        Decision(9.065, "restart now"),
        Decision(9.749, "restart"),
        cells(14.783, [], front=1),
        Decision(19.209, "node rebooted", {"seconds": 12.0}),
    ),
    "a kernel that was busy when another computer took it stays busy": replace(
        BASE, seed=2203, delay=0.1, memory_mib=0.002, unread=4194304, revives=False, ids_collide=True
    ).with_decisions(
        cells(0.742, [["input"]]),
        Decision(0.953, "drop", {"computer": 1}),
        Decision(2.072, "other computer"),
        cells(2.988, []),
    ),
    "a keeper is killed when it has said that a front end returned, and its log does not say so": replace(
        BASE, seed=3923, delay=0.0003, rate=5e6, cap_mib=0.01
    ).with_decisions(
        cells(6.443155759387821, [["sleep", 0.3]]),
        Decision(9.144371247413769, "other computer"),
        cells(12.083814232851282, *[[["prints", 2, 20], ["sleep", 0.5]]] * 2),
        Decision(12.527282291539542, "keeper killed", {"seconds": 4.0, "computer": 0}),
        cells(12.979461118948237, [], front=1),
        cells(14.779798495982142, [], front=1),
    ),
    "a computer attaches to a kernel that was taken from it since it asked for the owner": replace(
        BASE,
        seed=202,
        delay=0.1,
        cap_mib=0.01,
        unread=20000,
        rate_limited=False,
        revives=False,
        knows_info=False,
    ).with_decisions(
        cells(0.36240380858939025, [["sleep", 8.0]]),
        Decision(1.0437889132710407, "keeper killed", {"seconds": 4.0, "computer": 0}),
        Decision(1.0916042046807146, "other computer"),
        Decision(2.590719986529356, "second leaves"),
    ),
    "a cell that ended when another computer took the kernel ends again, as the successor has no log": replace(
        BASE, seed=2007981, memory_mib=0.02, unread=4194304, revives=False, ends_with_shutdown=False
    ).with_decisions(
        Decision(1.370868849863105, "disk full", {"seconds": 12.0, "computer": 0}),
        cells(5.3957830562804086, [["sleep", 15.0]], stop=False),
        Decision(5.691605959519895, "other computer"),
        cells(9.273182023942756, []),
        Decision(13.842695312632578, "keeper killed", {"seconds": 1.0, "computer": 0}),
    ),
}
