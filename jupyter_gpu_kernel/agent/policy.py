"""A site's rules for kernels on this node: /etc/jupyter-gpu-kernel/policy.json, written by its administrators.

    {"guard": false, "max_gpus": 2, "max_idle": 3600}

All keys are optional; without the file there are no rules. An invalid file counts as the strictest policy, and the
problem is reported. Users cannot choose the path: it is an argument for tests, and no environment variable.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional

from ..wire import DEFAULT_GPUS

PATH = Path("/etc/jupyter-gpu-kernel/policy.json")
STRICT_GPUS = 1
STRICT_IDLE = 3600.0


class PolicyError(Exception):
    """The kernel's settings request something that the site does not allow."""


class Policy(NamedTuple):
    """`guard`: whether kernels may survive SIGTERM. `max_gpus`: per kernel. `max_idle`: seconds. None: no rule."""

    path: Path
    guard: bool = True
    max_gpus: Optional[int] = None
    max_idle: Optional[float] = None
    problem: str = ""

    def apply(self, settings: Dict[str, Any]) -> Dict[str, Any]:
        """Return the settings as this site allows them. Raises PolicyError if they request more GPUs than allowed."""
        gpus = int(settings.get("gpus", DEFAULT_GPUS))
        if self.max_gpus is not None and gpus > self.max_gpus:
            most = f"at most {self.max_gpus} GPU" + ("" if self.max_gpus == 1 else "s")
            because = f" The file is read strictly, as {self.problem}." if self.problem else ""
            raise PolicyError(
                f"this site's policy ({self.path}) allows a kernel {most}; {gpus} were asked for."
                f"{because} Ask for fewer (--gpus {self.max_gpus}), or talk to the administrators."
            )
        allowed = dict(settings)
        if not self.guard:
            allowed["sigterm"] = "default"
        if self.max_idle is not None:
            for name in ("idle_timeout", "idle_timeout_attached"):
                own = float(settings.get(name) or math.inf)  # 0 means "never", which the site overrides
                allowed[name] = min(own, self.max_idle)
        return allowed

    def __str__(self) -> str:
        """The rules, for the story; "" if there are none."""
        rules: List[str] = [] if self.guard else ["no guard against SIGTERM"]
        if self.max_gpus is not None:
            rules.append(f"at most {self.max_gpus} GPU(s) per kernel")
        if self.max_idle is not None:
            rules.append(f"idle for at most {self.max_idle:g} s")
        problem = f" (read strictly, as {self.problem})" if self.problem else ""
        return f"the site's policy {self.path}: {', '.join(rules)}{problem}" if rules else ""


def read_policy(path: Path = PATH) -> Policy:
    """Read this site's policy. Without a file there are no rules."""
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return Policy(path)
    except (OSError, UnicodeDecodeError) as error:
        return _strict(path, f"it cannot be read: {error}")
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        return _strict(path, f"it is not JSON: {error}")
    if not isinstance(data, dict):
        return _strict(path, "it is not a JSON object")
    return _checked(path, data)


def _checked(path: Path, data: Dict[str, Any]) -> Policy:
    """Check each key. An unknown one may be any rule, misspelt: then the guard is off."""
    unknown = sorted(set(data) - set(Policy._fields[1:4]))
    policy = Policy(path, problem=f"the key “{unknown[0]}” is unknown" if unknown else "", guard=not unknown)
    guard, gpus, idle = data.get("guard", True), data.get("max_gpus"), data.get("max_idle")
    if not isinstance(guard, bool):
        policy = policy._replace(problem="“guard” is neither true nor false")
    policy = policy._replace(guard=policy.guard and guard is True)
    if gpus is not None:
        fits = isinstance(gpus, int) and not isinstance(gpus, bool) and gpus >= 0
        policy = policy._replace(max_gpus=gpus if fits else STRICT_GPUS)
        policy = policy if fits else policy._replace(problem="“max_gpus” is not a whole number")
    if idle is not None:
        fits = isinstance(idle, (int, float)) and not isinstance(idle, bool) and 0 < idle < math.inf
        policy = policy._replace(max_idle=float(idle) if fits else STRICT_IDLE)
        policy = policy if fits else policy._replace(problem="“max_idle” is not a number of seconds")
    return policy


def _strict(path: Path, problem: str) -> Policy:
    return Policy(path, False, STRICT_GPUS, STRICT_IDLE, problem)
