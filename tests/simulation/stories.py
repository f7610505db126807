"""Decisions that have to come together to show something, as single ones rarely meet: (time, kind, arguments) each."""

from __future__ import annotations

from random import Random
from typing import Any

Story = list[tuple[float, str, dict[str, Any]]]
_SENDS_OF_HUB = 12
_LASTS = 5.0
"""Seconds after a story in which its faults last, if nothing else is decided later: then every fault ends."""


def draw(random: Random, length: float) -> Story:
    """Return a story that begins within these seconds, and after which faults last for a while."""
    story = random.choice(_STORIES)(random, random.uniform(0.0, length))
    return [*story, (max(at for at, _, _ in story) + _LASTS, "info", {"front": 0})]


def _cells(at: float, *cells: list[Any], front: int = 0) -> tuple[float, str, dict[str, Any]]:
    """A front end runs these cells, one behind the other."""
    return at, "cells", {"front": front, "cells": list(cells), "stop": True, "gap": 0.0}


def _flood(random: Random) -> list[Any]:
    """Return actions of much text, or of many messages that are not joined."""
    name = random.randint(0, 10**6)
    if random.random() < 0.3:
        return [["display", f"d{name}-{number}", "x" * 100] for number in range(20)]
    actions: list[Any] = [["sleep", random.choice((0.0, 0.5))]]
    for number in range(random.randint(1, 4)):
        actions.append(["prints", 8, random.choice((5000, 60_000))])
        if random.random() < 0.3:
            actions.append(["display", f"d{name}-{number}", "x" * 100])
    return [*actions, ["sleep", random.choice((0.05, 3.0))]]


def _faults(random: Random, times: list[float], *kinds: str) -> Story:
    """Return one of these decisions for each time."""
    arguments = {"front": 0, "seconds": 1.0, "sends": random.randint(1, _SENDS_OF_HUB)}
    return [(at, random.choice(kinds), arguments) for at in times]


def _unread(random: Random, at: float) -> Story:
    """Something happens to a kernel whose output its front end does not read."""
    seconds = random.choice((1.0, 4.0, 12.0))
    stop = {"seconds": random.choice((seconds, 60.0)), "front": 0}
    times = [at + random.uniform(0.1, seconds) for _ in range(random.randint(1, 2))]
    ends = _faults(random, times, "drop", "node rebooted", "hub killed", "restart now", "return")
    return [(at, "slow reader", stop), _cells(at + 0.01, _flood(random)), *ends]


def _replayed(random: Random, at: float) -> Story:
    """Something happens while output comes that has waited."""
    seconds = random.choice((1.0, 4.0, 12.0))
    times = [at + seconds + random.uniform(0.0, 4.0) for _ in range(random.randint(1, 2))]
    kinds = (
        "drop",
        "restart",
        "restart now",
        "hub killed",
        "return",
        "hub killed in a send",
        "node rebooted",
    )
    begin = [_cells(at, _flood(random)), (at + 0.005, "unreachable", {"seconds": seconds})]
    return [*begin, *_faults(random, times, *kinds)]


def _torn(random: Random, at: float) -> Story:
    """A hub is killed while it passes on a text in pieces, as its front end did not read."""
    return [
        (at, "slow reader", {"seconds": random.choice((1.0, 3.0)), "front": 0}),
        _cells(at + 0.01, [["prints", 2, 700_000]]),
        (at + 0.01, "hub killed in a send", {"seconds": 1.0, "sends": random.randint(3, 14)}),
    ]


def _failed_away(random: Random, at: float) -> Story:
    """A cell fails while its node is out of reach; others are run while its output comes."""
    seconds = random.choice((1.0, 4.0))
    later = [_cells(at + seconds + 0.3 * number, [["prints", 1, 3]]) for number in range(10)]
    return [
        _cells(at, [*_flood(random), ["error"]]),
        (at + 0.005, "unreachable", {"seconds": seconds}),
        *later,
    ]


def _returned(random: Random, at: float) -> Story:
    """A cell fails whose front end has left. The keeper may be killed while the next cell waits."""
    kills = [
        (at + random.uniform(3.5, 13.0), "keeper killed", {}) for _ in range(random.choice((0, 0, 1, 2)))
    ]
    return [
        _cells(at, [["sleep", 12.0], ["error"]]),
        (at + 1.0, "return", {}),
        _cells(at + 3.0, [["prints", 1, 20]]),
        *kills,
    ]


def _overtaken(random: Random, at: float) -> Story:
    """Cells are still on their way when the kernel is interrupted."""
    cells = [[["comment", f"{random.getrandbits(1_200_000):x}"], ["prints", 1, 20]] for _ in range(2)]
    return [*(_cells(at, cell) for cell in cells), (at + 0.2, "interrupt command", {})]


def _unread_and_succeeded(random: Random, at: float) -> Story:
    """Keepers are killed, and then the hub, while a front end does not read."""
    times = [at + 1.0 + 3.0 * number + random.random() for number in range(random.randint(2, 4))]
    kills = _faults(random, times[:-1], "keeper killed", "keeper killed", "keeper killed", "drop")
    hub = _faults(random, times[-1:], "hub killed")
    flood = [*_flood(random), *_flood(random)]
    return [(at, "slow reader", {"seconds": 30.0, "front": 0}), _cells(at + 0.01, flood), *kills, *hub]


def _succeeded(random: Random, at: float) -> Story:
    """Cells begin and end while the keeper is killed and replaced."""
    cell = [["prints", 2, 20], ["sleep", random.choice((0.05, 0.3, 0.6))], ["prints", 2, 20]]
    first = (at, "keeper killed", {"steps": random.randint(1, 40)})
    times = [at + random.uniform(0.0, 2.5) for _ in range(random.randint(0, 2))]
    away = [(at + random.uniform(0.0, 1.0), "unreachable", {"seconds": 4.0})] * random.choice((0, 1))
    return [first, _cells(at + 0.001, cell, cell, cell), *_faults(random, times, "keeper killed"), *away]


def _asked_while_busy(random: Random, at: float) -> Story:
    """A keeper is killed that answers requests in its busy kernel's place."""
    asks = [(at + 0.5 + 0.3 * number, "info", {"front": 0}) for number in range(6) for _ in range(3)]
    return [
        _cells(at, [["sleep", 4.0], ["prints", 1, 20]]),
        (at + 0.4, "keeper killed", {"steps": random.randint(10, 45)}),
        *asks,
    ]


def _left_alone(random: Random, at: float) -> Story:
    """One of two front ends leaves when the next hub does not know the other one yet."""
    leaves = [(at + 2.0 + 0.1 * number, "second leaves", {}) for number in range(30)]
    return [
        (at, "second front end", {}),
        _cells(at + 0.6, [["prints", 2, 20], ["sleep", random.uniform(1.0, 3.0)], ["prints", 2, 20]]),
        (at + 1.9, "hub killed", {"seconds": 1.0}),
        *leaves,
    ]


def _both_gone(random: Random, at: float) -> Story:
    """A kernel is lost while its hub is killed: the next hub answers its requests."""
    gone = (at + random.uniform(1.6, 2.0), "node rebooted", {"seconds": 0.05})
    cells = [_cells(at + 0.6, [["sleep", 12.0]], [["prints", 1, 20]], front=front) for front in (0, 1)]
    late = [_cells(at + 1.7 + 0.4 * number, [["prints", 1, 20]], front=number % 2) for number in range(6)]
    return [
        (at, "second front end", {}),
        *cells[: random.randint(1, 2)],
        (at + 1.6, "hub killed", {"seconds": 1.0}),
        gone,
        *late,
    ]


def _revived(random: Random, at: float) -> Story:
    """A cell starts a kernel of which the hub hears nothing, as it is lost."""
    return [
        _cells(at, [["crash"]]),
        (at + 1.5, "half-open", {"seconds": 1.0, "up": False, "down": True}),
        _cells(at + 1.6, [["prints", 1, 20], ["sleep", 3.0]]),
        (at + random.uniform(2.5, 4.5), "node rebooted", {"seconds": 0.05}),
    ]


def _taken_over(random: Random, at: float) -> Story:
    """A front end takes a kernel over that another one is about to restart."""
    return [
        (at, "second front end", {}),
        (at + 1.0, "restart", {"front": 0}),
        _cells(at + 1.0 + random.uniform(0.01, 0.3), [["prints", 1, 20]], front=1),
    ]


_STORIES = (
    _unread,
    _replayed,
    _replayed,
    _torn,
    _torn,
    _failed_away,
    _returned,
    _returned,
    _overtaken,
    _unread_and_succeeded,
    _succeeded,
    _succeeded,
    _asked_while_busy,
    _left_alone,
    _both_gone,
    _revived,
    _taken_over,
)
