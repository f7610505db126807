"""What both the hub and a job's process read of Slurm: lists of hosts, and what `scontrol show job` prints. Pure."""

from __future__ import annotations

import re
from itertools import islice, product
from typing import Dict, Iterator, List

MAX_HOSTS = 20_000
_MAX_RANGES = 5
"""Brackets in one name: as many as Slurm takes dimensions of a network."""
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_PART = re.compile(r"(?:[^,\[\]]|\[[^\[\]]*\])+")
END_REASONS = {
    "TIMEOUT": "it has reached its time limit",
    "CANCELLED": "it was cancelled (scancel)",
    "PREEMPTED": "another job takes its resources (preemption)",
    "NODE_FAIL": "a node of it has failed",
    "DEADLINE": "it has reached its deadline",
}
"""Why Slurm ends a job, by the job's state, as a part of a sentence."""
_FIELD = re.compile(r"(?:^| )([A-Z][\w:/]*)=")
_MAX_LINE = 65_536


def job_fields(line: str) -> Dict[str, str]:
    """Return the fields of a job, from a line of `scontrol --oneliner show job`.

    Of a name that comes twice the first field counts: later fields, such as a comment, may contain anything.
    """
    line = line[:_MAX_LINE]
    found: Dict[str, str] = {}
    starts = list(_FIELD.finditer(line))
    ends = [following.start() for following in starts[1:]] + [len(line)]
    for start, end in zip(starts, ends):
        found.setdefault(start[1], line[start.end() : end].strip())
    return found


def expand(text: str, most: int = MAX_HOSTS) -> List[str]:
    """Return the hosts of a list such as "login,gpu[1-3,07],rack[1-2]n[1-2]"; of a longer one the first `most`.

    Raises ValueError if it is none.
    """
    parts = _PART.findall(text)
    if ",".join(parts) != text:
        raise ValueError(f"{text[:100]!r} is no list of hosts")
    return list(islice((host for part in parts for host in _hosts(part, most)), most))


def _hosts(part: str, most: int) -> Iterator[str]:
    words = re.split(r"\[(.*?)\]", part)  # what is in brackets has odd indices
    if len(words) > 2 * _MAX_RANGES + 1:
        raise ValueError(f"more than {_MAX_RANGES} brackets in a name")
    options = [_numbers(word, most) if index % 2 else [word] for index, word in enumerate(words)]
    return map("".join, product(*options))


def _numbers(ranges: str, most: int) -> List[str]:
    """The numbers of "1-3,07", as wide as the first one of each range is written; the first `most` of each range."""
    numbers: List[str] = []
    for word in ranges.split(",", most)[:most]:
        found = _RANGE.fullmatch(word)
        if found is None:
            raise ValueError(f"{word[:100]!r} is no range of numbers")
        first, last = found[1], found[2] or found[1]
        if int(last) < int(first):
            raise ValueError(f"{word!r} is no range of numbers")
        end = min(int(last), int(first) + most - 1)
        numbers += [str(number).zfill(len(first)) for number in range(int(first), end + 1)]
        if len(numbers) >= most:
            break
    return numbers
