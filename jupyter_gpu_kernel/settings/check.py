"""Parses the settings in a kernelspec's object, checks their values, and reads files of variables."""

from __future__ import annotations

import difflib
import re
import shlex
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import SettingsError, in_message
from ..wire import MAX_PRIORITY, revisions
from ..wire.kernel_settings import USER_SETTINGS, KernelSettings, default_of, type_of
from ..wire.texts import memory_mib
from . import secret_filter, slurm

_MOST_GPUS = 64  # more than any machine has
_USER = re.compile(r"[^:/\s]{1,64}")
_UUID = re.compile(r"(GPU|MIG|AMD)-[A-Za-z0-9/-]{1,76}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def parse(data: Mapping[str, Any], where: str = "") -> KernelSettings:
    """Read a kernelspec's object. `where`: its file, for messages.

    Raises SettingsError if a key is unknown or missing, or a value is invalid.
    """
    place = f" in {where}" if where else ""
    for key, value in data.items():
        _check_type(key, value, place)
    if "route" not in data:
        raise SettingsError(
            f"the setting “route”{place} is missing", remedy=f"It must be {type_of('route').name}."
        )
    settings = KernelSettings.from_json(data)
    check(settings)
    return settings


def _check_type(key: str, value: Any, place: str) -> None:
    """Raise SettingsError if there is no such setting, or the value is of another type."""
    if key not in USER_SETTINGS:
        raise SettingsError(f"the setting “{key}”{place} is unknown", remedy=_suggestion(key))
    if not type_of(key).accepts(value):
        secret = key in ("env", "setup", "via")  # it may be one
        raise SettingsError(
            f"the setting “{key}”{place} is {'of another type' if secret else in_message(value)}",
            remedy=f"It must be {type_of(key).name}.",
        )


def check(settings: KernelSettings) -> None:
    """Raise SettingsError for invalid values."""
    if not settings.route:
        raise SettingsError("“route” is empty", remedy='Write at least one hop: "route": ["alice@gpu2"].')
    if not 0 <= settings.gpus <= _MOST_GPUS:
        raise SettingsError.about("gpus", settings.gpus, f"a number from 0 (none) to {_MOST_GPUS}")
    if abs(settings.priority) > MAX_PRIORITY:
        form = f"a number from -{MAX_PRIORITY} to {MAX_PRIORITY}"
        raise SettingsError.about("priority", settings.priority, form)
    for key, info in USER_SETTINGS.items():
        value = getattr(settings, key)
        if info.choices and value not in (*info.choices, default_of(key)):
            raise SettingsError.about(key, value, f"one of {', '.join(info.choices)}")
        if _has_nul(value):
            raise SettingsError(f"the setting “{key}” contains a NUL character", remedy="Remove it.")
    _check_hosts(settings.hosts)
    _check_texts(settings)
    for command in settings.via:
        _check_command(command)
    slurm.check(settings)
    _refuse_secrets(settings)


def _check_hosts(hosts: tuple[str, ...]) -> None:
    if not all(hosts):
        raise SettingsError("“hosts” contains an empty name", remedy="Write one destination for each host.")
    if len(set(hosts)) < len(hosts):
        raise SettingsError("“hosts” contains a host twice", remedy="Write each host once.")


def _check_texts(settings: KernelSettings) -> None:
    """Raise SettingsError for a text that has not the form of what it stands for."""
    if settings.min_memory and memory_mib(settings.min_memory) is None:
        raise SettingsError.about("min_memory", settings.min_memory, "a size of memory: 20G, 20GiB, 20000M")
    for uuid in settings.ignore_lease:
        if not _UUID.fullmatch(uuid):
            cause = f"“ignore_lease” contains {in_message(uuid)}, which is no UUID of a GPU"
            raise SettingsError(cause, remedy="Copy the UUID that “jupyter gpu-kernel gpus --json” shows.")
    for user in settings.ignore_place:
        if not _USER.fullmatch(user):
            cause = f"“ignore_place” contains {in_message(user)}, which is no name of a user"
            raise SettingsError(cause, remedy="“jupyter gpu-kernel gpus” shows the names of who waits.")
    if settings.code and (fault := revisions.fault(settings.code)):
        raise SettingsError(
            f"“code” is {in_message(settings.code)}: {fault}",
            remedy="It must be a git revision: a commit, a branch, a tag, or HEAD.",
        )
    for name in settings.env:
        if not _VARIABLE.fullmatch(name):
            raise SettingsError(
                f"{in_message(name)} in “env” is not a valid variable name",
                remedy="A name has letters, digits and underscores, and does not begin with a digit.",
            )


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
    near = difflib.get_close_matches(key, USER_SETTINGS, 1)
    return f"Did you mean “{near[0]}”?" if near else "Known settings: " + ", ".join(USER_SETTINGS) + "."


def _refuse_secrets(settings: KernelSettings) -> None:
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
