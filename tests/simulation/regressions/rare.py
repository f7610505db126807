"""Plans in which conditions meet that seeds rarely draw together: each shows a planted bug that few seeds find."""

from __future__ import annotations

from dataclasses import replace

from ..plan import Decision
from .common import BASE, cells

PLANS = {
    "a chunk that comes twice is taken twice": replace(
        BASE, seed=300, rate=200000.0, memory_mib=0.02, ends_with_shutdown=False
    ).with_decisions(
        Decision(1.9248244100136969, "slow reader", {"seconds": 60.0, "front": 0}),
        cells(1.9348244100136969, [["prints", 8, 60000]]),
        Decision(5.886388640499565, "drop", {"front": 0, "seconds": 1.0, "sends": 1}),
    ),
    "output is kept for clients of a killed hub, and lost with this one": replace(
        BASE,
        seed=872,
        delay=0.0003,
        rate=5000000.0,
        unread=4194304,
        rate_limited=False,
        revives=False,
        knows_info=False,
        ids_collide=True,
        slurm=True,
    ).with_decisions(
        cells(0.10927071998321913, []),
        Decision(1.2687162170320767, "hub killed", {"seconds": 0.05}),
        Decision(1.9716149296239687, "restart", {"front": 0}),
    ),
    "what the next hub shows before clients have subscribed again is lost": replace(
        BASE, seed=400, delay=0.1, rate=5000000.0
    ).with_decisions(
        cells(
            3.6081127798943298,
            [
                [
                    "display",
                    "d351281-27",
                    "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
                ],
                [
                    "display",
                    "d351281-28",
                    "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
                ],
                [
                    "display",
                    "d351281-29",
                    "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
                ],
            ],
        ),
        Decision(3.6131127798943297, "unreachable", {"seconds": 4.0}),
        Decision(8.40355830907428, "hub killed in a send", {"front": 0, "seconds": 1.0, "sends": 8}),
        Decision(14.68098357848228, "info", {"front": 0}),
    ),
    "a cell that may have started a kernel is sent to another one": replace(
        BASE, seed=726, rate=200000.0, memory_mib=0.02, knows_info=False
    ).with_decisions(
        cells(5.282748639936318, [["crash"]]),
        Decision(6.782748639936318, "half-open", {"seconds": 1.0, "up": False, "down": True}),
        cells(6.8827486399363185, []),
        Decision(9.076988606129472, "node rebooted", {"seconds": 0.05}),
    ),
    "one of two front ends leaves when the next hub does not know the other one yet": replace(
        BASE, delay=0.025, rate=200000.0, memory_mib=0.002, revives=False, knows_info=False, seed=0
    ).with_decisions(
        Decision(1.5, "second front end", {}),
        cells(2.1, [["prints", 2, 20], ["sleep", 2.3737731564040936], ["prints", 2, 20]]),
        Decision(3.4, "hub killed", {"seconds": 1.0}),
        Decision(4.7, "second leaves", {}),
    ),
    "a hub is killed while output waits, and the keeper says something in another lane": replace(
        BASE, seed=13, delay=0.1, rate_limited=False, revives=False
    ).with_decisions(
        Decision(1.4, "slow reader", {"front": 0, "seconds": 10.0}),
        cells(
            1.5,
            [
                ["sleep", 0.5],
                ["prints", 8, 5000],
                [
                    "display",
                    "d326508-0",
                    "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
                ],
                ["sleep", 3.0],
            ],
        ),
        Decision(2.136, "clear", {"front": 0, "seconds": 1.0}),
        Decision(4.249, "hub killed", {"front": 0, "seconds": 1.0}),
    ),
    "a front end takes a kernel over that another one is about to restart": replace(
        BASE, delay=0.025, rate=200000.0, memory_mib=0.02, unread=4194304, knows_info=False, seed=0
    ).with_decisions(
        Decision(1.5, "second front end", {}),
        Decision(2.5, "restart", {"front": 0}),
        cells(2.5368, [["prints", 1, 20]], front=1),
    ),
    "a cell that has waited for the link is interrupted in the next outage": replace(
        BASE,
        delay=0.1,
        rate=5000000.0,
        memory_mib=0.02,
        unread=4194304,
        rate_limited=False,
        revives=False,
        seed=0,
    ).with_decisions(
        Decision(2.0, "unreachable", {"front": 0, "seconds": 4.0}),
        cells(3.0, [["prints", 1, 20], ["sleep", 20.0], ["prints", 1, 20]]),
        Decision(9.0, "unreachable", {"front": 0, "seconds": 4.0}),
        Decision(10.0, "interrupt", {"front": 0, "seconds": 1.0}),
    ),
    "an interrupt is lost with the link, and cells are sent after it": replace(
        BASE, delay=0.1, revives=False, seed=0
    ).with_decisions(
        Decision(2.0, "half-open", {"front": 0, "seconds": 12.0, "up": True, "down": False}),
        Decision(2.842, "interrupt", {"front": 0, "seconds": 1.0}),
        cells(3.149, [["prints", 1, 20]]),
    ),
    "a hub is killed before its requests have reached the keeper": replace(
        BASE, seed=1, delay=0.1, rate=5000000.0, memory_mib=0.02, revives=False
    ).with_decisions(
        Decision(2.0, "half-open", {"front": 0, "seconds": 12.0, "up": True, "down": False}),
        Decision(2.2, "complete", {"front": 0, "seconds": 1.0}),
        Decision(3.866, "hub killed", {"front": 0, "seconds": 1.0}),
    ),
    "keepers and then the hub are killed while a front end does not read": replace(
        BASE, seed=2, delay=0.025, rate=5000000.0, memory_mib=0.02, revives=False
    ).with_decisions(
        Decision(1.5, "slow reader", {"seconds": 30.0, "front": 0}),
        cells(
            1.51,
            [
                *[["sleep", 0.5], ["prints", 8, 60000], ["prints", 8, 60000]],
                *(["display", f"d{number}", "x" * 100] for number in range(31)),
            ],
        ),
        Decision(2.6182, "keeper killed", {"front": 0, "seconds": 1.0, "sends": 5}),
        Decision(9.2121, "hub killed", {"front": 0, "seconds": 1.0, "sends": 9}),
    ),
    "a notebook is closed while output waits for it": replace(
        BASE, delay=0.0003, memory_mib=0.002, knows_info=False, seed=0
    ).with_decisions(
        Decision(1.4, "slow reader", {"front": 0, "seconds": 60.0}),
        cells(1.5, [["prints", 8, 5000], ["prints", 8, 5000], ["prints", 8, 5000]]),
        Decision(4.865, "return", {"front": 0, "seconds": 1.0}),
    ),
    "a front end joins the next hub when one has left whose requests wait": replace(
        BASE, delay=0.025, memory_mib=0.02, unread=4194304, knows_info=False, seed=0
    ).with_decisions(
        Decision(1.0, "second front end", {"front": 0, "seconds": 1.0}),
        cells(2.0, [["sleep", 12.0]]),
        Decision(2.2, "complete", {"front": 1}),
        Decision(2.8, "second leaves", {"front": 0, "seconds": 1.0}),
        Decision(3.625, "hub killed", {"front": 0, "seconds": 1.0}),
        Decision(7.724, "second front end", {"front": 0, "seconds": 1.0}),
        Decision(9.0, "complete", {"front": 1}),
    ),
    "a keeper is killed after a checkpoint, while a cell waits for another one": replace(
        BASE, delay=0.0003, rate=5000000.0, revives=False, seed=0
    ).with_decisions(
        cells(1.5, [["sleep", 90.0], ["prints", 1, 20]]),
        Decision(2.0, "disk full", {"front": 0, "seconds": 1.0}),
        Decision(2.5, "info", {"front": 0, "seconds": 1.0}),
        Decision(4.0, "return", {"front": 0, "seconds": 1.0}),
        cells(20.0, [["prints", 1, 20]]),
        Decision(63.0, "info", {"front": 0, "seconds": 1.0}),
        Decision(70.0, "keeper killed", {"front": 0, "seconds": 1.0}),
    ),
    "a keeper is killed after a checkpoint of messages that the hub has not got": replace(
        BASE, delay=0.025, rate=200000.0, memory_mib=0.02, knows_info=False, seed=0
    ).with_decisions(
        cells(
            1.5,
            [
                ["sleep", 60.79075522493767],
                ["prints", 1, 20],
                ["sleep", 0.2],
                ["prints", 1, 20],
                ["sleep", 0.2],
                ["prints", 1, 20],
                ["sleep", 0.2],
                ["prints", 1, 20],
                ["sleep", 0.2],
                ["prints", 1, 20],
                ["sleep", 0.2],
                ["prints", 1, 20],
                ["sleep", 0.2],
                ["prints", 1, 20],
                ["sleep", 0.2],
                ["prints", 1, 20],
                ["sleep", 0.2],
                ["prints", 1, 20],
                ["sleep", 0.2],
                ["prints", 1, 20],
                ["sleep", 0.2],
            ],
        ),
        Decision(2.0, "disk full", {"front": 0, "seconds": 1.0}),
        Decision(2.5, "info", {"front": 0, "seconds": 1.0}),
        Decision(61.9, "half-open", {"front": 0, "seconds": 1.0, "up": False, "down": True}),
        Decision(63.47, "keeper killed", {"front": 0, "seconds": 1.0}),
    ),
    "a hub is killed while it passes on a text in pieces": replace(
        BASE, delay=0.025, rate=5000000.0, seed=0
    ).with_decisions(
        cells(1.51, [["prints", 4, 1_600_000]]),
        Decision(1.51, "hub killed in a send", {"seconds": 1.0, "sends": 9}),
        Decision(7.51, "info", {"front": 0, "seconds": 1.0}),
    ),
    "a hub is killed while it answers the requests of a kernel that is lost": replace(
        BASE, seed=11, delay=0.0003, rate=5000000.0, memory_mib=0.02, revives=False, knows_info=False
    ).with_decisions(
        cells(2.0, [["sleep", 60.0]], [["prints", 1, 20]], [["prints", 1, 20]]),
        Decision(3.0, "node rebooted", {"front": 0, "seconds": 4.0}),
        Decision(11.496, "hub killed in a send", {"front": 0, "seconds": 1.0, "sends": 2, "writes": True}),
        Decision(17.496, "info", {"front": 0, "seconds": 1.0}),
    ),
    "many displays wait on disk": replace(
        BASE, delay=0.0003, rate=200000.0, memory_mib=0.02, unread=4194304, revives=False, seed=0
    ).with_decisions(
        cells(1.5, [*[["sleep", 1.5]], *(["display", f"d{number}", "x" * 300] for number in range(150))]),
        Decision(2.2, "unreachable", {"front": 0, "seconds": 6.0}),
        Decision(8.2, "info", {"front": 0, "seconds": 1.0}),
    ),
    "requests come when it is known that the kernel is lost": replace(
        BASE, delay=0.1, memory_mib=0.02, seed=0
    ).with_decisions(
        Decision(2.0, "node rebooted", {"front": 0, "seconds": 1.0}),
        Decision(30.0, "complete", {"front": 0, "seconds": 1.0}),
    ),
    "cells are on their way when one before them fails": replace(
        BASE, delay=0.1, revives=False, seed=0
    ).with_decisions(
        cells(2.0, [["error"]], [["prints", 1, 20]], [["prints", 1, 20]], gap=0.15),
    ),
    "a cell of a front end that has left fails while another cell waits": replace(
        BASE, delay=0.1, rate=5000000.0, memory_mib=0.002, seed=0
    ).with_decisions(
        cells(1.5, [["sleep", 12.0], ["error"]]),
        Decision(2.5, "return", {}),
        cells(4.5, [["prints", 1, 20]]),
    ),
    "a keeper is killed before its kernel is up": replace(
        BASE, seed=20, delay=0.025, rate=5000000.0, unread=4194304
    ).with_decisions(
        cells(0.286, [["prints", 1, 20]], [["prints", 1, 20]]),
        Decision(0.652, "keeper killed", {"front": 0, "seconds": 1.0}),
        Decision(6.652, "info", {"front": 0, "seconds": 1.0}),
    ),
    "a cell that waits for the link is interrupted": replace(
        BASE, delay=0.025, memory_mib=0.02, rate_limited=False, revives=False, knows_info=False, seed=0
    ).with_decisions(
        Decision(2.0, "unreachable", {"front": 0, "seconds": 4.0}),
        cells(3.0, [["sleep", 100.0]]),
        Decision(4.0, "interrupt", {"front": 0, "seconds": 1.0}),
        Decision(8.0, "info", {"front": 0, "seconds": 1.0}),
        Decision(110.0, "info", {"front": 0, "seconds": 1.0}),
        Decision(116.0, "info", {"front": 0, "seconds": 1.0}),
    ),
}
