"""The settings of a remote kernel: their names, types and valid values.

The names are the keys of `metadata.jupyter_gpu_kernel` in a kernelspec, and the options of `jupyter gpu-kernel add` in
snake_case. This module does not know where settings are stored, or who uses them.
"""

from __future__ import annotations

import difflib
import math
import re
import shlex
import stat
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

from . import secret_filter, slurm_settings
from .errors import SettingsError, in_message
from .wire import DEFAULT_GPUS, MAX_PRIORITY, revisions
from .wire.texts import memory_mib

# Planned settings, which have no effect yet.
_PLANNED = ("debugger", "take_gpu")
CHOICES = {
    "transport": ("auto", "paramiko", "ssh"),
    "sigterm": ("survive", "default"),
    "spare": ("on", "off"),
}
"""Settings that are one of these words."""
_MOST_GPUS = 64  # more than any machine has
_USER = re.compile(r"[^:/\s]{1,64}")
_UUID = re.compile(r"(GPU|MIG|AMD)-[A-Za-z0-9/-]{1,76}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class Settings:
    """The settings of one remote kernel.

    `identity`, `config` and `env_file` are absolute local paths; `python`, `cwd` and `setup` belong to the work node.
    """

    route: tuple[str, ...]
    identity: tuple[str, ...] = ()
    config: str = ""
    python: str = ""
    gpus: int = DEFAULT_GPUS
    env: Mapping[str, str] = field(default_factory=dict)
    env_file: str = ""
    cwd: str = ""
    setup: tuple[str, ...] = ()
    sigterm: str = "survive"
    spare: str = "on"  # whether kernels may be forked from a spare interpreter
    code: str = ""  # a git revision of the repository that `cwd` belongs to
    idle_timeout: float | None = None  # seconds until an idle, detached kernel ends; 0: never
    idle_timeout_attached: float | None = None  # the same for an attached kernel
    gpu_timeout: float | None = None  # seconds until GPUs that no cell has opened are released; 0: never
    guard_linger: float | None = None  # seconds for which a kernel is in use after its user's last cell
    journal_memory_mib: float | None = None
    journal_cap_mib: float | None = None
    min_memory: str = ""  # that each GPU must have: "20G"
    gpu_type: str = ""  # what the name of each GPU must contain: "3090"
    ignore_lease: tuple[str, ...] = ()  # UUIDs of GPUs that are taken although somebody else has their lease
    ignore_place: tuple[str, ...] = ()  # users whose places in the queue count as one if it is passed over
    hosts: tuple[str, ...] = ()  # several machines, each instead of the last hop of the route
    via: tuple[str, ...] = ()  # commands, each run on the hop before it, that lead on from the route
    transport: str = "auto"  # how SSH is spoken: "paramiko", "ssh" (the system's), or what the route needs
    env_dir: str = ""  # the virtual environment on the node that `add --create-env` made
    priority: int = 0  # among the user's own kernels that wait for GPUs; the highest first
    slurm: bool = False  # the route leads to a login node, and the kernel runs in a Slurm job
    partition: str = ""
    time: str = ""  # the job's time limit, as Slurm writes it: "4:00:00"
    cpus: int = 0  # 0: what Slurm gives
    mem: str = ""  # of each node: "32G"
    account: str = ""
    qos: str = ""
    nodes: int = 1
    sbatch: tuple[str, ...] = ()  # more options for sbatch: "--constraint=a100"
    warn_before: float | None = None  # seconds before the time limit; 0: no signal
    warn_signal: str = "USR1"
    share_job: bool = False  # several kernels in one job
    way: str = ""  # the only way to the job's node: "ssh" or "srun"
    keep_job: float | None = None  # seconds for which a job that waits is kept after its notebook was closed

    def __post_init__(self) -> None:
        """Raise SettingsError for invalid values."""
        if not self.route:
            raise SettingsError("“route” is empty", remedy='Write at least one hop: "route": ["alice@gpu2"].')
        if not 0 <= self.gpus <= _MOST_GPUS:
            raise SettingsError.about("gpus", self.gpus, f"a number from 0 (none) to {_MOST_GPUS}")
        if not all(self.hosts):
            raise SettingsError(
                "“hosts” contains an empty name", remedy="Write one destination for each host."
            )
        if abs(self.priority) > MAX_PRIORITY:
            raise SettingsError.about(
                "priority", self.priority, f"a number from -{MAX_PRIORITY} to {MAX_PRIORITY}"
            )
        for key, words in CHOICES.items():
            if getattr(self, key) not in words:
                raise SettingsError.about(key, getattr(self, key), f"one of {', '.join(words)}")
        for key, value in vars(self).items():
            if _has_nul(value):
                raise SettingsError(f"the setting “{key}” contains a NUL character", remedy="Remove it.")
        self._check_texts()
        slurm_settings.check(vars(self))
        _refuse_secrets(self)

    def _check_texts(self) -> None:
        """Raise SettingsError for a text that has not the form of what it stands for."""
        if len(set(self.hosts)) < len(self.hosts):
            raise SettingsError("“hosts” contains a host twice", remedy="Write each host once.")
        if self.min_memory and memory_mib(self.min_memory) is None:
            raise SettingsError.about("min_memory", self.min_memory, "a size of memory: 20G, 20GiB, 20000M")
        for uuid in self.ignore_lease:
            if not _UUID.fullmatch(uuid):
                cause = f"“ignore_lease” contains {in_message(uuid)}, which is no UUID of a GPU"
                raise SettingsError(
                    cause, remedy="Copy the UUID that “jupyter gpu-kernel gpus --json” shows."
                )
        for user in self.ignore_place:
            if not _USER.fullmatch(user):
                cause = f"“ignore_place” contains {in_message(user)}, which is no name of a user"
                raise SettingsError(cause, remedy="“jupyter gpu-kernel gpus” shows the names of who waits.")
        if self.code and (fault := revisions.fault(self.code)):
            raise SettingsError(
                f"“code” is {in_message(self.code)}: {fault}",
                remedy="It must be a git revision: a commit, a branch, a tag, or HEAD.",
            )
        for command in self.via:
            _check_command(command)
        for name in self.env:
            if not _VARIABLE.fullmatch(name):
                raise SettingsError(
                    f"{in_message(name)} in “env” is not a valid variable name",
                    remedy="A name has letters, digits and underscores, and does not begin with a digit.",
                )

    @classmethod
    def from_json(cls, data: Mapping[str, Any], where: str = "") -> Settings:
        """From a kernelspec's object.

        Raises SettingsError if a key is unknown or missing, or a value has a wrong type.
        """
        place = f" in {where}" if where else ""
        for key, value in data.items():
            if key not in _TYPES:
                problem = "is not supported yet" if key in _PLANNED else "is unknown"
                raise SettingsError(f"the setting “{key}”{place} {problem}", remedy=_suggestion(key))
            if not _TYPES[key].accepts(value):
                secret = key in ("env", "setup", "via")  # it may be one
                raise SettingsError(
                    f"the setting “{key}”{place} is {'of another type' if secret else in_message(value)}",
                    remedy=f"It must be {_TYPES[key].name}.",
                )
        if "route" not in data:
            raise SettingsError(
                f"the setting “route”{place} is missing", remedy=f"It must be {_TYPES['route'].name}."
            )
        values: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in data.items()
        }
        return cls(**values)

    def to_json(self) -> dict[str, Any]:
        """For a kernelspec and the hub: all values except defaults, and always "route" and "gpus"."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        defaults = {one.name: one.default for one in fields(self) if one.name not in ("route", "gpus")}
        return {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in values.items()
            if key not in defaults or value not in (defaults[key], {})
        }


class _Type(NamedTuple):
    name: str  # for messages
    accepts: Callable[[Any], bool]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf


def _are_strings(values: Any) -> bool:
    return all(isinstance(one, str) for one in values)


_BY_ANNOTATION = {
    "str": _Type("a string", lambda value: isinstance(value, str)),
    "int": _Type("an integer", lambda value: isinstance(value, int) and not isinstance(value, bool)),
    "tuple[str, ...]": _Type(
        "a list of strings", lambda value: isinstance(value, list | tuple) and _are_strings(value)
    ),
    "Mapping[str, str]": _Type(
        "an object whose values are strings",
        lambda value: isinstance(value, Mapping) and _are_strings(value.values()),
    ),
    "float | None": _Type("a number, 0 or greater", _is_number),
    "bool": _Type("true or false", lambda value: isinstance(value, bool)),
}
_TYPES = {one.name: _BY_ANNOTATION[str(one.type)] for one in fields(Settings)}


def _check_command(command: str) -> None:
    """Raise SettingsError if this is not the command of a hop."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise SettingsError(
            f"a command of “via” cannot be split into words: {error}", remedy="Check the quotation marks."
        ) from error
    if not words or not command.isprintable():
        remedy = "Write one command in one line, such as “ssh gpu2”."
        raise SettingsError("“via” contains what is not a command", remedy=remedy)
    for word in words:
        if re.match(r"~|\$\w", word):
            raise SettingsError(
                f"“via” contains {word!r}, which would not be replaced, as no shell reads it",
                remedy="Write the value itself; or let a shell read it, as "
                "“sh -c 'exec apptainer exec ~/a.sif \"$@\"' sh” does.",
            )


def _has_nul(value: Any) -> bool:
    """Whether the value contains a NUL, which arguments, variables and paths cannot contain."""
    if isinstance(value, Mapping):
        return any(map(_has_nul, value.values()))
    return any(map(_has_nul, value)) if isinstance(value, tuple) else isinstance(value, str) and "\0" in value


def _suggestion(key: str) -> str:
    near = difflib.get_close_matches(key, _TYPES, 1)
    return f"Did you mean “{near[0]}”?" if near else "Known settings: " + ", ".join(_TYPES) + "."


def _refuse_secrets(settings: Settings) -> None:
    """Raise SettingsError for secrets: backups, other programs and colleagues may read a kernelspec."""
    for name, value in settings.env.items():
        if kind := secret_filter.in_variable(name, value):
            raise SettingsError(
                f"{name} {'looks like' if kind == 'a secret' else 'contains what looks like'} {kind}; "
                "a kernelspec must not contain secrets",
                remedy=f"Put the line {name}=… into a file that only you can read, and use --env-file FILE.",
            )
    for command in settings.via:
        if kind := secret_filter.in_line(command):
            raise SettingsError(
                f"a command of “via” contains what looks like {kind}; a kernelspec must not contain secrets",
                remedy="Let the command sign in with a key, or read the secret from a file that only you can read.",
            )
    for number, line in enumerate(settings.setup, 1):
        if kind := secret_filter.in_line(line):
            raise SettingsError(
                f"line {number} of “setup” contains what looks like {kind}; a kernelspec must not contain secrets",
                remedy="Put NAME=… into a file that only you can read, use --env-file FILE, and write $NAME here.",
            )


def read_env_file(path: str) -> dict[str, str]:
    """The variables in a file of NAME=VALUE lines and `#` comments.

    Raises SettingsError if the file cannot be read or parsed, or if other users can read it.
    """
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
        mode = file.stat().st_mode
    except OSError as error:
        remedy = "Check the path given with --env-file, and the file's permissions."
        raise SettingsError(f"the env file {path} cannot be read: {error.strerror}", remedy=remedy) from error
    except UnicodeDecodeError:
        raise SettingsError(f"the env file {path} is not UTF-8 text", remedy=_ENV_LINES) from None
    if sys.platform != "win32" and mode & (stat.S_IRWXG | stat.S_IRWXO):
        remedy = f"“chmod 600 {shlex.quote(path)}” makes it readable for you alone."
        raise SettingsError(f"others can read or change the env file {path}", remedy=remedy)
    return dict(
        _parse_env_line(line, path, number)
        for number, line in enumerate(text.splitlines(), 1)
        if _has_variable(line)
    )


_ENV_LINES = "It must have one NAME=VALUE per line; lines that begin with # are comments."


def _has_variable(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def _parse_env_line(line: str, path: str, number: int) -> tuple[str, str]:
    name, found, value = line.strip().removeprefix("export ").partition("=")
    if not found or not _VARIABLE.fullmatch(name.strip()):
        raise SettingsError(f"line {number} of the env file {path} is not NAME=VALUE", remedy=_ENV_LINES)
    value = value.strip()
    if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
        value = value[1:-1]
    return name.strip(), value
