"""The order of the kernels that wait, over several users; and what comes of it in the long run."""

from __future__ import annotations

import random
from typing import Dict, List

from jupyter_gpu_kernel.agent.gpus.turns import Waiting, in_turn, waiting_before

ANNA, BOB, CARL = 1001, 1002, 1003


def names(order: List[Waiting]) -> List[str]:
    return [kernel.kernel_id for kernel in order]


def test_one_user_first_come_first_served() -> None:
    waiting = [Waiting("b", ANNA, 2.0, 1), Waiting("a", ANNA, 1.0, 2), Waiting("c", ANNA, 3.0, 1)]
    assert names(in_turn(waiting, {})) == ["a", "b", "c"]
    assert names(waiting_before("c", waiting, {ANNA: 5})) == ["a", "b"]
    assert waiting_before("unknown", waiting, {}) == []


def test_twelve_kernels_of_one_user_do_not_shut_out_another_ones() -> None:
    waiting = [Waiting(f"a{at:02}", ANNA, at, 1) for at in range(12)] + [Waiting("b", BOB, 99.0, 1)]
    assert names(in_turn(waiting, {}))[:3] == ["a00", "b", "a01"]
    assert names(in_turn(waiting, {ANNA: 1}))[:2] == ["b", "a00"]


def test_priority_counts_among_ones_own() -> None:
    waiting = [Waiting("a", ANNA, 1.0, 1), Waiting("b", BOB, 2.0, 1), Waiting("c", ANNA, 3.0, 1, priority=5)]
    assert names(in_turn(waiting, {})) == ["b", "c", "a"]
    assert names(in_turn([waiting[0], waiting[2]], {})) == ["c", "a"]


def test_a_claim_to_several_is_not_overtaken() -> None:
    """Later claims to one GPU each, of whatever users, come behind it."""
    waiting = [Waiting("four", ANNA, 1.0, 4)] + [Waiting(f"u{uid}", uid, 2.0 + uid, 1) for uid in range(50)]
    assert waiting_before("four", waiting, {}) == []


def test_all_get_their_turn() -> None:
    """Kernels come at random and hold a GPU for a time: nobody waits for ever, and all users have as many turns."""
    chance = random.Random(7)
    free, clock = 4, 0
    held: Dict[int, int] = {}
    waiting: List[Waiting] = []
    running: List[Waiting] = []
    served: Dict[int, int] = {}
    longest = 0.0
    for clock in range(4000):
        for uid, many in ((ANNA, 3), (BOB, 1), (CARL, 1)):  # Anna always has three that wait
            while sum(kernel.uid == uid for kernel in waiting) < many:
                count = 2 if uid == CARL else 1
                waiting.append(Waiting(f"{uid}-{clock}-{len(waiting)}", uid, clock, count))
        for kernel in [one for one in running if chance.random() < 0.2]:
            running.remove(kernel)
            held[kernel.uid] -= kernel.gpus
            free += kernel.gpus
        for kernel in in_turn(waiting, held):
            if kernel.gpus > free:
                break  # what is free is kept for it
            waiting.remove(kernel)
            running.append(kernel)
            free -= kernel.gpus
            held[kernel.uid] = held.get(kernel.uid, 0) + kernel.gpus
            served[kernel.uid] = served.get(kernel.uid, 0) + 1
            longest = max(longest, clock - kernel.since)
    assert free >= 0 and longest < 100
    assert max(served.values()) < 1.2 * min(served.values())
