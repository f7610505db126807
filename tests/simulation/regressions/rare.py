"""Plans in which conditions meet that seeds rarely draw together: each shows a planted bug that few seeds find."""

from __future__ import annotations

from dataclasses import replace

from ..plan import Decision
from .common import BASE

PLANS = {
    "one of two front ends leaves when the next hub does not know the other one yet": replace(
        BASE, delay=0.025, rate=200000.0, memory_mib=0.002, revives=False, knows_info=False, seed=0
    ).with_decisions(
        Decision(1.5, "second front end", {}),
        Decision(
            2.1,
            "cells",
            {
                "front": 0,
                "cells": [[["prints", 2, 20], ["sleep", 2.3737731564040936], ["prints", 2, 20]]],
                "stop": True,
                "gap": 0.0,
            },
        ),
        Decision(3.4, "hub killed", {"seconds": 1.0}),
        Decision(4.7, "second leaves", {}),
    ),
    "a hub is killed while output waits, and the keeper says something in another lane": replace(
        BASE, seed=13, delay=0.1, rate_limited=False, revives=False
    ).with_decisions(
        Decision(1.4, "slow reader", {"front": 0, "seconds": 10.0}),
        Decision(
            1.5,
            "cells",
            {
                "front": 0,
                "cells": [
                    [
                        ["sleep", 0.5],
                        ["prints", 8, 5000],
                        [
                            "display",
                            "d326508-0",
                            "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
                        ],
                        ["sleep", 3.0],
                    ]
                ],
                "stop": True,
                "gap": 0.0,
            },
        ),
        Decision(2.136, "clear", {"front": 0, "seconds": 1.0}),
        Decision(4.249, "hub killed", {"front": 0, "seconds": 1.0}),
    ),
    "a front end takes a kernel over that another one is about to restart": replace(
        BASE, delay=0.025, rate=200000.0, memory_mib=0.02, unread=4194304, knows_info=False, seed=0
    ).with_decisions(
        Decision(1.5, "second front end", {}),
        Decision(2.5, "restart", {"front": 0}),
        Decision(2.5368, "cells", {"front": 1, "cells": [[["prints", 1, 20]]], "stop": True, "gap": 0.0}),
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
        Decision(
            3.0,
            "cells",
            {
                "front": 0,
                "cells": [[["prints", 1, 20], ["sleep", 20.0], ["prints", 1, 20]]],
                "stop": True,
                "gap": 0.0,
            },
        ),
        Decision(9.0, "unreachable", {"front": 0, "seconds": 4.0}),
        Decision(10.0, "interrupt", {"front": 0, "seconds": 1.0}),
    ),
    "an interrupt is lost with the link, and cells are sent after it": replace(
        BASE, delay=0.1, revives=False, seed=0
    ).with_decisions(
        Decision(2.0, "half-open", {"front": 0, "seconds": 12.0, "up": True, "down": False}),
        Decision(2.842, "interrupt", {"front": 0, "seconds": 1.0}),
        Decision(3.149, "cells", {"front": 0, "cells": [[["prints", 1, 20]]], "stop": True, "gap": 0.0}),
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
        Decision(
            1.51,
            "cells",
            {
                "front": 0,
                "cells": [
                    [
                        *[["sleep", 0.5], ["prints", 8, 60000], ["prints", 8, 60000]],
                        *(["display", f"d{number}", "x" * 100] for number in range(31)),
                    ]
                ],
                "stop": True,
                "gap": 0.0,
            },
        ),
        Decision(2.6182, "keeper killed", {"front": 0, "seconds": 1.0, "sends": 5}),
        Decision(9.2121, "hub killed", {"front": 0, "seconds": 1.0, "sends": 9}),
    ),
    "a cell does not wait for GPUs any more": replace(
        BASE,
        seed=9,
        delay=0.025,
        memory_mib=0.02,
        rate_limited=False,
        revives=False,
        ends_with_shutdown=False,
        node_gpus=1,
        gpus=1,
    ).with_decisions(
        Decision(0.0, "foreign process", {"gpu": 0, "seconds": 12.0}),
        Decision(2.8753, "open notebook", {"number": 2, "priority": -5}),
        Decision(
            4.0109,
            "in notebook",
            {
                "number": 2,
                "do": "cells",
                "cells": [[["open GPUs"], ["prints", 1, 20], ["sleep", 8.0], ["prints", 1, 20]]],
                "stop": True,
                "gap": 0.0,
            },
        ),
        Decision(5.4828, "in notebook", {"number": 2, "do": "interrupt"}),
        Decision(5.6519, "open notebook", {"number": 5, "priority": 5}),
        Decision(7.3242, "open notebook", {"number": 6, "priority": -5}),
    ),
    "a foreign process has a GPU": replace(
        BASE,
        seed=6,
        delay=0.025,
        memory_mib=0.02,
        cap_mib=0.01,
        unread=4194304,
        knows_info=False,
        ends_with_shutdown=False,
        node_gpus=3,
        gpus=1,
        gpu_timeout=10.0,
    ).with_decisions(
        Decision(0.0, "foreign process", {"gpu": 0, "seconds": 25.0}),
        Decision(0.01, "foreign process", {"gpu": 1, "seconds": 25.0}),
        Decision(0.02, "foreign process", {"gpu": 2, "seconds": 25.0}),
        Decision(4.9921, "open notebook", {"number": 5, "priority": 5}),
        Decision(
            7.6287,
            "in notebook",
            {
                "number": 5,
                "do": "cells",
                "cells": [[["prints", 1, 20], ["sleep", 2.0]]],
                "stop": True,
                "gap": 0.0,
            },
        ),
        Decision(11.9393, "open notebook", {"number": 4, "priority": 5}),
    ),
    "a claim to GPUs cannot be confirmed": replace(
        BASE,
        seed=27,
        delay=0.1,
        unread=4194304,
        rate_limited=False,
        revives=False,
        ends_with_shutdown=False,
        node_gpus=2,
        gpus=1,
        gpu_timeout=10.0,
    ).with_decisions(
        Decision(0.5025, "foreign process", {"gpu": 0, "seconds": 1.0}),
        Decision(8.0339, "return", {"front": 0}),
        Decision(
            9.1727,
            "cells",
            {
                "front": 0,
                "cells": [[["prints", 3, 20], ["sleep", 0.5], ["input"], ["prints", 1, 5]]],
                "stop": False,
                "gap": 0.0,
            },
        ),
        Decision(10.016, "open notebook", {"number": 1, "priority": 5}),
        Decision(10.5799, "slow node", {"seconds": 1.0}),
        Decision(
            11.4455,
            "in notebook",
            {
                "number": 1,
                "do": "cells",
                "cells": [[["open GPUs"], ["prints", 1, 20], ["sleep", 0.1], ["prints", 1, 20]]],
                "stop": True,
                "gap": 0.0,
            },
        ),
        Decision(
            11.7301,
            "cells",
            {
                "front": 0,
                "cells": [[["open GPUs"], ["prints", 1, 3], ["prints", 4, 20], ["prints", 4, 20000]]],
                "stop": True,
                "gap": 0.0,
            },
        ),
        Decision(13.9663, "foreign process", {"gpu": 0, "seconds": 4.0}),
        Decision(
            17.0248,
            "in notebook",
            {
                "number": 1,
                "do": "cells",
                "cells": [[["prints", 1, 20], ["sleep", 8.0], ["prints", 1, 20]]],
                "stop": True,
                "gap": 0.0,
            },
        ),
    ),
    "a cell waits for GPUs in one of several notebooks": replace(
        BASE,
        seed=9,
        delay=0.025,
        memory_mib=0.02,
        rate_limited=False,
        revives=False,
        ends_with_shutdown=False,
        node_gpus=1,
        gpus=1,
    ).with_decisions(
        Decision(0.0, "foreign process", {"gpu": 0, "seconds": 12.0}),
        Decision(
            4.0878,
            "cells",
            {
                "front": 0,
                "cells": [
                    [
                        ["open GPUs"],
                        ["prints", 2, 20],
                        ["sleep", 0.05],
                        ["print", "stderr", "a warning 93\n"],
                        ["prints", 2, 20],
                        ["sleep", 3.0],
                        ["prints", 4, 20],
                        ["display", "d533339", "first"],
                        ["sleep", 0.3],
                        ["update", "d533339", "0"],
                        ["update", "d533339", "1"],
                        ["update", "d533339", "2"],
                        ["update", "d533339", "3"],
                    ]
                ],
                "stop": False,
                "gap": 0.0,
            },
        ),
        Decision(5.6519, "open notebook", {"number": 5, "priority": 5}),
        Decision(
            7.9061,
            "in notebook",
            {
                "number": 5,
                "do": "cells",
                "cells": [[["open GPUs"], ["prints", 1, 20], ["sleep", 0.1]]],
                "stop": True,
                "gap": 0.0,
            },
        ),
    ),
    "a foreign process takes a GPU that is about to be claimed": replace(
        BASE,
        seed=74,
        delay=0.025,
        rate=200000.0,
        memory_mib=0.02,
        cap_mib=0.01,
        unread=4194304,
        node_gpus=1,
        gpus=1,
    ).with_decisions(
        Decision(2.6158, "foreign process", {"gpu": 0, "seconds": 12.0}),
        Decision(
            5.3464,
            "cells",
            {
                "front": 1,
                "cells": [
                    [
                        ["open GPUs"],
                        ["prints", 3, 20],
                        ["sleep", 0.05],
                        ["prints", 4, 3],
                        ["sleep", 3.0],
                        ["error"],
                    ],
                    [
                        ["open GPUs"],
                        ["prints", 1, 20],
                        ["sleep", 0.5],
                        ["prints", 4, 20],
                        ["prints", 1, 20],
                        ["display", "d620218", "first"],
                        ["sleep", 0.3],
                        ["update", "d620218", "0"],
                        ["update", "d620218", "1"],
                        ["update", "d620218", "2"],
                        ["update", "d620218", "3"],
                        ["update", "d620218", "4"],
                    ],
                    [
                        ["open GPUs"],
                        ["prints", 1, 20],
                        ["prints", 1, 20],
                        ["print", "stderr", "a warning 87\n"],
                    ],
                ],
                "stop": True,
                "gap": 0.01,
            },
        ),
        Decision(6.7003, "open notebook", {"number": 2, "priority": 0}),
    ),
    "a notebook is closed while output waits for it": replace(
        BASE, delay=0.0003, memory_mib=0.002, knows_info=False, seed=0
    ).with_decisions(
        Decision(1.4, "slow reader", {"front": 0, "seconds": 60.0}),
        Decision(
            1.5,
            "cells",
            {
                "front": 0,
                "cells": [[["prints", 8, 5000], ["prints", 8, 5000], ["prints", 8, 5000]]],
                "stop": True,
                "gap": 0.0,
            },
        ),
        Decision(4.865, "return", {"front": 0, "seconds": 1.0}),
    ),
    "a front end joins the next hub when one has left whose requests wait": replace(
        BASE, delay=0.025, memory_mib=0.02, unread=4194304, knows_info=False, seed=0
    ).with_decisions(
        Decision(1.0, "second front end", {"front": 0, "seconds": 1.0}),
        Decision(2.0, "cells", {"front": 0, "cells": [[["sleep", 12.0]]], "stop": True, "gap": 0.0}),
        Decision(2.2, "complete", {"front": 1}),
        Decision(2.8, "second leaves", {"front": 0, "seconds": 1.0}),
        Decision(3.625, "hub killed", {"front": 0, "seconds": 1.0}),
        Decision(7.724, "second front end", {"front": 0, "seconds": 1.0}),
        Decision(9.0, "complete", {"front": 1}),
    ),
    "a keeper is killed after a checkpoint, while a cell waits for another one": replace(
        BASE, delay=0.0003, rate=5000000.0, revives=False, seed=0
    ).with_decisions(
        Decision(
            1.5,
            "cells",
            {"front": 0, "cells": [[["sleep", 90.0], ["prints", 1, 20]]], "stop": True, "gap": 0.0},
        ),
        Decision(2.0, "disk full", {"front": 0, "seconds": 1.0}),
        Decision(2.5, "info", {"front": 0, "seconds": 1.0}),
        Decision(4.0, "return", {"front": 0, "seconds": 1.0}),
        Decision(20.0, "cells", {"front": 0, "cells": [[["prints", 1, 20]]], "stop": True, "gap": 0.0}),
        Decision(63.0, "info", {"front": 0, "seconds": 1.0}),
        Decision(70.0, "keeper killed", {"front": 0, "seconds": 1.0}),
    ),
    "a keeper is killed after a checkpoint of messages that the hub has not got": replace(
        BASE, delay=0.025, rate=200000.0, memory_mib=0.02, knows_info=False, seed=0
    ).with_decisions(
        Decision(
            1.5,
            "cells",
            {
                "front": 0,
                "cells": [
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
                    ]
                ],
                "stop": True,
                "gap": 0.0,
            },
        ),
        Decision(2.0, "disk full", {"front": 0, "seconds": 1.0}),
        Decision(2.5, "info", {"front": 0, "seconds": 1.0}),
        Decision(61.9, "half-open", {"front": 0, "seconds": 1.0, "up": False, "down": True}),
        Decision(63.47, "keeper killed", {"front": 0, "seconds": 1.0}),
    ),
    "a hub is killed while it passes on a text in pieces": replace(
        BASE, delay=0.025, rate=5000000.0, seed=0
    ).with_decisions(
        Decision(1.51, "cells", {"front": 0, "cells": [[["prints", 4, 200000]]], "stop": True, "gap": 0.0}),
        Decision(1.51, "hub killed in a send", {"seconds": 1.0, "sends": 9}),
        Decision(7.51, "info", {"front": 0, "seconds": 1.0}),
    ),
    "a hub is killed while it answers the requests of a kernel that is lost": replace(
        BASE, seed=11, delay=0.0003, rate=5000000.0, memory_mib=0.02, revives=False, knows_info=False
    ).with_decisions(
        Decision(
            2.0,
            "cells",
            {
                "front": 0,
                "cells": [[["sleep", 60.0]], [["prints", 1, 20]], [["prints", 1, 20]]],
                "stop": True,
                "gap": 0.0,
            },
        ),
        Decision(3.0, "node rebooted", {"front": 0, "seconds": 4.0}),
        Decision(11.496, "hub killed in a send", {"front": 0, "seconds": 1.0, "sends": 2, "writes": True}),
        Decision(17.496, "info", {"front": 0, "seconds": 1.0}),
    ),
    "many displays wait on disk": replace(
        BASE, delay=0.0003, rate=200000.0, memory_mib=0.02, unread=4194304, revives=False, seed=0
    ).with_decisions(
        Decision(
            1.5,
            "cells",
            {
                "front": 0,
                "cells": [
                    [*[["sleep", 1.5]], *(["display", f"d{number}", "x" * 300] for number in range(150))]
                ],
                "stop": True,
                "gap": 0.0,
            },
        ),
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
        Decision(
            2.0,
            "cells",
            {
                "front": 0,
                "cells": [[["error"]], [["prints", 1, 20]], [["prints", 1, 20]]],
                "stop": True,
                "gap": 0.15,
            },
        ),
    ),
    "a cell of a front end that has left fails while another cell waits": replace(
        BASE, delay=0.1, rate=5000000.0, memory_mib=0.002, seed=0
    ).with_decisions(
        Decision(
            1.5, "cells", {"front": 0, "cells": [[["sleep", 12.0], ["error"]]], "stop": True, "gap": 0.0}
        ),
        Decision(2.5, "return", {}),
        Decision(4.5, "cells", {"front": 0, "cells": [[["prints", 1, 20]]], "stop": True, "gap": 0.0}),
    ),
    "a keeper is killed before its kernel is up": replace(
        BASE, seed=20, delay=0.025, rate=5000000.0, unread=4194304
    ).with_decisions(
        Decision(
            0.286,
            "cells",
            {"front": 0, "cells": [[["prints", 1, 20]], [["prints", 1, 20]]], "stop": True, "gap": 0.0},
        ),
        Decision(0.652, "keeper killed", {"front": 0, "seconds": 1.0}),
        Decision(6.652, "info", {"front": 0, "seconds": 1.0}),
    ),
    "a cell that waits for the link is interrupted": replace(
        BASE, delay=0.025, memory_mib=0.02, rate_limited=False, revives=False, knows_info=False, seed=0
    ).with_decisions(
        Decision(2.0, "unreachable", {"front": 0, "seconds": 4.0}),
        Decision(3.0, "cells", {"front": 0, "cells": [[["sleep", 100.0]]], "stop": True, "gap": 0.0}),
        Decision(4.0, "interrupt", {"front": 0, "seconds": 1.0}),
        Decision(8.0, "info", {"front": 0, "seconds": 1.0}),
        Decision(110.0, "info", {"front": 0, "seconds": 1.0}),
        Decision(116.0, "info", {"front": 0, "seconds": 1.0}),
    ),
}
