"""Keepers are killed: what their successors know."""

from __future__ import annotations

from dataclasses import replace

from ..plan import Decision
from .common import BASE, cells

PLANS = {
    "a successor takes the reply to code that was answered before it ran for a repeated one": replace(
        BASE, seed=264, delay=0.0003
    ).with_decisions(
        Decision(1.122, "keeper killed", {"seconds": 1.0}),
        cells(15.943, [["sleep", 3.0], ["input"]]),
        Decision(16.432, "return", {"front": 0}),
        Decision(24.895, "own code", {"front": 0}),
    ),
    "a request of which front ends have the idle status is answered with a second one when the kernel is lost": replace(
        BASE, seed=123, delay=0.0003, unread=4194304, ends_with_shutdown=False
    ).with_decisions(
        Decision(2.1832661154374087, "keeper killed", {"seconds": 1.0}),
        Decision(2.5941534281425533, "restart", {"front": 1}),
        Decision(3.560490383091533, "drop", {"seconds": 4.0}),
    ),
    "a successor without a log ends a cell whose busy status and input front ends have": replace(
        BASE,
        seed=1000001640,
        delay=0.025,
        rate=2e5,
        memory_mib=0.002,
        revives=False,
        ends_with_shutdown=False,
    ).with_decisions(
        Decision(1.9517018396268186, "disk full", {"seconds": 1.0}),
        cells(2.285687787180068, [["sleep", 3.0]], stop=False),
        Decision(2.649947031161079, "keeper killed", {"seconds": 0.05}),
        Decision(3.012174957561981, "restart", {"front": 0}),
    ),
    "a kernel is shut down after its keeper was killed, and its last output is lost": replace(
        BASE, seed=2559, delay=0.1, rate=5e6, unread=4194304, revives=False, knows_info=False
    ).with_decisions(
        Decision(1.2496915860445794, "restart now", {"front": 0}),
        cells(4.298296793709687, [["prints", 2, 20], ["sleep", 0.05]]),
        Decision(4.30288851405826, "restart", {"front": 0}),
        Decision(4.315872619021323, "keeper killed", {"seconds": 0.05}),
        Decision(4.943986127155161, "hub killed", {"seconds": 0.05}),
    ),
    "a keeper is killed while it gives its kernel to the notebook that is opened again": replace(
        BASE, seed=6633, revives=False
    ).with_decisions(
        Decision(2.988, "keeper killed"),
        Decision(3.005, "return"),
        Decision(3.984, "keeper killed"),
        cells(5.521, []),
    ),
    "a cell runs again in a restarted kernel whose log was lost with its keeper": replace(
        BASE, seed=385, delay=0.025, unread=4194304, knows_info=False
    ).with_decisions(
        Decision(3.0146385764518975, "disk full", {"seconds": 12.0}),
        cells(4.019969936797141, [["sleep", 4.0]]),
        Decision(4.3802169645149664, "keeper killed", {"seconds": 1.0}),
        Decision(4.468645193606857, "restart now", {"front": 1}),
    ),
    "a successor without a log drops the reply to a cell that ended before the hub named it": replace(
        BASE, seed=2724, delay=0.0003, memory_mib=0.002, knows_info=False
    ).with_decisions(
        Decision(5.692907684111907, "disk full", {"seconds": 12.0}),
        cells(7.556285139114221, [["sleep", 0.05], ["sleep", 0.05], ["sleep", 0.05]]),
        Decision(7.695116269078237, "keeper killed"),
    ),
    "a successor without a log drops the replies that come before the hub names the cells": replace(
        BASE, seed=2570, delay=0.0003, rate=5e6, memory_mib=0.02, unread=4194304, knows_info=False
    ).with_decisions(
        Decision(8.692048331439702, "disk full", {"seconds": 4.0}),
        Decision(10.09933644631225, "restart now", {"front": 0}),
        Decision(18.808014147738845, "hub killed in a send", {"seconds": 0.05, "sends": 12, "writes": True}),
        cells(
            26.949759515967003,
            [["prints", 2, 20], ["sleep", 0.3], ["prints", 2, 20]],
            [["prints", 2, 20], ["sleep", 0.3], ["prints", 2, 20]],
            [["prints", 2, 20], ["sleep", 0.3], ["prints", 2, 20]],
        ),
        Decision(27.707453492648785, "keeper killed"),
    ),
    "a question comes again, as neither hub nor keeper knows that it was asked": replace(
        BASE, seed=3653, delay=0.0003, rate=2e5, rate_limited=False, revives=False, ids_collide=True
    ).with_decisions(
        Decision(1.492866286679993, "keeper killed"),
        Decision(1.6476187823823794, "restart now", {"front": 0}),
        cells(1.8499169660697972, [["input"]], stop=False),
        Decision(3.674195072967086, "keeper killed"),
        Decision(4.046752905838062, "hub killed", {"seconds": 1.0}),
    ),
    "a successor without a log ends a running cell, as an interrupt for the killed keeper comes first": replace(
        BASE, seed=1, delay=0.0003
    ).with_decisions(
        Decision(2.0, "disk full", {"seconds": 12.0}),
        cells(3.0, [["sleep", 20.0]]),
        Decision(4.0, "unreachable", {"seconds": 4.0}),
        Decision(5.0, "interrupt", {"front": 0}),
        Decision(6.0, "keeper killed", {"seconds": 1.0}),
    ),
    "a successor without a log passes a reply on before its kernel is up, and the cell stays busy": replace(
        BASE, seed=0, delay=0.0003
    ).with_decisions(
        Decision(2.0, "disk full", {"seconds": 12.0}),
        cells(3.0, [["hold", 4.0]]),
        Decision(3.5, "keeper killed", {"seconds": 1.0}),
    ),
    "a cell of a process that has ended runs again, as the successor knows neither log nor restart": replace(
        BASE,
        seed=2006452,
        delay=0.0003,
        rate=5e6,
        memory_mib=0.02,
        cap_mib=0.01,
        knows_info=False,
        ends_with_shutdown=False,
    ).with_decisions(
        Decision(0.26631738167077756, "slow reader", {"seconds": 30.0, "front": 0}),
        cells(0.2763173816707776, [["prints", 8, 60000]]),
        Decision(3.226266501297565, "restart now", {"front": 0}),
        Decision(4.930399020600339, "disk full", {"seconds": 4.0}),
        Decision(4.997010920252411, "keeper killed"),
        Decision(7.951192559140808, "keeper killed"),
        Decision(11.073894073457199, "hub killed", {"seconds": 1.0}),
    ),
    "a successor without a log drops a reply that comes behind its idle status": replace(
        BASE, seed=2005033, delay=0.025, rate=2e5, knows_info=False
    ).with_decisions(
        cells(6.54927733485886, [], [], [["sleep", 0.5], ["sleep", 3.0]], gap=0.3),
        Decision(10.524728615120614, "disk full", {"seconds": 1.0}),
        Decision(12.878249948525726, "keeper killed", {"steps": 43}),
        Decision(14.478249948525725, "info", {"front": 0}),
        Decision(14.478249948525725, "info", {"front": 0}),
    ),
    "a successor without a log drops the reply to a request that is no cell": replace(
        BASE, seed=2007171, delay=0.0003, rate_limited=False, knows_info=False
    ).with_decisions(
        Decision(0.26976186950444403, "disk full", {"seconds": 12.0}),
        cells(0.7199859365302475, [["sleep", 5.0]], front=1),
        Decision(1.646843904404773, "complete", {"front": 0}),
        Decision(1.8642892873448857, "keeper killed", {"seconds": 1.0}),
    ),
    "a successor without a log is killed before the hub has named the requests, and its own log counts": replace(
        BASE,
        seed=2011257,
        delay=0.025,
        rate=2e5,
        memory_mib=0.002,
        rate_limited=False,
        revives=False,
        knows_info=False,
    ).with_decisions(
        Decision(0.5360863772125601, "keeper killed", {"seconds": 1.0}),
        Decision(2.087424388512009, "disk full", {"seconds": 12.0}),
        Decision(5.82603870118228, "clear", {"front": 0}),
        Decision(15.70048091475234, "drop", {"seconds": 4.0}),
        Decision(17.421867892694863, "drop", {"seconds": 1.0}),
        Decision(27.54859831844277, "keeper killed", {"steps": 33}),
        Decision(28.462381543210196, "unreachable", {"seconds": 4.0}),
        Decision(29.373137549702147, "keeper killed", {"seconds": 1.0}),
    ),
    "a successor without a log drops the reply to a request on control": replace(
        BASE, seed=3003292, rate=5e6, memory_mib=0.02, knows_info=False, ends_with_shutdown=False
    ).with_decisions(
        Decision(0.238, "disk full", {"seconds": 1.0}),
        Decision(0.284, "half-open", {"seconds": 4.0, "up": False, "down": True}),
        Decision(0.4, "clear", {"front": 0}),
        Decision(1.451, "keeper killed"),
    ),
    "a request on control is not sent again to a successor without a log": replace(
        BASE, seed=0, delay=0.0003
    ).with_decisions(
        Decision(2.0, "disk full", {"seconds": 12.0}),
        cells(3.0, [["hold", 4.0]]),
        Decision(3.2, "clear", {"front": 0}),
        Decision(3.5, "keeper killed"),
    ),
    "a successor does not run code that the killed keeper has answered before": replace(
        BASE, seed=4000670, delay=0.0003, rate=5e6, unread=4194304, rate_limited=False, revives=False, hosts=2
    ).with_decisions(
        cells(6.323, [["sleep", 12.0]]),
        Decision(7.323, "return"),
        Decision(7.798, "own code", {"front": 0}),
        Decision(18.107, "keeper killed"),
    ),
    "a successor without a log does not know that the cell of a front end runs that has left": replace(
        BASE, seed=2014974, memory_mib=0.02, cap_mib=0.01, unread=4194304, hosts=3
    ).with_decisions(
        Decision(11.108158894413156, "disk full", {"seconds": 12.0}),
        cells(18.229797114502855, [["sleep", 12.0], ["error"]]),
        Decision(19.229797114502855, "return"),
        cells(21.229797114502855, []),
        Decision(24.805646898076468, "keeper killed"),
    ),
}
