"""Ranks sets of GPUs by the links between them, as `nvidia-smi topo -m` shows them. Pure functions."""

from __future__ import annotations

import itertools
import re
from typing import Dict, Iterable, List, Tuple

Topology = Dict[Tuple[int, int], int]
"""The rank of the link between two GPUs, by their indices in both orders: a link of a higher rank is faster."""

_LINKS = ("SYS", "NODE", "PHB", "PXB", "PIX")  # from slow to fast; NV1, NV2, … (so many NVLinks) are faster
_NVLINK = re.compile(r"NV(\d+)")
_GPU = re.compile(r"GPU(\d+)")
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")  # the first line is underlined, also where the output is no terminal
_MAX_SETS = 20_000  # 8 of 16 GPUs are 12,870 sets


def parse_topology(text: str) -> Topology:
    """Return the links in the output of `nvidia-smi topo -m`; what cannot be read is left out."""
    rows = [_ESCAPE.sub("", line).split("\t") for line in text.split("\n")]
    header = next((row for row in rows if len(row) > 1 and _GPU.fullmatch(row[1].strip())), [])
    columns = [
        (at, int(match[1]))
        for at, cell in enumerate(header)
        for match in [_GPU.fullmatch(cell.strip())]
        if match
    ]
    links: Topology = {}
    for row in rows:
        match = _GPU.fullmatch(row[0].strip())
        for at, index in columns:
            rank = _rank(row[at].strip()) if match and at < len(row) else -1
            if match and rank >= 0:
                links[int(match[1]), index] = rank
    return links


def best_set(indices: Iterable[int], count: int, links: Topology) -> List[int]:
    """Return `count` of these GPUs: those with the fastest slowest link, then with the fastest links in all.

    Among equals it is the set with the lowest indices. There must be at least `count` indices.
    """
    ordered = sorted(indices)
    sets = itertools.islice(itertools.combinations(ordered, count), _MAX_SETS)
    return list(max(sets, key=lambda chosen: _score(chosen, links)))


def _score(chosen: Iterable[int], links: Topology) -> Tuple[int, int]:
    ranks = [links.get(pair, 0) for pair in itertools.combinations(chosen, 2)]
    return min(ranks, default=0), sum(ranks)


def _rank(word: str) -> int:
    """The rank of a link; -1 if the word is not a link."""
    nvlinks = _NVLINK.fullmatch(word)
    if nvlinks:
        return len(_LINKS) + int(nvlinks[1])
    return _LINKS.index(word) if word in _LINKS else -1
