"""A cluster's partitions and nodes, as sinfo shows them: limits, types of GPUs, and how many are in use. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

from ...wire.durations import limit_seconds
from .. import sanitize
from ..transport.script import Output, source
from .dialect import is_host, number

COMMAND = source("hub/slurm/partitions.sh")
"""Lists the partitions, their nodes and which GPUs are in use, in fewer lines than `Output` reads."""
_NAME = re.compile(r"[A-Za-z0-9_.@+-]{1,100}")
_GRES = re.compile(r"gpu(?::([A-Za-z0-9_.+-]{1,60}))?:(\d{1,5})(?:\(.*\))?")
_WORKING = ("idle", "mixed", "allocated", "completing", "planned", "reserved")
_SUFFIXES = "*~#!%$@^-+"  # what sinfo adds to a state: not responding, powered down, in maintenance …


class Host(NamedTuple):
    """One node. `gpus` and `used`: how many of each type; the type is "" where Slurm knows none."""

    name: str
    state: str
    gpus: dict[str, int]
    used: dict[str, int]
    cpus: int
    cpus_used: int
    memory_mib: int

    @property
    def works(self) -> bool:
        """Whether jobs can run there, now or when others have ended."""
        return self.state.rstrip(_SUFFIXES) in _WORKING and "*" not in self.state

    def most(self, kind: str) -> int:
        """Return how many GPUs of a type the node has; with "" of that type of which it has most."""
        return max((count for name, count in self.gpus.items() if kind in ("", name)), default=0)

    def free(self, kind: str) -> int:
        """Return how many GPUs of a type no job has."""
        return max(0, self.gpus.get(kind, 0) - self.used.get(kind, 0)) if self.works else 0


class Partition(NamedTuple):
    """One partition. `longest`: the seconds of its time limit; None if it has none."""

    name: str
    default: bool
    up: bool
    longest: int | None
    limit: str
    hosts: tuple[Host, ...]

    def per_node(self, kind: str = "") -> int:
        """Return the most GPUs that one node has: of a type, or of any one type."""
        return max((host.most(kind) for host in self.hosts), default=0)

    @property
    def kinds(self) -> list[str]:
        """The types of its GPUs."""
        return sorted({kind for host in self.hosts for kind in host.gpus})

    def to_json(self) -> dict[str, Any]:
        """Return {name, default, up, time_limit, nodes, gpus: [{type, per_node, total, used, free}]}."""
        return {
            "name": self.name,
            "default": self.default,
            "up": self.up,
            "time_limit": self.limit,
            "nodes": len(self.hosts),
            "gpus": [
                {"type": kind, "per_node": self.per_node(kind), **counts(self.hosts, kind)}
                for kind in self.kinds
            ],
        }


class SlurmCluster(NamedTuple):
    """What sinfo shows. `memory`: what a job gets without --mem, in words."""

    partitions: tuple[Partition, ...]
    memory: str = ""

    @property
    def hosts(self) -> list[tuple[Host, list[str]]]:
        """Each node once, with the names of its partitions."""
        found: dict[str, tuple[Host, list[str]]] = {}
        for partition in self.partitions:
            for host in partition.hosts:
                found.setdefault(host.name, (host, []))[1].append(partition.name)
        return list(found.values())


def counts(hosts: Iterable[Host], kind: str) -> dict[str, int]:
    """Return how many GPUs of a type these nodes have: {total, used, free}."""
    listed = list(hosts)
    return {
        "total": sum(host.gpus.get(kind, 0) for host in listed),
        "used": sum(host.used.get(kind, 0) for host in listed),
        "free": sum(host.free(kind) for host in listed),
    }


def cluster(output: Output) -> SlurmCluster | None:
    """Return the partitions, None if sinfo failed."""
    if output.status:
        return None
    fields = [line.split("|") for line in output.lines]
    used = {row[1]: gpus(row[2]) for row in fields if row[0] == "used" and len(row) == 3}
    partitions: dict[str, Partition] = {}
    hosts: dict[str, list[Host]] = {}
    for row in fields:
        if len(row) != 9 or not is_host(row[0]):
            continue
        name, default = row[1].rstrip("*"), row[1].endswith("*")
        if not _NAME.fullmatch(name):
            continue
        if name not in partitions:
            limit = sanitize.line(row[6], 30)
            partitions[name] = Partition(name, default, row[8] == "up", limit_seconds(row[6]), limit, ())
        hosts.setdefault(name, []).append(_host(row, used.get(row[0], {})))
    found = [one._replace(hosts=tuple(hosts[one.name])) for one in partitions.values()]
    return SlurmCluster(tuple(sorted(found, key=lambda one: (not one.default, one.name))), _memory(fields))


def gpus(text: str) -> dict[str, int]:
    """Return the GPUs by type in a list of generic resources: "gpu:a100:2(S:0-1),shard:8"."""
    found = Counter[str]()
    for one in re.split(r",(?![^(]*\))", text):
        if match := _GRES.fullmatch(one.strip()):
            found[match[1] or ""] += int(match[2])
    return dict(found)


def _host(row: list[str], used: dict[str, int]) -> Host:
    allocated, *_, total = (*row[4].split("/"), "0")[:4]
    return Host(
        row[0],
        sanitize.line(row[2].lower(), 40),
        gpus(row[3]),
        used,
        number(total),
        number(allocated),
        number(row[5].rstrip("+")),
    )


def _memory(fields: list[list[str]]) -> str:
    """Return what a job gets without --mem: "1000 MiB for each CPU"."""
    for row in fields:
        if row[0] == "memory" and len(row) == 3 and row[1] in ("CPU", "Node", "GPU") and number(row[2]):
            whose = "node" if row[1] == "Node" else row[1]
            return f"{number(row[2])} MiB for each {whose}"
    return ""
