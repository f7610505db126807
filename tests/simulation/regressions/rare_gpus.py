"""Plans in which conditions meet that seeds rarely draw together: each shows a planted bug that few seeds find. Several
kernels need the same GPUs."""

from __future__ import annotations

from dataclasses import replace

from ..plan import Decision
from .common import BASE, cells


def _in_notebook(at: float, number: int, seconds: float) -> Decision:
    """A cell in this notebook uses the GPU for so many seconds."""
    cell = [["open GPUs"], ["sleep", seconds]]
    facts = {"number": number, "do": "cells", "cells": [cell], "stop": True, "gap": 0.0}
    return Decision(at, "in notebook", facts)


PLANS = {
    "a kernel takes the GPU that is kept for another one, by samples from before both asked": replace(
        BASE, node_gpus=2, gpus=1
    ).with_decisions(
        *(
            Decision(0.4 + 0.1 * number, "open notebook", {"number": number, "priority": 0})
            for number in (1, 2, 3)
        ),
        _in_notebook(6.0, 1, 60.0),
        Decision(8.0, "foreign process", {"gpu": 1, "seconds": 12.0}),
        _in_notebook(10.0, 2, 2.0),
        _in_notebook(20.3, 3, 2.0),
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
        cells(9.1727, [["prints", 3, 20], ["sleep", 0.5], ["input"], ["prints", 1, 5]], stop=False),
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
        cells(11.7301, [["open GPUs"], ["prints", 1, 3], ["prints", 4, 20], ["prints", 4, 20000]]),
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
        cells(
            4.0878,
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
            ],
            stop=False,
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
        cells(
            5.3464,
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
            front=1,
            gap=0.01,
        ),
        Decision(6.7003, "open notebook", {"number": 2, "priority": 0}),
    ),
}
