"""The settings of a kernel in a Slurm job: their valid values, and which others have no meaning with them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from ..errors import SettingsError
from ..wire import durations
from ..wire.kernel_settings import SLURM, USER_SETTINGS, KernelSettings, default_of
from . import secret_filter

_ONLY_SLURM = [key for key, info in USER_SETTINGS.items() if info.group == SLURM and key != "slurm"]
_NOT_SLURM = {
    "hosts": "Slurm chooses the machine.",
    "min_memory": "Choose a type of GPU (--gpu-type), or a partition.",
    "ignore_lease": "Inside a job there is no search for GPUs.",
    "ignore_place": "Inside a job there is no search for GPUs.",
    "priority": "Slurm orders its queue itself: --qos, or --sbatch=--nice=100.",
}
_NAMES = re.compile(r"[A-Za-z0-9_.@+:-]{1,100}(,[A-Za-z0-9_.@+:-]{1,100}){0,20}")
_MEMORY = re.compile(r"[0-9]{1,9}([KMGT]B?)?", re.IGNORECASE)
_OPTION = re.compile(r"--?([A-Za-z][A-Za-z-]*)")
# sbatch options that this program gives itself, with what to use instead.
_OWN_OPTIONS = {
    **dict.fromkeys(
        ("output", "o", "error", "e", "input", "i", "open-mode"), "“jupyter gpu-kernel logs ID” shows it"
    ),
    **dict.fromkeys(
        ("job-name", "J", "parsable", "test-only", "wait", "W", "wrap", "array", "a"), "leave it out"
    ),
    **dict.fromkeys(
        ("requeue", "no-requeue"), "a kernel's variables are gone after a requeue, so there is none"
    ),
    "signal": "use --warn-before and --warn-signal",
}
_MOST_NODES = 10_000


def _matches(form: re.Pattern[str]) -> Callable[[str], bool]:
    return lambda text: not text or form.fullmatch(text) is not None


_NAME = (_matches(_NAMES), "a name of Slurm's")
_FORMS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "time": (lambda text: not text or durations.is_limit(text), "a time limit: 4:00:00, 90 (minutes)"),
    "mem": (_matches(_MEMORY), "a size of memory for each node: 32G, 64000M, 0 (all)"),
    "cpus": (lambda number: number >= 0, "a number of CPUs, 1 or more"),
    "nodes": (lambda number: 1 <= number <= _MOST_NODES, f"a number from 1 to {_MOST_NODES}"),
    "partition": _NAME,
    "account": _NAME,
    "qos": _NAME,
    "gpu_type": (_matches(_NAMES), "a type of GPU, as “sinfo -o %G” shows it: a100"),
    "warn_before": (lambda seconds: (seconds or 0) <= 65535, "at most 65535 (seconds)"),
}
"""What each setting of a kernel in a job must be."""


def check(settings: KernelSettings) -> None:
    """Raise SettingsError if the settings of Slurm among these are invalid."""
    if not settings.slurm:
        given = [key for key in _ONLY_SLURM if getattr(settings, key) != default_of(key)]
        if given:
            cause = f"“{given[0]}” is set, but “slurm” is not"
            raise SettingsError(cause, remedy="Add --slurm, or leave it out.")
        return
    for key, instead in _NOT_SLURM.items():
        if getattr(settings, key):
            raise SettingsError(f"“{key}” has no meaning together with “slurm”", remedy=instead)
    for key, (is_valid, form) in _FORMS.items():
        if not is_valid(getattr(settings, key)):
            raise SettingsError.about(key, getattr(settings, key), form)
    _check_warning(settings)
    for line in settings.sbatch:
        _check_line(line)


def _check_warning(settings: KernelSettings) -> None:
    """Raise SettingsError if the warning before the job's time limit would come when the job starts."""
    whole = durations.limit_seconds(settings.time)
    before = int(settings.warn_before or 0)
    if whole is not None and before >= whole:
        form = f"less than the job's time limit (--time, {durations.limit(whole)})"
        raise SettingsError.about("warn_before", durations.limit(before), form)


def _check_line(line: str) -> None:
    """Raise SettingsError if this is not one more `#SBATCH` line."""
    option = _OPTION.match(line)
    if option is None or not line.isprintable() or len(line) > 1000:
        raise SettingsError.about("sbatch", line, "one option of sbatch: --constraint=a100, --exclude=gpu7")
    if instead := _OWN_OPTIONS.get(option[1]):
        cause = f"“sbatch” contains --{option[1]}, which this program sets itself"
        raise SettingsError(cause, remedy=f"{instead[0].upper()}{instead[1:]}.")
    if kind := secret_filter.in_line(line):
        cause = f"“sbatch” contains what looks like {kind}; everybody can read the options of a job"
        raise SettingsError(
            cause, remedy="Put NAME=… into a file that only you can read, and use --env-file FILE."
        )
