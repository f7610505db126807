"""The settings of a remote kernel: which there are, of which type, and what is refused.

The keys are those under `metadata.jupyter_gpu_kernel` of a kernelspec: the flags of `jupyter gpu-kernel add`
in snake_case. Where they are kept, and what is done with them, is not known here.
"""

from __future__ import annotations

import difflib
import re
import stat
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from .errors import SettingsError

# Designed, but nobody would heed them yet.
_LATER = (
    *("hosts", "via", "slurm", "partition", "time", "cpus", "mem", "sbatch", "debugger"),
    "take_gpu",
)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SECRET_NAME = re.compile(
    r"(TOKEN|SECRETS?|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|APIKEY)(_|$)|(^|_)KEYS?(_|$)", re.IGNORECASE
)
_SECRET_VALUE = re.compile(
    r"gh[pousr]_\w{16}|hf_\w{16}|glpat-|sk-\w{16}|AKIA\w{12}|xox[abp]-|-----BEGIN|://[^/\s:@]+:[^/\s@]+@"
)
_ASSIGNMENT = re.compile(r"(?:^|[\s;&])([A-Za-z_]\w*)=(\"[^\"]*\"|'[^']*'|[^\s;&]*)")


@dataclass(frozen=True)
class Settings:
    """One remote kernel. Files are absolute local paths; `python`, `cwd` and `setup` are the work node's."""

    route: tuple[str, ...]
    identity: tuple[str, ...] = ()
    config: str = ""
    python: str = ""
    gpus: int = 1
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
        if self.gpus < 0:
            raise SettingsError(f"“gpus” is {self.gpus}", remedy="0 is none, 1 the default.")
        if self.sigterm not in ("survive", "default"):
            raise SettingsError(f"“sigterm” is {self.sigterm!r}", remedy="It is “survive” or “default”.")
        for name in self.env:
            if not _VARIABLE.fullmatch(name):
                raise SettingsError(f"{name!r} in “env” is no variable's name", remedy="Write NAME=VALUE.")
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
                    f"the setting “{key}”{place} is {value!r}", remedy=f"It must be {_KINDS[key]}."
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
        return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
    if kind == "a list of texts":
        return isinstance(value, list | tuple) and all(isinstance(one, str) for one in value)
    if kind == "an object of texts":
        return isinstance(value, Mapping) and all(isinstance(one, str) for one in value.values())
    return isinstance(value, str)


def _stranger(key: str) -> str:
    return "is not supported yet" if key in _LATER else "is unknown"


def _nearest(key: str) -> str:
    near = difflib.get_close_matches(key, _KINDS, 1)
    return f"Did you mean “{near[0]}”?" if near else "There are: " + ", ".join(_KINDS) + "."


def _refuse_secrets(settings: Settings) -> None:
    """What a kernelspec says is read by backups, other programs and helpful colleagues."""
    named = list(settings.env.items())
    for line in settings.setup:
        named += [(name, value.strip("\"'")) for name, value in _ASSIGNMENT.findall(line)]
    for name, value in named:
        if looks_secret(name, value):
            raise SettingsError(
                f"{name} looks like a secret, which must not stand in a kernelspec",
                remedy=f"Put the line {name}=… into a file that only you can read, and give --env-file FILE.",
            )


def looks_secret(name: str, value: str) -> bool:
    """By its name or its value; what refers to another place (`$(cat …)`, a path) does not."""
    if not value or value.startswith(("$", "/", "~")):
        return False
    return bool(_SECRET_NAME.search(name) or _SECRET_VALUE.search(value))


def read_env_file(path: str) -> dict[str, str]:
    """NAME=VALUE lines, `#` comments. SettingsError if it cannot be read, or others can read it, too."""
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
        mode = file.stat().st_mode
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"the env file {path} cannot be read: {error}") from error
    if sys.platform != "win32" and mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise SettingsError(f"others can read the env file {path}", remedy=f"Run: chmod 600 {path}")
    return dict(
        _env_line(line, path, number) for number, line in enumerate(text.splitlines(), 1) if _says(line)
    )


def _says(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def _env_line(line: str, path: str, number: int) -> tuple[str, str]:
    name, found, value = line.strip().removeprefix("export ").partition("=")
    if not found or not _VARIABLE.fullmatch(name.strip()):
        raise SettingsError(f"line {number} of the env file {path} is not NAME=VALUE")
    value = value.strip()
    if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
        value = value[1:-1]
    return name.strip(), value
