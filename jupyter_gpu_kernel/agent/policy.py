"""A site's rules for kernels on this node: /etc/jupyter-gpu-kernel/policy.json, written by its administrators.

    {"guard": false, "spare": false, "max_gpus": 2, "max_idle": 3600, "gpus_per_user": 3,
     "reserved_gpus": {"GPU-6a1b…": ["carol", "@staff"]}}

All keys are optional; without the file there are no rules. An invalid file counts as the strictest policy, and the
problem is reported. Users cannot choose the path: it is an argument for tests, and no environment variable.
"""

from __future__ import annotations

import grp
import json
import math
import os
import pwd
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from .kernel_settings import KernelSettings
from .refused import Refused

PATH = Path("/etc/jupyter-gpu-kernel/policy.json")
STRICT_GPUS = 1
STRICT_IDLE = 3600.0
EVERY_GPU = "*"
_LONGEST = 1e12  # seconds


class PolicyError(Refused):
    """The kernel's settings request something that the site does not allow."""

    def __init__(self, text: str) -> None:
        super().__init__("policy", text)


class Policy(NamedTuple):
    """The rules; None: no rule.

    guard: Whether kernels may survive SIGTERM.
    spare: Whether spare interpreters may run.
    max_gpus: The GPUs of one kernel; gpus_per_user: of all kernels of a user on this node.
    max_idle: Seconds until an idle kernel ends.
    reserved_gpus: The users and groups (“@staff”) who may use a GPU, by its UUID or index; the others may not.
    problem: What is wrong with the file.
    """

    path: Path
    guard: bool = True
    spare: bool = True
    max_gpus: Optional[int] = None
    max_idle: Optional[float] = None
    gpus_per_user: Optional[int] = None
    reserved_gpus: Optional[Mapping[str, Sequence[str]]] = None
    problem: str = ""

    def apply(self, settings: KernelSettings) -> KernelSettings:
        """Return the settings as this site allows them. Raises PolicyError if they request more GPUs than allowed."""
        self._check_gpus(settings.gpus, self.max_gpus, "a kernel")
        self._check_gpus(settings.gpus, self.gpus_per_user, "a user")
        allowed = settings.replace(
            gpus_per_user=self.gpus_per_user,
            reserved_gpus=tuple(self.reserved_from_us()),
        )
        if not self.guard:
            allowed = allowed.replace(sigterm="default")
        if not self.spare:
            allowed = allowed.replace(spare="off")
        if self.max_idle is not None:  # a setting of 0 means "never", which the site overrides
            allowed = allowed.replace(
                idle_timeout=min(settings.idle_timeout or math.inf, self.max_idle),
                idle_timeout_attached=min(settings.idle_timeout_attached or math.inf, self.max_idle),
            )
        return allowed

    def reserved_from_us(self) -> List[str]:
        """Return the GPUs that this user may not use: UUIDs, or their beginnings, and indices."""
        names = _own_names() if self.reserved_gpus else set()
        return [gpu for gpu, users in (self.reserved_gpus or {}).items() if names.isdisjoint(users)]

    def _check_gpus(self, gpus: int, most: Optional[int], whose: str) -> None:
        if most is None or gpus <= most:
            return
        because = f" The file is read strictly, as {self.problem}." if self.problem else ""
        raise PolicyError(
            f"this site's policy ({self.path}) allows {whose} at most {most} GPU{'' if most == 1 else 's'}; "
            f"{gpus} requested.{because} Ask for fewer (--gpus {most}), or talk to the administrators."
        )

    def __str__(self) -> str:
        """The rules, for the story; "" if there are none."""
        rules: List[str] = [] if self.guard else ["no guard against SIGTERM"]
        if not self.spare:
            rules.append("no spare interpreters")
        if self.max_gpus is not None:
            rules.append(f"at most {self.max_gpus} GPU(s) per kernel")
        if self.max_idle is not None:
            rules.append(f"idle for at most {self.max_idle:g} s")
        if self.gpus_per_user is not None:
            rules.append(f"at most {self.gpus_per_user} GPU(s) per user")
        if self.reserved_gpus:
            rules.append(f"reserved GPUs: {', '.join(self.reserved_gpus)}")
        problem = f" (read strictly, as {self.problem})" if self.problem else ""
        return f"the site's policy {self.path}: {', '.join(rules)}{problem}" if rules else ""


def read_policy(path: Path = PATH) -> Policy:
    """Read this site's policy. Without a file there are no rules."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return Policy(path)
    except OSError as error:
        return _strict(path, f"it cannot be read: {error}", {})
    except (ValueError, RecursionError) as error:
        return _strict(path, f"it is not JSON: {error}", {})
    if not isinstance(data, dict):
        return _strict(path, "it is not a JSON object", {})
    rules: Dict[str, Any] = {}
    for key, value in data.items():
        if key not in _RULES:  # it may be any rule, misspelt
            return _strict(path, f"the key “{key}” is unknown", data)
        name, read = _RULES[key]
        rules[key] = read(value)
        if rules[key] is None:
            return _strict(path, f"“{key}” is not {name}", data)
    return Policy(path, **rules)


def _strict(path: Path, problem: str, data: Dict[str, Any]) -> Policy:
    """The strictest policy. Of the file's own rules it has the reserved GPUs: all, if these cannot be read."""
    reserved = None
    if "reserved_gpus" in data:
        reserved = _reservations(data["reserved_gpus"])
        reserved = {EVERY_GPU: ()} if reserved is None else reserved
    return Policy(path, False, False, STRICT_GPUS, STRICT_IDLE, STRICT_GPUS, reserved, problem)


def _flag(value: Any) -> Optional[bool]:
    return value if isinstance(value, bool) else None


def _count(value: Any) -> Optional[int]:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _seconds(value: Any) -> Optional[float]:
    valid = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < _LONGEST
    return float(value) if valid else None


def _reservations(value: Any) -> Optional[Dict[str, Sequence[str]]]:
    """A list of GPUs, or an object of GPUs with their users and groups."""
    entries = value.items() if isinstance(value, dict) else [(gpu, []) for gpu in _strings(value) or [""]]
    found: Dict[str, Sequence[str]] = {}
    for gpu, users in entries:
        names = _strings(users)
        if names is None or not (gpu.isdigit() or gpu.startswith(("GPU-", "MIG-", "AMD-"))):
            return None
        found[gpu] = names
    return found


def _strings(value: Any) -> Optional[List[str]]:
    """A list of strings, or of numbers as strings; None for anything else."""
    if not isinstance(value, list) or not all(
        isinstance(one, str) or _count(one) is not None for one in value
    ):
        return None
    return [str(one) for one in value]


_RULES: Dict[str, Tuple[str, Callable[[Any], Any]]] = {
    "guard": ("true or false", _flag),
    "spare": ("true or false", _flag),
    "max_gpus": ("a whole number", _count),
    "max_idle": ("a number of seconds", _seconds),
    "gpus_per_user": ("a whole number", _count),
    "reserved_gpus": ("a list of UUIDs or an object of lists of users", _reservations),
}
"""What each rule must be, and what returns its value, or None if that is invalid."""


def _own_names() -> Set[str]:
    """The name of this user, and those of the groups, after an @."""
    names = set()
    try:
        user = pwd.getpwuid(os.getuid())
        names.add(user.pw_name)
        groups = os.getgrouplist(user.pw_name, user.pw_gid)
    except (KeyError, OSError):
        groups = os.getgroups()
    for number in groups:
        try:
            names.add(f"@{grp.getgrgid(number).gr_name}")
        except KeyError:
            continue
    return names
