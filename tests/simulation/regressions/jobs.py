"""Kernels in jobs: their hubs are killed, their jobs end."""

from __future__ import annotations

from dataclasses import replace

from ..plan import Decision
from .common import BASE, cells

_IN_JOB = replace(BASE, slurm=True, knows_info=False)

PLANS = {
    "a cell gets no reply whose job ends before the hub after a killed one has found the kernel": replace(
        _IN_JOB, seed=1
    ).with_decisions(
        cells(0.5, [["sleep", 60.0]]),
        Decision(40.0, "hub killed"),
        Decision(40.1, "job ends", {"state": "TIMEOUT"}),
    ),
    "a cell gets no reply that was sent to a kernel in a job, and was lost with the hub": replace(
        _IN_JOB, seed=2
    ).with_decisions(
        cells(0.5, []),
        Decision(40.0, "silent cut", {"seconds": 4.0}),
        cells(40.1, []),
        Decision(40.5, "hub killed"),
    ),
    "the front ends of a kernel whose job has ended get two kernels from the next hub": replace(
        _IN_JOB, seed=355, delay=0.025, rate=2e5, memory_mib=0.02, rate_limited=False, knows_info=True
    ).with_decisions(
        cells(0.534, [], front=1),
        Decision(0.846, "hub killed in a send", {"seconds": 0.05, "sends": 9, "writes": False}),
        Decision(3.655, "second front end", {"front": 0}),
        Decision(3.969, "job ends", {"seconds": 6.0, "state": "TIMEOUT"}),
        Decision(4.192, "clear", {"front": 0}),
    ),
    "a kernel that was closed while its job was looked for cancels the job that its notebook has found": replace(
        _IN_JOB, seed=1143, delay=0.0003, rate=2e5, unread=20_000, revives=False, knows_info=True
    ).with_decisions(
        Decision(2.425196, "hub killed in a send", {"seconds": 1.0, "sends": 11, "writes": False}),
        Decision(2.528892, "return", {"front": 0}),
        cells(3.414641, []),
        Decision(10.356535, "restart", {"front": 0}),
        Decision(11.660692, "controller away", {"seconds": 15.0, "state": "CANCELLED"}),
        Decision(13.517585, "return", {"front": 0}),
    ),
    "a kernel outside of jobs takes a GPU of a job that the job's kernel has not opened yet": replace(
        _IN_JOB, seed=3, node_gpus=1, gpus=1
    ).with_decisions(
        cells(0.5, [["sleep", 1.0]]),
        Decision(1.0, "open notebook", {"number": 1, "priority": 0, "outside": True}),
        Decision(45.0, "in notebook", {"number": 1, "do": "cells", "cells": [[]], "stop": True, "gap": 0.0}),
    ),
    "a job that is kept for its notebook is kept after it has ended": replace(
        _IN_JOB, seed=1845, memory_mib=0.002, rate_limited=False
    ).with_decisions(
        cells(3.522, []),
        Decision(4.309, "return", {"front": 0}),
        Decision(4.753, "job ends", {"seconds": 6.0, "state": "CANCELLED"}),
    ),
    "the hub after a killed one waits for a front end that has left, and starts no kernel": replace(
        _IN_JOB, seed=69, delay=0.0003, rate=2e5
    ).with_decisions(
        Decision(6.726, "hub killed in a send", {"seconds": 4.0, "sends": 1, "writes": False}),
        Decision(9.409, "second front end", {"front": 1}),
        cells(15.039, []),
        Decision(24.134, "hub killed", {"seconds": 1.0}),
        Decision(25.834, "second leaves"),
    ),
    "a kernel is found again in a job that is about to be cancelled": replace(
        BASE, seed=2007680, delay=0.1, cap_mib=0.01, ends_with_shutdown=False, slurm=True
    ).with_decisions(
        cells(3.0039827757185926, [], stop=False),
        Decision(7.524332735570179, "unreachable", {"seconds": 12.0}),
        Decision(12.066011163455903, "interrupt", {"front": 0}),
        cells(12.57848310681158, []),
    ),
    "code that a killed hub has answered before the start does not run, as the disk was full": replace(
        _IN_JOB, seed=2003697, rate=2e5, unread=4194304, revives=False, ends_with_shutdown=False
    ).with_decisions(
        Decision(0.6961401827584751, "return", {"front": 0}),
        Decision(1.6322895154765464, "disk full", {"seconds": 4.0}),
        Decision(1.830407497063798, "hub killed in a send", {"seconds": 1.0, "sends": 6}),
        Decision(2.1529518926331215, "own code", {"front": 0}),
        cells(3.747549750987495, []),
    ),
    "a restart ends a cell of a front end that is not back at the next hub yet: in a job": replace(
        BASE, seed=4005387, delay=0.025, rate=5000000.0, memory_mib=0.02, rate_limited=False, slurm=True
    ).with_decisions(
        Decision(0.07519236839640175, "second front end"),
        cells(0.6751923683964017, []),
        Decision(1.6751923683964018, "hub killed", {"seconds": 1.0}),
        Decision(2.4545906083796245, "restart", {"front": 1}),
    ),
}
