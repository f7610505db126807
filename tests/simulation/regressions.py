"""Plans that have shown a bug, which was mended: what `shrink` left of the seed that found it."""

from __future__ import annotations

from dataclasses import replace

from .plan import Decision, Plan

BASE = Plan(
    seed=0,
    decisions=(),
    delay=0.005,
    rate=1e8,
    memory_mib=8.0,
    cap_mib=512.0,
    unread=20_000,
    rate_limited=True,
    revives=True,
    knows_info=True,
    ends_with_shutdown=True,
)

PLANS = {
    "the reply to a cell overtakes its output after a hub was killed": replace(
        BASE, seed=10, delay=0.025, knows_info=False
    ).with_decisions(
        Decision(13.425056, "hub killed in a send", {"seconds": 4.0, "sends": 5}),
        Decision(
            14.890704,
            "cells",
            {"cells": [[["prints", 3, 20], ["prints", 1, 20000]]], "stop": True, "gap": 0.3},
        ),
    ),
    "a cell that was answered after an adoption is unanswered for the next hub": replace(
        BASE, seed=137, delay=0.0003, memory_mib=0.002, rate_limited=False
    ).with_decisions(
        Decision(2.833139, "cells", {"cells": [[["sleep", 40.0]]], "stop": False, "gap": 0.0}),
        Decision(2.922363, "hub killed in a send", {"seconds": 4.0, "sends": 1}),
        Decision(4.410167, "restart now"),
        Decision(11.842248, "hub killed in a send", {"seconds": 12.0, "sends": 4}),
        Decision(12.222486, "cells", {"cells": [[["update", "d", "0"]]], "stop": True, "gap": 0.0}),
        Decision(13.574557, "cells", {"cells": [[]], "stop": True, "gap": 0.0}),
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
        Decision(0.895552, "cells", {"cells": [[["sleep", 15.0]]], "stop": False, "gap": 0.0}),
        Decision(1.755858, "hub killed in a send", {"seconds": 1.0, "sends": 2}),
        Decision(3.349229, "own code", {"front": 1}),
        Decision(4.485119, "hub killed in a send", {"seconds": 1.0, "sends": 1}),
        Decision(4.922432, "own code", {"front": 0}),
    ),
    "an interrupt that comes late hits the next cell": replace(
        BASE, seed=24, memory_mib=0.002, rate_limited=False
    ).with_decisions(
        Decision(0.029378, "stall", {"seconds": 12.0, "up": True, "down": False}),
        Decision(2.447353, "interrupt command", {"front": 0}),
        Decision(4.793363, "cells", {"cells": [[]], "stop": False, "gap": 0.0}),
    ),
    "an interrupt that the hub has answered ends with an error, too, when the kernel is lost": replace(
        BASE, seed=301, rate=2e5, revives=False, ends_with_shutdown=False
    ).with_decisions(
        Decision(2.219746, "node rebooted", {"seconds": 4.0}),
        Decision(3.477347, "interrupt"),
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
        BASE, seed=69, rate=200000.0, revives=False, ends_with_shutdown=False
    ).with_decisions(
        Decision(3.537507, "cells", {"front": 0, "cells": [[]], "stop": True, "gap": 0.0}),
        Decision(3.542507, "unreachable", {"seconds": 12.0}),
        Decision(9.408968, "second front end", {"front": 1}),
        Decision(15.039236, "cells", {"front": 0, "cells": [[]], "stop": True, "gap": 0.0}),
        Decision(17.450543, "hub killed in a send", {"seconds": 4.0, "sends": 11}),
        Decision(19.124427, "node rebooted", {"front": 0, "seconds": 1.0, "sends": 4}),
        Decision(24.406857, "cells", {"front": 1, "cells": [[]], "stop": True, "gap": 0.0}),
    ),
    "a cell for a kernel that is lost waits until the restart, and is forgotten": replace(
        BASE, seed=47, delay=0.025, unread=4194304, revives=False
    ).with_decisions(
        Decision(
            1.192067, "cells", {"front": 0, "cells": [[["sleep", 0.5], ["crash"]]], "stop": True, "gap": 0.0}
        ),
        Decision(1.653343, "keeper killed", {"seconds": 0.05}),
        Decision(3.859691, "own code", {"front": 0}),
    ),
    "the state of a lost kernel is an older one, which had not been passed on": replace(
        BASE,
        seed=2021,
        delay=0.025,
        rate=5000000.0,
        memory_mib=0.02,
        rate_limited=False,
        revives=False,
        knows_info=False,
        ends_with_shutdown=False,
    ).with_decisions(
        Decision(4.258772, "slow reader", {"seconds": 60.0, "front": 0}),
        Decision(4.268772, "cells", {"front": 0, "cells": [[["prints", 8, 5000]]], "stop": True, "gap": 0.0}),
        Decision(7.797506, "restart now", {"front": 0, "seconds": 1.0, "sends": 10}),
        Decision(7.891253, "node rebooted", {"front": 0, "seconds": 1.0, "sends": 10}),
    ),
    "a text in pieces ends within a line when the node is rebooted": replace(
        BASE, seed=5270, delay=0.0003, rate=2e5
    ).with_decisions(
        Decision(
            5.018,
            "cells",
            {"cells": [[["prints", 8, 5000], *[["prints", 8, 60_000]] * 2]], "stop": True, "gap": 0.0},
        ),
        Decision(5.023, "unreachable", {"seconds": 4.0}),
        Decision(11.995, "node rebooted", {"seconds": 1.0}),
    ),
    "a successor takes the reply to code that was answered before it ran for a repeated one": replace(
        BASE, seed=264, delay=0.0003
    ).with_decisions(
        Decision(1.122, "keeper killed", {"seconds": 1.0}),
        Decision(15.943, "cells", {"cells": [[["sleep", 3.0], ["input"]]], "stop": True, "gap": 0.0}),
        Decision(16.432, "return", {"front": 0}),
        Decision(24.895, "own code", {"front": 0}),
    ),
    "the text for a new front end is shown in a cell of one that has left": replace(
        BASE, seed=3779, delay=0.025, rate=2e5, memory_mib=0.002
    ).with_decisions(
        Decision(7.884, "cells", {"cells": [[["sleep", 12.0]]], "stop": True, "gap": 0.0}),
        Decision(8.884, "return"),
        Decision(10.884, "cells", {"cells": [[]], "stop": True, "gap": 0.0}),
        Decision(14.586, "return"),
    ),
    "a reply for a front end that has left goes to the next one": replace(
        BASE, seed=918, revives=False, knows_info=False, ends_with_shutdown=False
    ).with_decisions(
        Decision(0.337873, "cells", {"front": 0, "cells": [[["sleep", 5.0]]], "stop": True, "gap": 0.0}),
        Decision(0.897719, "complete", {"front": 1}),
        Decision(2.099099, "return", {"front": 0}),
        Decision(4.753169, "cells", {"front": 0, "cells": [[]], "stop": True, "gap": 0.0}),
    ),
    "a request of which front ends have the idle status is answered with a second one when the kernel is lost": replace(
        BASE, seed=2204, delay=0.0003, unread=4194304, ends_with_shutdown=False
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
        Decision(2.285687787180068, "cells", {"cells": [[["sleep", 3.0]]], "stop": False, "gap": 0.0}),
        Decision(2.649947031161079, "keeper killed", {"seconds": 0.05}),
        Decision(3.012174957561981, "restart", {"front": 0}),
    ),
    "a kernel is shut down after its keeper was killed, and its last output is lost": replace(
        BASE, seed=2559, delay=0.1, rate=5e6, unread=4194304, revives=False, knows_info=False
    ).with_decisions(
        Decision(1.2496915860445794, "restart now", {"front": 0}),
        Decision(
            4.298296793709687,
            "cells",
            {"cells": [[["prints", 2, 20], ["sleep", 0.05]]], "stop": True, "gap": 0.0},
        ),
        Decision(4.30288851405826, "restart", {"front": 0}),
        Decision(4.315872619021323, "keeper killed", {"seconds": 0.05}),
        Decision(4.943986127155161, "hub killed", {"seconds": 0.05}),
    ),
    "a kernel's files have an id that its front end does not know any more": replace(
        BASE, seed=20136, delay=0.1, unread=4194304
    ).with_decisions(
        Decision(0.545, "hub killed", {"seconds": 0.05}),
        Decision(3.313, "unreachable", {"seconds": 4.0}),
        Decision(9.628, "hub killed", {"seconds": 0.05}),
    ),
    "an interrupt reaches the hub after a later cell, as both have waited for the front end's connection": replace(
        BASE, seed=0
    ).with_decisions(
        Decision(1.5, "return"),
        Decision(1.6, "interrupt"),
        Decision(2.2, "cells", {"cells": [[]], "stop": False, "gap": 0.0}),
        Decision(2.3, "unreachable", {"seconds": 4.0}),
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
        Decision(
            8.393052309337836,
            "cells",
            {
                "cells": [
                    [["prints", 2, 20], ["print", "stderr", "a warning 79\n"], ["prints", 4, 20], ["error"]]
                ],
                "stop": True,
                "gap": 0.0,
            },
        ),
        Decision(13.444848307555835, "own code", {"front": 0}),
    ),
    "an interrupt ends two large cells, which their front end gets back": replace(
        BASE, seed=21170, delay=0.0003, rate=5e6, memory_mib=0.002, ids_collide=True
    ).with_decisions(
        Decision(1.479, "unreachable", {"seconds": 12.0}),
        Decision(2.239, "cells", {"cells": [[["comment", "x" * 70_000]]], "stop": False, "gap": 0.0}),
        Decision(3.415, "cells", {"cells": [[["comment", "x" * 70_000]]], "stop": True, "gap": 0.0}),
        Decision(4.090, "interrupt command", {"front": 0}),
    ),
    "a keeper is killed while it gives its kernel to the notebook that is opened again": replace(
        BASE, seed=6633, revives=False
    ).with_decisions(
        Decision(2.988, "keeper killed"),
        Decision(3.005, "return"),
        Decision(3.984, "keeper killed"),
        Decision(5.521, "cells", {"cells": [[]], "stop": True, "gap": 0.0}),
    ),
    "a hub is killed when it has sent a long text, which comes from the next hub in pieces": replace(
        BASE, seed=33, memory_mib=0.02, unread=4194304, revives=False, knows_info=False
    ).with_decisions(
        Decision(20.231, "cells", {"cells": [[["prints", 4, 200_000]]], "stop": True, "gap": 0.0}),
        Decision(20.231, "hub killed in a send", {"seconds": 1.0, "sends": 3}),
        Decision(21.189, "cells", {"cells": [[]], "stop": True, "gap": 0.0}),
    ),
    "a request to a kernel that another computer has gets no reply": replace(
        BASE, seed=161, rate=5e6, unread=4194304
    ).with_decisions(
        Decision(2.281, "other computer"),
        Decision(4.453, "complete"),
    ),
    "a cell gets no reply, as its kernel had ended before the node was rebooted": replace(
        BASE, seed=137, rate=5e6, memory_mib=0.002, revives=False, ends_with_shutdown=False
    ).with_decisions(
        Decision(0.977, "cells", {"cells": [[["sleep", 0.05], ["crash"]]], "stop": False, "gap": 0.0}),
        Decision(0.987, "other computer"),
        Decision(3.591, "cells", {"cells": [[]], "stop": True, "gap": 0.0}),
        Decision(3.947, "node rebooted", {"seconds": 1.0}),
        Decision(8.226, "cells", {"front": 1, "cells": [[]], "stop": True, "gap": 0.0}),
    ),
    "a cell gets a second reply, as the first one waited when another computer took the kernel": replace(
        BASE, seed=1967, delay=0.025, rate=2e5, revives=False
    ).with_decisions(
        Decision(
            0.6019556376805157,
            "cells",
            {
                "cells": [
                    [
                        *(["sleep", seconds] for seconds in (0.5, 3.0, 0.05)),
                        *(["prints", 8, 60], ["sleep", 0.05]),
                        *(["prints", 8, 5000], ["sleep", 0.05], ["prints", 8, 5000]),
                    ]
                ],
                "stop": False,
                "gap": 0.0,
            },
        ),
        Decision(4.062741597031103, "hub killed in a send", {"seconds": 1.0, "sends": 8, "writes": True}),
        Decision(8.75540039183827, "other computer"),
    ),
    "a restart that was requested before another computer took the kernel is still to come": replace(
        BASE, seed=444, rate=2e5, knows_info=False
    ).with_decisions(
        Decision(4.870, "other computer"),
        Decision(4.993, "cells", {"cells": [[]], "stop": True, "gap": 0.0}),
        Decision(4.998, "unreachable", {"seconds": 4.0}),
        Decision(9.065, "restart now"),
        Decision(9.749, "restart"),
        Decision(14.783, "cells", {"front": 1, "cells": [[]], "stop": True, "gap": 0.0}),
        Decision(19.209, "node rebooted", {"seconds": 12.0}),
    ),
    "a kernel that was busy when another computer took it stays busy": replace(
        BASE, seed=2203, delay=0.1, memory_mib=0.002, unread=4194304, revives=False, ids_collide=True
    ).with_decisions(
        Decision(0.742, "cells", {"cells": [[["input"]]], "stop": True, "gap": 0.0}),
        Decision(0.953, "drop", {"computer": 1}),
        Decision(2.072, "other computer"),
        Decision(2.988, "cells", {"cells": [[]], "stop": True, "gap": 0.0}),
    ),
    "a cell runs again in a restarted kernel whose log was lost with its keeper": replace(
        BASE, seed=385, delay=0.025, unread=4194304, knows_info=False
    ).with_decisions(
        Decision(3.0146385764518975, "disk full", {"seconds": 12.0}),
        Decision(4.019969936797141, "cells", {"cells": [[["sleep", 4.0]]], "stop": True, "gap": 0.0}),
        Decision(4.3802169645149664, "keeper killed", {"seconds": 1.0}),
        Decision(4.468645193606857, "restart now", {"front": 1}),
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
        Decision(
            0.008944503464413667,
            "cells",
            {"cells": [[["prints", 8, 5000], ["prints", 8, 5000]]], "stop": True, "gap": 0.0},
        ),
        Decision(1.299909818685117, "return"),
        Decision(2.496272422083967, "stall", {"seconds": 1.0, "up": True, "down": False}),
        Decision(
            2.542512784212655,
            "cells",
            {
                "cells": [[["prints", 3, 20], ["sleep", 3.0], ["prints", 1, 20]]],
                "stop": True,
                "gap": 0.01,
            },
        ),
        Decision(5.312538702312656, "keeper killed", {"steps": 42}),
        *[Decision(5.412538702312656, "info", {"front": 0})] * 4,
        *[Decision(5.7125387023126555, "info", {"front": 0})] * 3,
        Decision(6.312538702312656, "info", {"front": 0}),
    ),
    "a kernel behind others looks at the queue all the time after a lease was released": replace(
        BASE,
        seed=288,
        delay=0.0003,
        rate=2e5,
        unread=4194304,
        rate_limited=False,
        revives=False,
        ends_with_shutdown=False,
        node_gpus=1,
        gpus=1,
    ).with_decisions(
        Decision(0.0, "foreign process", {"gpu": 0, "seconds": 4.0}),
        Decision(0.8360784280975478, "open notebook", {"number": 5, "priority": -5}),
        Decision(1.7015166916092561, "open notebook", {"number": 4, "priority": 5}),
        Decision(2.120512405670346, "open notebook", {"number": 6, "priority": 5}),
        Decision(
            2.742539812715044,
            "in notebook",
            {"number": 6, "do": "cells", "cells": [[]], "stop": True, "gap": 0.0},
        ),
        Decision(
            3.4779901407919525,
            "in notebook",
            {"number": 5, "do": "cells", "cells": [[]], "stop": True, "gap": 0.0},
        ),
        Decision(
            4.309252921996495,
            "in notebook",
            {"number": 4, "do": "cells", "cells": [[]], "stop": True, "gap": 0.0},
        ),
        Decision(
            9.393654987657579,
            "cells",
            {
                "front": 0,
                "cells": [[["print", "stderr", "a warning 25\n"], ["prints", 1, 5]]],
                "stop": True,
                "gap": 0.0,
            },
        ),
        Decision(17.047288804731966, "slow node", {"seconds": 4.0}),
        Decision(26.449014359864627, "hub killed", {"seconds": 0.05}),
    ),
    "a successor without a log drops the reply to a cell that ended before the hub named it": replace(
        BASE, seed=2724, delay=0.0003, memory_mib=0.002, knows_info=False
    ).with_decisions(
        Decision(5.692907684111907, "disk full", {"seconds": 12.0}),
        Decision(
            7.556285139114221,
            "cells",
            {
                "front": 0,
                "cells": [[["sleep", 0.05], ["sleep", 0.05], ["sleep", 0.05]]],
                "stop": True,
                "gap": 0.0,
            },
        ),
        Decision(7.695116269078237, "keeper killed"),
    ),
    "a successor without a log drops the replies that come before the hub names the cells": replace(
        BASE, seed=2570, delay=0.0003, rate=5000000.0, memory_mib=0.02, unread=4194304, knows_info=False
    ).with_decisions(
        Decision(8.692048331439702, "disk full", {"seconds": 4.0}),
        Decision(10.09933644631225, "restart now", {"front": 0}),
        Decision(18.808014147738845, "hub killed in a send", {"seconds": 0.05, "sends": 12, "writes": True}),
        Decision(
            26.949759515967003,
            "cells",
            {
                "front": 0,
                "cells": [
                    [["prints", 2, 20], ["sleep", 0.3], ["prints", 2, 20]],
                    [["prints", 2, 20], ["sleep", 0.3], ["prints", 2, 20]],
                    [["prints", 2, 20], ["sleep", 0.3], ["prints", 2, 20]],
                ],
                "stop": True,
                "gap": 0.0,
            },
        ),
        Decision(27.707453492648785, "keeper killed"),
    ),
    "a question comes again, as neither hub nor keeper knows that it was asked": replace(
        BASE, seed=3653, delay=0.0003, rate=200000.0, rate_limited=False, revives=False, ids_collide=True
    ).with_decisions(
        Decision(1.492866286679993, "keeper killed"),
        Decision(1.6476187823823794, "restart now", {"front": 0}),
        Decision(
            1.8499169660697972, "cells", {"front": 0, "cells": [[["input"]]], "stop": False, "gap": 0.0}
        ),
        Decision(3.674195072967086, "keeper killed"),
        Decision(4.046752905838062, "hub killed", {"seconds": 1.0}),
    ),
    "an interrupt overtakes a large cell": replace(BASE, seed=1, rate=2e5, delay=0.025).with_decisions(
        Decision(
            2.0,
            "cells",
            {"cells": [[["comment", "x" * 300_000], ["sleep", 1000.0]]], "stop": True, "gap": 0.0},
        ),
        Decision(2.2, "interrupt", {"front": 0}),
    ),
    "an interrupt overtakes a cell while its kernel starts": replace(BASE, seed=3).with_decisions(
        Decision(0.1, "cells", {"cells": [[["sleep", 1000.0]]], "stop": True, "gap": 0.0}),
        Decision(0.15, "interrupt", {"front": 0}),
    ),
    "an interrupt overtakes a cell before the next hub is attached": replace(BASE, seed=2).with_decisions(
        Decision(2.0, "hub killed", {"seconds": 1.0}),
        Decision(2.1, "cells", {"cells": [[["sleep", 1000.0]]], "stop": True, "gap": 0.0}),
        Decision(2.2, "interrupt", {"front": 0}),
    ),
}
