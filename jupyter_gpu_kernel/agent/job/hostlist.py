"""Expands Slurm's lists of hosts, as `scontrol show hostnames` does. Pure."""

from __future__ import annotations

import re
from itertools import product
from typing import List

MAX_HOSTS = 20_000
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")


def expand(text: str) -> List[str]:
    """Return the hosts of a list such as "login,gpu[1-3,07],rack[1-2]n[1-2]"; ValueError if it is none."""
    hosts: List[str] = []
    for part in _split(text):
        hosts += _expand_part(part)
        if len(hosts) > MAX_HOSTS:
            raise ValueError(f"more than {MAX_HOSTS} hosts")
    return hosts


def _split(text: str) -> List[str]:
    """The parts between the commas that are outside of brackets."""
    parts, depth, part = [], 0, ""
    for char in text:
        depth += {"[": 1, "]": -1}.get(char, 0)
        if depth not in (0, 1):
            raise ValueError(f"unbalanced brackets in {text[:100]!r}")
        if char == "," and depth == 0:
            parts.append(part)
            part = ""
        else:
            part += char
    if depth:
        raise ValueError(f"unbalanced brackets in {text[:100]!r}")
    return [part for part in [*parts, part] if part]


def _expand_part(part: str) -> List[str]:
    words = re.split(r"\[([^\]]*)\]", part)  # what is in brackets has odd indices
    if len(words) == 1:
        return words
    options = [_numbers(word) if index % 2 else [word] for index, word in enumerate(words)]
    count = 1
    for option in options:
        count *= len(option)
    if count > MAX_HOSTS:
        raise ValueError(f"more than {MAX_HOSTS} hosts")
    return ["".join(names) for names in product(*options)]


def _numbers(ranges: str) -> List[str]:
    """The numbers of "1-3,07", as wide as the first one of each range is written."""
    numbers: List[str] = []
    for word in ranges.split(","):
        found = _RANGE.fullmatch(word)
        if found is None:
            raise ValueError(f"{word[:100]!r} is no range of numbers")
        first, last = found[1], found[2] or found[1]
        if int(last) < int(first) or int(last) - int(first) >= MAX_HOSTS:
            raise ValueError(f"{word!r} is no range of at most {MAX_HOSTS} numbers")
        numbers += [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
    return numbers
