"""`add --slurm`: which partition, time limit and type of GPU a kernel asks for; what cannot be is an error. Pure."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...errors import SettingsError
from ...wire import durations
from ..kernel_settings import KernelSettings
from .partitions import Partition, SlurmCluster

DEFAULT_TIME = 4 * 3600
"""The time limit in seconds, unless the partition's is shorter."""


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
