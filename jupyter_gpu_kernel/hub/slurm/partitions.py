"""A cluster's partitions and nodes, as sinfo shows them: limits, types of GPUs, and how many are in use. Pure.

`choose` says for `add --slurm` which partition, time limit and type of GPU a kernel asks for, or why there is none.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

from ...errors import SettingsError
from ...wire import durations
from .. import sanitize
from ..kernel_settings import KernelSettings
from ..transport.connection import Output, source
from .dialect import is_host, number

COMMAND = source("hub/slurm/partitions.sh")
"""Lists the partitions, their nodes and which GPUs are in use, in fewer lines than `Output` reads."""
_NAME = re.compile(r"[A-Za-z0-9_.@+-]{1,100}")
_GRES = re.compile(r"gpu(?::([A-Za-z0-9_.+-]{1,60}))?:(\d{1,5})(?:\(.*\))?")
_WORKING = ("idle", "mixed", "allocated", "completing", "planned", "reserved")
_SUFFIXES = "*~#!%$@^-+"  # what sinfo adds to a state: not responding, powered down, in maintenance …
DEFAULT_TIME = 4 * 3600
"""The time limit in seconds, unless the partition's is shorter."""


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
            partitions[name] = Partition(
                name, default, row[8] == "up", durations.limit_seconds(row[6]), limit, ()
            )
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


class Choice(NamedTuple):
    """The settings that were chosen, and sentences about them."""

    settings: dict[str, Any]
    notes: list[str]


def choose(cluster: SlurmCluster, settings: KernelSettings, hop: str) -> Choice:
    """Return the partition, time limit and type of GPU: those of the settings, checked, or suitable ones."""
    if not cluster.partitions:
        raise SettingsError(
            "sinfo shows no partition that you may use", hop=hop, remedy="Ask the cluster's administrators."
        )
    wanted = settings.partition
    candidates = _named(cluster, wanted.split(","), hop) if wanted else list(cluster.partitions)
    kind = _kind(candidates, settings.gpu_type, hop, wanted)
    problems = {one.name: _problem(one, settings, kind) for one in candidates}
    fitting = [one for one in candidates if not problems[one.name]]
    if not fitting:
        raise _none_fits(problems, cluster, hop)
    fitting.sort(key=lambda one: (not one.default, -_free(one, settings, kind)))
    chosen: dict[str, Any] = {"partition": wanted or fitting[0].name}
    notes = [] if wanted else [_why(fitting[0], candidates, problems)]
    if not settings.time:
        limits = [one.longest for one in fitting if wanted or one is fitting[0]]
        seconds = min([DEFAULT_TIME, *(one for one in limits if one)])
        chosen["time"] = durations.limit(seconds)
        notes.append(f"The time limit is {chosen['time']}; choose another one with --time.")
    if kind:
        chosen["gpu_type"] = kind
    if not settings.mem and cluster.memory:
        notes.append(f"Without --mem, the job's memory is Slurm's default: {cluster.memory}.")
    return Choice(chosen, notes)


def _named(cluster: SlurmCluster, names: list[str], hop: str) -> list[Partition]:
    known = {one.name: one for one in cluster.partitions}
    for name in names:
        if name not in known:
            remedy = f"Choose one of: {', '.join(map(_partition_name, cluster.partitions))}."
            raise SettingsError(f"there is no partition {name} that you may use", hop=hop, remedy=remedy)
    return [known[name] for name in dict.fromkeys(names)]


def _partition_name(one: Partition) -> str:
    return f"{one.name} (the default)" if one.default else one.name


def _kind(candidates: list[Partition], wanted: str, hop: str, partition: str) -> str:
    """Return the type of GPU as Slurm calls it."""
    if not wanted:
        return ""
    kinds = sorted({kind for one in candidates for kind in one.kinds if kind})
    similar = [kind for kind in kinds if wanted.casefold() in kind.casefold()]
    equal = [kind for kind in similar if kind.casefold() == wanted.casefold()]
    found = [kind for kind in equal if kind == wanted] or equal or similar
    if len(found) == 1:
        return found[0]
    where = f" in the partition {partition}" if partition else ""
    cause = f"several types of GPU contain {wanted}" if found else f"there is no type of GPU {wanted}{where}"
    remedy = "Slurm tells no types here: leave out --gpu-type, or use --sbatch=--constraint=NAME."
    if kinds:
        remedy = f"Choose one of: {', '.join(found or kinds)}."
    raise SettingsError(cause, hop=hop, remedy=remedy)


def _problem(one: Partition, settings: KernelSettings, kind: str) -> str:
    """Return why a job with these settings could never run in this partition, or ""."""
    gpus, nodes = settings.gpus, settings.nodes
    seconds = durations.limit_seconds(settings.time)
    if not one.up:
        return "it is not in use (down, drained or inactive)"
    if gpus and not one.kinds:
        return "it has no GPUs (or Slurm does not know of them)"
    if kind and kind not in one.kinds:
        return f"it has no {kind}"
    if gpus and one.per_node(kind) < gpus:
        return f"a node has at most {one.per_node(kind)} GPUs{f' of the type {kind}' if kind else ' of one type'}"
    fitting = sum(not gpus or host.most(kind) >= gpus for host in one.hosts)
    if fitting < nodes:
        return f"it has {fitting} such nodes"
    unlimited = settings.time.upper() in durations.UNLIMITED
    if one.longest is not None and (unlimited or (seconds or 0) > one.longest):
        return f"its time limit is {one.limit}"
    return ""


def _free(one: Partition, settings: KernelSettings, kind: str) -> int:
    """Return how many GPUs that would do are free."""
    if not settings.gpus:
        return 0
    return sum(host.free(name) for host in one.hosts for name in host.gpus if kind in ("", name))


def _why(chosen: Partition, candidates: list[Partition], problems: dict[str, str]) -> str:
    if len(candidates) == 1:
        return f"The partition is {chosen.name}, the only one."
    if chosen.default:
        return f"The partition is {chosen.name}, the cluster's default; choose another one with --partition."
    defaults = [one.name for one in candidates if one.default]
    why = [f", as {one}, the default, cannot run such a job: {problems[one]}" for one in defaults]
    return f"The partition is {chosen.name}{''.join(why)}. Choose another one with --partition."


def _none_fits(problems: dict[str, str], cluster: SlurmCluster, hop: str) -> SettingsError:
    where = "here: " if len(problems) > 1 else "in the partition "
    cause = f"the job could never run {where}" + "; ".join(f"{one}: {why}" for one, why in problems.items())
    remedy = "Change --partition, --time, --gpus, --gpu-type or --nodes. The partitions: "
    return SettingsError(cause, hop=hop, remedy=remedy + "; ".join(map(_described, cluster.partitions)) + ".")


def _described(one: Partition) -> str:
    gpus = ", ".join(f"{one.per_node(kind)} {kind or 'GPUs'} a node" for kind in one.kinds) or "no GPUs"
    return f"{_partition_name(one)}: {gpus}, time limit {one.limit}"
