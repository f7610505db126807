"""The settings of a remote kernel: which there are, of which type, and what is refused.

The keys are those under `metadata.jupyter_gpu_kernel` of a kernelspec: the flags of `jupyter gpu-kernel add`
in snake_case. Where they are kept, and what is done with them, is not known here.
"""

from __future__ import annotations

import difflib
import math
import re
import shlex
import stat
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from . import secret_filter
from .errors import SettingsError
from .wire import DEFAULT_GPUS

# Designed, but nobody would heed them yet.
_LATER = (
    *("hosts", "via", "slurm", "partition", "time", "cpus", "mem", "sbatch", "debugger"),
    "take_gpu",
)
_MOST_GPUS = 64  # more than any machine has
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class Settings:
    """One remote kernel. Files are absolute local paths; `python`, `cwd` and `setup` are the work node's."""

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
    idle_timeout: float | None = (
        None  # seconds until an idle kernel ends that nobody is attached to; 0: never
    )
    idle_timeout_attached: float | None = None  # the same while somebody is
    gpu_timeout: float | None = None  # seconds until GPUs go back that no cell has opened; 0: never
    guard_linger: float | None = None  # seconds a kernel counts as in use after its user's last cell
    journal_memory_mib: float | None = None
    journal_cap_mib: float | None = None

    def __post_init__(self) -> None:
        """SettingsError for values that cannot be."""
        if not self.route:
            raise SettingsError("“route” is empty", remedy='Write at least one hop: "route": ["alice@gpu2"].')
        if not 0 <= self.gpus <= _MOST_GPUS:
            remedy = f"It is a number from 0 (none) to {_MOST_GPUS}; {DEFAULT_GPUS} is the default."
            raise SettingsError(f"“gpus” is {self.gpus}", remedy=remedy)
        for key, value in vars(self).items():
            if _has_nul(value):
                raise SettingsError(f"the setting “{key}” has a NUL character", remedy="Write it without.")
        if self.sigterm not in ("survive", "default"):
            raise SettingsError(
                f"“sigterm” is {_shown('sigterm', self.sigterm)}", remedy="It is “survive” or “default”."
            )
        for name in self.env:
            if not _VARIABLE.fullmatch(name):
                raise SettingsError(
                    f"{_shown('', name)} in “env” is no variable's name",
                    remedy="A name has letters, digits and underscores, and begins with no digit: NAME=VALUE.",
                )
        _refuse_secrets(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any], where: str = "") -> Settings:
        """From a kernelspec's object. SettingsError names a key that is unknown, missing or of wrong type."""
        place = f" in {where}" if where else ""
        for key, value in data.items():
            if key not in _KINDS:
                raise SettingsError(f"the setting “{key}”{place} {_stranger(key)}", remedy=_nearest(key))
            if not _fits(value, _KINDS[key]):
                raise SettingsError(
                    f"the setting “{key}”{place} is {_shown(key, value)}", remedy=f"It must be {_KINDS[key]}."
                )
        if "route" not in data:
            raise SettingsError(
                f"the setting “route”{place} is missing", remedy=f"It must be {_KINDS['route']}."
            )
        values: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in data.items()
        }
        return cls(**values)

    def to_json(self) -> dict[str, Any]:
        """For a kernelspec and the hub: what is set, and always "route" and "gpus"."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        if self.sigterm == "survive":
            del values["sigterm"]
        plain = {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}
        return {key: value for key, value in plain.items() if _is_set(key, value)}


_KINDS_OF_TYPES = {
    "str": "a text",
    "int": "a whole number",
    "tuple[str, ...]": "a list of texts",
    "Mapping[str, str]": "an object of texts",
    "float | None": "a number, not below 0",
}
_KINDS = {one.name: _KINDS_OF_TYPES[str(one.type)] for one in fields(Settings)}


def _is_set(key: str, value: Any) -> bool:
    """What has its default goes without saying; 0 seconds are a setting."""
    if _KINDS[key].startswith("a number"):
        return value is not None
    return bool(value) or key in ("route", "gpus")


def _fits(value: Any, kind: str) -> bool:
    if kind == "a whole number":
        return isinstance(value, int) and not isinstance(value, bool)
    if kind.startswith("a number"):
        return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf
    if kind == "a list of texts":
        return isinstance(value, list | tuple) and all(isinstance(one, str) for one in value)
    if kind == "an object of texts":
        return isinstance(value, Mapping) and all(isinstance(one, str) for one in value.values())
    return isinstance(value, str)


def _has_nul(value: Any) -> bool:
    """What no argument of a program, no variable and no path can have."""
    if isinstance(value, Mapping):
        return any(map(_has_nul, value.values()))
    return any(map(_has_nul, value)) if isinstance(value, tuple) else isinstance(value, str) and "\0" in value


def _shown(key: str, value: Any) -> str:
    """A wrong value in a message; not those that may hold secrets."""
    if key in ("env", "setup"):
        return "of another type"
    return text if len(text := repr(value)) <= 60 else f"{text[:60]}…"


def _stranger(key: str) -> str:
    return "is not supported yet" if key in _LATER else "is unknown"


def _nearest(key: str) -> str:
    near = difflib.get_close_matches(key, _KINDS, 1)
    return f"Did you mean “{near[0]}”?" if near else "There are: " + ", ".join(_KINDS) + "."


def _refuse_secrets(settings: Settings) -> None:
    """What a kernelspec says is read by backups, other programs and helpful colleagues."""
    for name, value in settings.env.items():
        if kind := secret_filter.in_variable(name, value):
            raise SettingsError(
                f"{name} looks like a secret, which must not stand in a kernelspec"
                if kind == "a secret"
                else f"{name} has what looks like {kind}, which must not stand in a kernelspec",
                remedy=f"Put the line {name}=… into a file that only you can read, and give --env-file FILE.",
            )
    for number, line in enumerate(settings.setup, 1):
        if kind := secret_filter.in_line(line):
            raise SettingsError(
                f"line {number} of “setup” has what looks like {kind}; a secret must not stand in a kernelspec",
                remedy="Put NAME=… into a file that only you can read, give --env-file FILE, and write $NAME here.",
            )


def read_env_file(path: str) -> dict[str, str]:
    """NAME=VALUE lines, `#` comments. SettingsError if it cannot be read, or others can read it, too."""
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
        mode = file.stat().st_mode
    except OSError as error:
        remedy = "Check the path given with --env-file, and that you may read it."
        raise SettingsError(f"the env file {path} cannot be read: {error.strerror}", remedy=remedy) from error
    except UnicodeDecodeError:
        raise SettingsError(f"the env file {path} is not UTF-8 text", remedy=_ENV_LINES) from None
    if sys.platform != "win32" and mode & (stat.S_IRWXG | stat.S_IRWXO):
        remedy = f"Run: chmod 600 {shlex.quote(path)}"
        raise SettingsError(f"others can read or change the env file {path}", remedy=remedy)
    return dict(
        _env_line(line, path, number) for number, line in enumerate(text.splitlines(), 1) if _says(line)
    )


_ENV_LINES = "It has one NAME=VALUE on each line; lines that begin with # are comments."


def _says(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def _env_line(line: str, path: str, number: int) -> tuple[str, str]:
    name, found, value = line.strip().removeprefix("export ").partition("=")
    if not found or not _VARIABLE.fullmatch(name.strip()):
        raise SettingsError(f"line {number} of the env file {path} is not NAME=VALUE", remedy=_ENV_LINES)
    value = value.strip()
    if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
        value = value[1:-1]
    return name.strip(), value
