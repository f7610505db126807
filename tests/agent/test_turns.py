"""The order of the kernels that wait, over several users; and what comes of it in the long run."""

from __future__ import annotations

import math
import random
from typing import Dict, List

from jupyter_gpu_kernel.agent.gpus.sharing.turns import (
    KEPT,
    UNTAKEN_FOR,
    PassedPlaces,
    WaitingKernel,
    gpu_bits,
    in_turn,
    waiting_before,
)

ANNA, BOB, CARL = 1001, 1002, 1003


def names(order: List[WaitingKernel]) -> List[str]:
    return [one.kernel_id for one in order]


def kernel(
    kernel_id: str, uid: int, since: float, gpus: int = 1, priority: int = 0, usable: int = 1
) -> WaitingKernel:
    return WaitingKernel(kernel_id, uid, since, gpus, priority, usable)


def test_one_user_first_come_first_served() -> None:
    first, second, third = kernel("b", ANNA, 1.0, 2), kernel("a", ANNA, 2.0), kernel("c", ANNA, 3.0)
    assert in_turn([third, first, second], {}) == [first, second, third]
    assert waiting_before(third, [second, first], {ANNA: 5}) == [first, second]


def test_twelve_kernels_of_one_user_do_not_shut_out_another_ones() -> None:
    waiting = [kernel(f"a{at:02}", ANNA, at) for at in range(12)] + [kernel("b", BOB, 99.0)]
    assert names(in_turn(waiting, {}))[:3] == ["a00", "b", "a01"]
    assert names(in_turn(waiting, {ANNA: 1}))[:2] == ["b", "a00"]


def test_priority_counts_among_ones_own() -> None:
    waiting = [kernel("a", ANNA, 1.0), kernel("b", BOB, 2.0), kernel("c", ANNA, 3.0, priority=5)]
    assert names(in_turn(waiting, {})) == ["b", "c", "a"]
    assert names(in_turn([waiting[0], waiting[2]], {})) == ["c", "a"]


def test_a_claim_to_several_is_not_overtaken() -> None:
    """Later claims to one GPU each, of whatever users, come behind it."""
    others = [kernel(f"u{uid}", uid, 2.0 + uid) for uid in range(50)]
    assert waiting_before(kernel("four", ANNA, 1.0, 4), others, {}) == []


def test_a_time_that_is_not_plausible_comes_last() -> None:
    liar, honest = kernel("liar", BOB, math.inf, 99), kernel("honest", ANNA, 5.0)
    assert in_turn([liar, honest], {ANNA: 3}) == [honest, liar]


def test_kernels_that_need_other_gpus_do_not_count() -> None:
    """Each of two jobs sees its own GPU as the first one of the node."""
    mine = kernel("mine", ANNA, 2.0, usable=gpu_bits(["GPU-x"]))
    other = kernel("other", BOB, 1.0, usable=gpu_bits(["GPU-y"]))
    both = kernel("both", BOB, 1.0, usable=gpu_bits(["GPU-x", "GPU-y"]))
    assert waiting_before(mine, [other], {ANNA: 1}) == []
    assert waiting_before(mine, [other, both], {}) == [both]
    assert both.can_use("GPU-x") and not other.can_use("GPU-x")


def test_two_kernels_never_wait_for_each_other() -> None:
    """Whatever GPUs each of them can use: a kernel that comes before another one does not come after it."""
    anna, also = kernel("anna", ANNA, 1.0, usable=0b01), kernel("also", ANNA, 2.0, usable=0b11)
    bob = kernel("bob", BOB, 3.0, usable=0b10)
    assert names(waiting_before(also, [anna, bob], {})) == ["anna", "bob"]
    assert waiting_before(bob, [anna, also], {}) == []
    chance = random.Random(3)
    for _ in range(200):
        waiting = [
            kernel(
                f"k{number}",
                chance.choice([ANNA, BOB, CARL]),
                chance.randrange(5),
                chance.choice([1, 2]),
                chance.choice([0, 0, 3]),
                chance.randrange(1, 8),
            )
            for number in range(6)
        ]
        held = {ANNA: chance.randrange(3)}
        before = {
            one: waiting_before(one, [other for other in waiting if other is not one], held)
            for one in waiting
        }
        assert not any(one in before[other] for one in waiting for other in before[one])


def test_gpus_are_not_kept_all_the_time_for_a_kernel_that_wants_several() -> None:
    several, one = kernel("several", ANNA, 1000.0, 2), kernel("one", ANNA, 1000.0)
    assert [several.keeps(1000.0 + at * KEPT) for at in (0, 0.9, 1.1, 1.9, 2.1)] == [
        True,
        True,
        False,
        False,
        True,
    ]
    assert all(one.keeps(1000.0 + at * KEPT) for at in range(5))
    assert not kernel("liar", ANNA, math.inf, 2).keeps(1000.0)


def test_a_claim_to_two_is_served_beside_a_stream_of_claims_to_one() -> None:
    """Of two GPUs. Bob had both when she came; those that he waits for are served after hers, early or late."""
    anna = kernel("anna", ANNA, 100.0, 2)
    waiting = [anna, *(kernel(f"early{number}", BOB, 50.0 + number) for number in range(3))]
    running = [kernel("running0", BOB, 1.0), kernel("running1", BOB, 2.0)]
    started: List[str] = []
    for clock in range(101, 120):
        waiting.append(kernel(f"late{clock}", BOB, clock))
        running.pop(0)
        while waiting:
            held = {BOB: len(running)}
            if not running:  # what his keepers announce then
                waiting = [one._replace(turn=clock) if one.uid == BOB else one for one in waiting]
            first = in_turn(waiting, held)[0]
            if first.gpus > 2 - len(running):
                break  # what is free is kept for it
            if first == anna:
                assert started == [] and clock == 102, "when both have ended"
                return
            waiting.remove(first)
            running.append(first)
            started.append(first.kernel_id)
    raise AssertionError(f"not served, but {started} were")


def test_all_get_their_turn() -> None:
    """Kernels come at random and hold a GPU for a time: nobody waits for ever, and all users have as many turns."""
    chance = random.Random(7)
    free, clock = 4, 0
    held: Dict[int, int] = {}
    waiting: List[WaitingKernel] = []
    running: List[WaitingKernel] = []
    served: Dict[int, int] = {}
    longest = 0.0
    for clock in range(4000):
        for uid, many in ((ANNA, 3), (BOB, 1), (CARL, 1)):  # Anna always has three that wait
            while sum(one.uid == uid for one in waiting) < many:
                count = 2 if uid == CARL else 1
                waiting.append(kernel(f"{uid}-{clock}-{len(waiting)}", uid, clock, count))
        for ended in [one for one in running if chance.random() < 0.2]:
            running.remove(ended)
            held[ended.uid] -= ended.gpus
            free += ended.gpus
        for next_one in in_turn(waiting, held):
            if next_one.gpus > free:
                break  # what is free is kept for it
            waiting.remove(next_one)
            running.append(next_one)
            free -= next_one.gpus
            held[next_one.uid] = held.get(next_one.uid, 0) + next_one.gpus
            served[next_one.uid] = served.get(next_one.uid, 0) + 1
            longest = max(longest, clock - next_one.since)
    assert free >= 0 and longest < 100
    assert max(served.values()) < 1.2 * min(served.values())


GPUS = [f"GPU-{number}" for number in range(4)]
ALL = 2**64 - 1


def reasons(places: PassedPlaces, ahead: List[WaitingKernel]) -> Dict[str, str]:
    return {one.kernel_id: one.passed.split(" ")[-1] for one in places.mark(ahead)}


def test_a_place_for_more_gpus_than_the_node_has_is_passed_over() -> None:
    places = PassedPlaces()
    ahead = [
        kernel("five", BOB, 1.0, 5, usable=ALL),
        kernel("four", BOB, 1.0, 4, usable=ALL),
        kernel("two", BOB, 1.0, 2, usable=gpu_bits(GPUS[:1])),
        kernel("limited", BOB, 1.0, 2, usable=0),
    ]
    assert not any(reasons(places, ahead).values()), "no sample has been taken yet"
    places.add(0.0, ahead, GPUS, [])
    assert reasons(places, ahead) == {"five": "has", "four": "", "two": "has", "limited": ""}


def test_a_place_for_which_nobody_takes_free_gpus_is_passed_over_after_a_minute() -> None:
    places = PassedPlaces()
    ahead = [kernel("hangs", BOB, 1.0, 2, usable=ALL), kernel("next", ANNA, 2.0, 2, usable=ALL)]
    for now in range(int(UNTAKEN_FOR) + 1):
        places.add(now, ahead, GPUS, GPUS[:3])
        assert bool(reasons(places, ahead)["hangs"]) is (now == UNTAKEN_FOR)
    assert reasons(places, ahead) == {"hangs": "minute", "next": ""}, "only one GPU was left for the next one"
    places.add(UNTAKEN_FOR + 1, ahead, GPUS, [])
    assert reasons(places, ahead)["hangs"], "for as long as it has this place"
    places.add(UNTAKEN_FOR + 2, ahead[1:], GPUS, [])
    assert not reasons(places, ahead)["hangs"]


def test_what_is_free_only_at_times_was_not_left_untaken() -> None:
    for free, step in ((GPUS[:1], 1), (GPUS[:2], UNTAKEN_FOR + 1)):
        places, ahead = PassedPlaces(), [kernel("two", BOB, 1.0, 2, usable=ALL)]
        for number in range(100):
            places.add(number * step, ahead, GPUS, free if number % 50 else [])
        assert not any(reasons(places, ahead).values())


def test_new_places_do_not_help_a_user_whom_the_setting_names() -> None:
    """Another user may take a new place every half a minute."""
    named, other = PassedPlaces([str(BOB)]), PassedPlaces()
    for now in range(0, 2 * int(UNTAKEN_FOR), 5):
        ahead = [kernel(f"k{now // 30}", BOB, float(now // 30), usable=ALL)]
        for places in (named, other):
            places.add(now, ahead, GPUS, GPUS)
    assert reasons(
        named, [*ahead, kernel("new", BOB, 1.0, usable=ALL), kernel("hers", ANNA, 1.0, usable=ALL)]
    ) == {
        **dict.fromkeys(("k3", "new"), "minute"),
        "hers": "",
    }
    assert not any(reasons(other, ahead).values())
