"""Interrupts overtake cells, or come late."""

from __future__ import annotations

from dataclasses import replace

from ..plan import Decision
from .common import BASE, cells

PLANS = {
    "an interrupt that comes late hits the next cell": replace(
        BASE, seed=24, memory_mib=0.002, rate_limited=False
    ).with_decisions(
        Decision(0.029378, "stall", {"seconds": 12.0, "up": True, "down": False}),
        Decision(2.447353, "interrupt command", {"front": 0}),
        cells(4.793363, [], stop=False),
    ),
    "an interrupt that the hub has answered ends with an error, too, when the kernel is lost": replace(
        BASE, seed=301, rate=2e5, revives=False, ends_with_shutdown=False
    ).with_decisions(Decision(2.219746, "node rebooted", {"seconds": 4.0}), Decision(3.477347, "interrupt")),
    "an interrupt reaches the hub after a later cell, as both have waited for the front end's connection": replace(
        BASE, seed=0
    ).with_decisions(
        Decision(1.5, "return"),
        Decision(1.6, "interrupt"),
        cells(2.2, [], stop=False),
        Decision(2.3, "unreachable", {"seconds": 4.0}),
    ),
    "an interrupt ends two large cells, which their front end gets back": replace(
        BASE, seed=21170, delay=0.0003, rate=5e6, memory_mib=0.002, ids_collide=True
    ).with_decisions(
        Decision(1.479, "unreachable", {"seconds": 12.0}),
        cells(2.239, [["comment", "x" * 70_000]], stop=False),
        cells(3.415, [["comment", "x" * 70_000]]),
        Decision(4.09, "interrupt command", {"front": 0}),
    ),
    "an interrupt overtakes a large cell": replace(BASE, seed=1, rate=2e5, delay=0.025).with_decisions(
        cells(2.0, [["comment", "x" * 300_000], ["sleep", 1000.0]]), Decision(2.2, "interrupt", {"front": 0})
    ),
    "an interrupt overtakes a cell while its kernel starts": replace(BASE, seed=3).with_decisions(
        cells(0.1, [["sleep", 1000.0]]), Decision(0.15, "interrupt", {"front": 0})
    ),
    "an interrupt overtakes a cell before the next hub is attached": replace(BASE, seed=2).with_decisions(
        Decision(2.0, "hub killed", {"seconds": 1.0}),
        cells(2.1, [["sleep", 1000.0]]),
        Decision(2.2, "interrupt", {"front": 0}),
    ),
    "a keeper that knows of an interrupt is killed before the large cell comes, and its log is lost": replace(
        BASE, seed=1, rate=2e5, delay=0.025
    ).with_decisions(
        Decision(2.0, "disk full", {"seconds": 12.0}),
        cells(2.2, []),
        cells(2.5, [["comment", "x" * 2_000_000], ["sleep", 1000.0]]),
        Decision(2.7, "interrupt", {"front": 0}),
        Decision(6.0, "keeper killed"),
    ),
    "an interrupt arrives with its cell, after a stall": replace(BASE, seed=0).with_decisions(
        Decision(1.9, "stall", {"seconds": 3.0, "up": True, "down": False}),
        cells(2.0, [["sleep", 1000.0]]),
        Decision(2.5, "interrupt", {"front": 0}),
    ),
}
