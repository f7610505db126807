"""Kernels wait for GPUs."""

from __future__ import annotations

from dataclasses import replace

from ..plan import Decision
from .common import BASE, cells

PLANS = {
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
        cells(9.393654987657579, [["print", "stderr", "a warning 25\n"], ["prints", 1, 5]]),
        Decision(17.047288804731966, "slow node", {"seconds": 4.0}),
        Decision(26.449014359864627, "hub killed", {"seconds": 0.05}),
    ),
    "another kernel takes a GPU whose keeper was killed before its kernel has opened it": replace(
        BASE,
        seed=3963,
        delay=0.0003,
        rate=5e6,
        unread=4194304,
        revives=False,
        node_gpus=1,
        gpus=1,
    ).with_decisions(
        Decision(6.857408745927127, "open notebook", {"number": 2, "priority": 5}),
        Decision(
            14.676222877690659,
            "in notebook",
            {"number": 2, "do": "cells", "cells": [[["sleep", 8.0]]], "stop": True, "gap": 0.0},
        ),
        Decision(17.033228107703124, "cells", {"front": 0, "cells": [[]], "stop": True, "gap": 0.0}),
        Decision(17.052239946793833, "keeper killed", {"seconds": 4.0}),
        Decision(26.21576600304732, "cells", {"front": 0, "cells": [[["crash"]]], "stop": True, "gap": 0.0}),
        Decision(26.940592544359102, "silent cut", {"seconds": 0.05}),
    ),
}
