"""Hubs are killed: what they have answered, written or passed on."""

from __future__ import annotations

from dataclasses import replace

from ..plan import Decision
from .common import BASE, cells

PLANS = {
    "the reply to a cell overtakes its output after a hub was killed": replace(
        BASE, seed=10, delay=0.025, knows_info=False
    ).with_decisions(
        Decision(13.425056, "hub killed in a send", {"seconds": 4.0, "sends": 5}),
        cells(14.890704, [["prints", 3, 20], ["prints", 1, 20000]], gap=0.3),
    ),
    "a cell that was answered after an adoption is unanswered for the next hub": replace(
        BASE, seed=137, delay=0.0003, memory_mib=0.002, rate_limited=False
    ).with_decisions(
        cells(2.833139, [["sleep", 40.0]], stop=False),
        Decision(2.922363, "hub killed in a send", {"seconds": 4.0, "sends": 1}),
        Decision(4.410167, "restart now"),
        Decision(11.842248, "hub killed in a send", {"seconds": 12.0, "sends": 4}),
        cells(12.222486, [["update", "d", "0"]]),
        cells(13.574557, []),
    ),
    "code of the front end itself is answered by two hubs": replace(
        BASE,
        seed=168,
        memory_mib=0.002,
        cap_mib=0.01,
        revives=False,
        rate=5e6,
        unread=4194304,
        rate_limited=False,
        knows_info=False,
    ).with_decisions(
        Decision(0.586801, "hub killed in a send", {"seconds": 4.0, "sends": 3}),
        cells(0.895552, [["sleep", 15.0]], stop=False),
        Decision(1.755858, "hub killed in a send", {"seconds": 1.0, "sends": 2}),
        Decision(3.349229, "own code", {"front": 1}),
        Decision(4.485119, "hub killed in a send", {"seconds": 1.0, "sends": 1}),
        Decision(4.922432, "own code", {"front": 0}),
    ),
    "a shutdown that a killed hub has left comes after the restart": replace(
        BASE, seed=3934, delay=0.0003, cap_mib=0.01, unread=4194304, rate_limited=False, knows_info=False
    ).with_decisions(
        Decision(0.763392, "unreachable", {"seconds": 4.0}),
        Decision(1.70971, "restart", {"front": 0}),
        Decision(4.24916, "hub killed", {"seconds": 4.0}),
        Decision(6.74279, "node rebooted", {"front": 0, "seconds": 1.0, "sends": 11}),
    ),
    "a hub is killed while it answers several requests of a lost kernel": replace(
        BASE, seed=69, rate=2e5, revives=False, ends_with_shutdown=False
    ).with_decisions(
        cells(3.537507, []),
        Decision(3.542507, "unreachable", {"seconds": 12.0}),
        Decision(9.408968, "second front end", {"front": 1}),
        cells(15.039236, []),
        Decision(17.450543, "hub killed in a send", {"seconds": 4.0, "sends": 11}),
        Decision(19.124427, "node rebooted", {"front": 0, "seconds": 1.0, "sends": 4}),
        cells(24.406857, [], front=1),
    ),
    "a kernel's files have an id that its front end does not know any more": replace(
        BASE, seed=20136, delay=0.1, unread=4194304
    ).with_decisions(
        Decision(0.545, "hub killed", {"seconds": 0.05}),
        Decision(3.313, "unreachable", {"seconds": 4.0}),
        Decision(9.628, "hub killed", {"seconds": 0.05}),
    ),
    "a hub is killed when it has sent a long text, which comes from the next hub in pieces": replace(
        BASE, seed=33, memory_mib=0.02, unread=4194304, revives=False, knows_info=False
    ).with_decisions(
        cells(20.231, [["prints", 4, 1_600_000]]),
        Decision(20.231, "hub killed in a send", {"seconds": 1.0, "sends": 3}),
        cells(21.189, []),
    ),
    "a killed hub has answered an interrupt in an outage, and the next hub passes on the kernel's status": replace(
        BASE, seed=2020411, delay=0.1, ends_with_shutdown=False
    ).with_decisions(
        Decision(1.385803731268943, "silent cut", {"seconds": 4.0}),
        Decision(4.475437560927395, "interrupt", {"front": 0}),
        Decision(7.25905768662959, "hub killed in a send", {"seconds": 0.05, "sends": 12, "writes": True}),
        cells(9.782907007555266, [], front=1),
        cells(10.667275589316398, []),
        Decision(13.618761070668846, "hub killed", {"seconds": 12.0}),
    ),
    "hub and keeper are killed, and the kernel ends before a successor has read what front ends know": replace(
        BASE, seed=2010927, delay=0.0003, rate=2e5, knows_info=False
    ).with_decisions(
        cells(
            3.2050676593460126,
            [
                ["sleep", 3.0],
                ["print", "stderr", "a warning 3\n"],
                ["prints", 1, 20],
                ["prints", 1, 20],
                ["sleep", 5.0],
                ["prints", 1, 5],
            ],
            stop=False,
        ),
        cells(3.7609180930899995, [["crash"]], front=1),
        Decision(4.931029443141524, "hub killed", {"seconds": 12.0}),
        Decision(10.762838156285692, "keeper killed"),
        Decision(12.577347840811868, "keeper killed"),
    ),
    "an interrupt ends a cell of a front end that is not back at the next hub yet": replace(
        BASE,
        seed=50000690,
        delay=0.0003,
        rate=5000000.0,
        memory_mib=0.002,
        cap_mib=0.01,
        rate_limited=False,
        knows_info=False,
    ).with_decisions(
        Decision(3.326978718217286, "second front end"),
        cells(3.4587222465320284, [["sleep", 2.0]], stop=False, gap=0.01),
        Decision(4.926978718217287, "hub killed", {"seconds": 1.0}),
        Decision(5.11544749506267, "node rebooted", {"seconds": 0.05}),
        cells(5.426978718217287, [], front=1),
        Decision(7.044556127713153, "interrupt", {"front": 0}),
        Decision(7.739759607305131, "hub killed", {"seconds": 4.0}),
    ),
    "a lost kernel waits for a restart whose shutdown_request came behind it at the next hub": replace(
        BASE,
        seed=2589,
        delay=0.1,
        rate=5e6,
        memory_mib=0.02,
        cap_mib=0.01,
        ends_with_shutdown=False,
        ids_collide=True,
    ).with_decisions(
        Decision(6.898, "node rebooted", {"seconds": 1.0}),
        Decision(23.153, "hub killed", {"seconds": 0.05}),
        Decision(23.939, "restart", {"front": 0}),
    ),
}
