"""The settings of one kernel on this node: what the hub sends for it, as the site allows it.

They are parsed once, where they come in. A process that is started for the kernel gets them as JSON.
"""

from __future__ import annotations

import sys
from typing import Any, Callable, Dict, Mapping, NamedTuple, Optional, Tuple

from ..wire import DEFAULT_GPUS
from ..wire.fields import changed_values, typed_values


class SiteRules(NamedTuple):
    """What a site's policy (policy.py) adds to the settings of a kernel; None: no limit.

    gpus_per_user: The GPUs of all kernels of a user on this node.
    longest_hold: Seconds for which a kernel keeps GPUs while others wait.
    reserved_gpus: The GPUs that are kept for other users: UUIDs, their beginnings, and indices; "*": all.
    """

    gpus_per_user: Optional[int] = None
    longest_hold: Optional[float] = None
    reserved_gpus: Tuple[str, ...] = ()


class KernelSettings(NamedTuple):
    """The options of the user have the names that they have in a kernelspec. The others are:

    id, name, notebook: The kernel's id, its kernelspec, and the path of its notebook.
    owner, by: The hub that owns the kernel, and that hub's name for users.
    program: How the user runs our commands.
    fresh: Whether the notebook wants a new kernel, although it has left one.
    job: The id of the Slurm job in which the kernel runs.
    started: When the kernel was started, in seconds since the epoch.
    standby, reserved_for: See gpus/standby.py; a reservation has no notebook yet, but one for which it is made.
    placement: Why this host was chosen.
    held_since: Since when the kernel has had its GPUs, in seconds since the epoch.
    pin: The commit that the kernel runs, see pinned_code/checkout.py.
    site: The rules of the site's policy about GPUs.
    """

    id: str = ""
    name: str = ""
    notebook: str = ""
    owner: str = ""
    by: str = ""
    program: str = ""
    fresh: bool = False
    python: str = ""
    gpus: int = DEFAULT_GPUS
    env: Mapping[str, str] = {}
    cwd: str = ""
    setup: Tuple[str, ...] = ()
    code: str = ""
    job: str = ""
    sigterm: str = "survive"
    spare: str = "on"
    idle_timeout: float = 2 * 3600.0
    idle_timeout_attached: float = 12 * 3600.0
    gpu_timeout: float = 30 * 60.0
    guard_linger: Optional[float] = None
    journal_memory_mib: float = 8.0
    journal_cap_mib: float = 512.0
    min_memory: str = ""
    gpu_type: str = ""
    ignore_lease: Tuple[str, ...] = ()
    ignore_place: Tuple[str, ...] = ()
    priority: int = 0
    started: float = 0.0
    standby: str = ""
    reserved_for: str = ""
    placement: str = ""
    held_since: Optional[float] = None
    pin: Mapping[str, Any] = {}
    site: SiteRules = SiteRules()

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> KernelSettings:
        """Read a hub's object, or that of `to_json`. Raises FieldError for a value of a wrong type. Unknown keys are
        ignored: a newer hub may send them."""
        values = typed_values(data, {**cls._field_defaults, "site": {}})
        rules = values.get("site", {})
        reserved = tuple(rules.get("reserved_gpus", ()))
        site = SiteRules(rules.get("gpus_per_user"), rules.get("longest_hold"), reserved)
        return cls(**{**values, "python": values.get("python") or sys.executable, "site": site})

    def to_json(self) -> Dict[str, Any]:
        """Return the values that are not the defaults."""
        values = changed_values(self._asdict(), self._field_defaults)
        return {**values, "site": self.site._asdict()} if "site" in values else values


class CurrentSettings:
    """The settings of a running kernel. Some change while it runs; `on_change` is called after each change."""

    def __init__(self, settings: KernelSettings, on_change: Callable[[], None] = lambda: None) -> None:
        self.now = settings
        self._on_change = on_change

    def change(self, **changes: Any) -> None:
        """Replace some of the values."""
        self.now = self.now._replace(**changes)
        self._on_change()
