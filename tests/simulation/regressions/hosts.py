"""Kernels that are started by a cell: on one of several hosts, or in a job."""

from __future__ import annotations

from dataclasses import replace

from ..plan import Decision
from .common import BASE, cells

PLANS = {
    "a hub is killed, and the next one ends a cell of a host that is out of reach": replace(
        BASE, seed=3002042, rate=5e6, memory_mib=0.002, unread=4194304, ids_collide=True, hosts=2
    ).with_decisions(
        cells(6.116, [["sleep", 25.0]]),
        Decision(14.283, "hub killed"),
        Decision(15.706, "restart now", {"front": 0}),
        Decision(17.159, "unreachable", {"seconds": 12.0}),
        Decision(21.211, "host away", {"host": 0, "seconds": 2.0}),
    ),
    "a hub is killed before the front end knows on which host its kernel was started": replace(
        BASE, seed=9, revives=False, hosts=2
    ).with_decisions(
        cells(2.0, [["prints", 2, 20], ["sleep", 3.0], ["prints", 1, 20]]),
        Decision(2.0, "hub killed in a send", {"seconds": 0.5, "sends": 5, "writes": True}),
        Decision(30.0, "info", {"front": 0}),
    ),
    "the next hub does not find the kernel of a console on any host": replace(
        BASE, seed=9, revives=False, hosts=2, notebook=""
    ).with_decisions(
        cells(2.0, [["prints", 2, 20], ["sleep", 3.0], ["prints", 1, 20]]),
        Decision(2.0, "hub killed in a send", {"seconds": 0.5, "sends": 5, "writes": True}),
        Decision(30.0, "info", {"front": 0}),
    ),
    "a cell that waits for the start of its kernel gets no reply when the kernel is restarted": replace(
        BASE, seed=44, delay=0.025, rate=5e6, memory_mib=0.002, rate_limited=False, knows_info=False, hosts=3
    ).with_decisions(
        cells(1.407, []),
        Decision(1.742, "restart now", {"front": 1}),
    ),
    "a cell that was sent to a lost host gets no reply when the kernel is restarted on another host": replace(
        BASE, seed=3820, delay=0.025, rate=2e5, knows_info=False, hosts=2
    ).with_decisions(
        cells(12.791147358250905, []),
        Decision(15.13771139835491, "restart", {"front": 1}),
        Decision(15.658682092011906, "silent cut", {"seconds": 12.0}),
        cells(22.648871062418294, []),
    ),
    "a cell that runs on a lost host gets no reply when the kernel is restarted on another host": replace(
        BASE, seed=3039, delay=0.025, rate=5e6, memory_mib=0.02, rate_limited=False, revives=False, hosts=2
    ).with_decisions(
        Decision(0.1709117818280037, "silent cut", {"seconds": 4.0}),
        Decision(5.735874877791009, "restart", {"front": 1}),
        cells(8.296170318758042, [["sleep", 3.0], ["sleep", 3.0]]),
        Decision(14.205251088528657, "silent cut", {"seconds": 0.05}),
    ),
    "the kernel's reply to a request that its hub has answered comes to the next hub": replace(
        BASE, seed=3442, memory_mib=0.02, knows_info=False, hosts=2
    ).with_decisions(
        Decision(2.2416518701349926, "hub killed in a send", {"seconds": 0.05, "sends": 10, "writes": True}),
        Decision(8.584277571743932, "complete", {"front": 0}),
        cells(9.405969995951079, []),
        Decision(11.024836407909532, "hub killed", {"seconds": 0.05}),
    ),
    "the hub after a killed one does not know which requests to a kernel in a job were answered": replace(
        BASE, seed=3705, delay=0.025, rate=2e5, memory_mib=0.02, revives=False, slurm=True
    ).with_decisions(
        Decision(0.023525397809073256, "drop", {"seconds": 1.0}),
        Decision(2.1771575663642064, "hub killed in a send", {"seconds": 12.0, "sends": 11, "writes": False}),
        Decision(6.557973754853984, "half-open", {"seconds": 12.0, "up": False, "down": True}),
        cells(10.580249762223184, []),
        cells(10.911402409159795, [], front=1),
        cells(17.66900448591992, []),
    ),
    "a front end leaves while its call signs in, and its kernel is created all the same": replace(
        BASE,
        seed=2012284,
        delay=0.025,
        rate=5e6,
        memory_mib=0.002,
        knows_info=False,
        ends_with_shutdown=False,
        hosts=2,
    ).with_decisions(Decision(31.717272378796437, "return"), Decision(33.05134735754404, "hub killed")),
    "a restart ends a cell of a front end that is not back at the next hub yet: of several hosts": replace(
        BASE, seed=5007552, delay=0.0003, memory_mib=0.002, cap_mib=0.01, unread=4194304, hosts=2
    ).with_decisions(
        Decision(0.0, "foreign on host", {"host": 0, "seconds": 2.0}),
        Decision(0.0, "foreign on host", {"host": 1, "seconds": 6.0}),
        Decision(0.9150862403503925, "second front end", {"front": 0}),
        Decision(1.1776663527981617, "hub killed in a send", {"seconds": 0.05, "sends": 5, "writes": False}),
        cells(1.324958137250638, []),
        Decision(4.420324004265537, "restart", {"front": 1}),
    ),
    "code of a front end itself waits for ever when the kernel is restarted on another host": replace(
        BASE,
        seed=142,
        delay=0.0003,
        unread=20_000,
        knows_info=False,
        ends_with_shutdown=False,
        ids_collide=True,
        hosts=2,
    ).with_decisions(
        cells(0.697, [["sleep", 2.0]]),
        Decision(1.454, "host away", {"host": 0, "seconds": 6.0}),
        Decision(3.84, "hub killed", {"seconds": 1.0}),
        Decision(5.05, "own code", {"front": 0}),
        Decision(5.9, "restart now", {"front": 0}),
    ),
}
