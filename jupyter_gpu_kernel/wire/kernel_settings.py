"""The settings of one remote kernel. Each is declared once, here, with its type, its default, and its option of `add`.

The settings of users have a help text. Their names are the keys of `metadata.jupyter_gpu_kernel` in a kernelspec, and
in most cases the option of `add` in snake_case. The others are what the hub and the agent add. JSON is parsed where it
enters a process; inside, the settings are passed whole.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple

from . import DEFAULT_GPUS, MAX_PRIORITY
from .fields import FieldError


class SettingInfo(NamedTuple):
    """The description of one setting for its users.

    group: The heading of its option in `add --help`; "" if it has no option. metavar, choices: As in argparse.
    flag: Its option, if that is not the name with hyphens. const: The value that an option without an argument sets.
    """

    help: str
    group: str = ""
    metavar: Optional[str] = None
    flag: str = ""
    choices: Tuple[str, ...] = ()
    const: Optional[str] = None


def _setting(default: Any, *info: Any, **more: Any) -> Any:
    """Declare a setting of users: its default, and the fields of its SettingInfo."""
    metadata = {"info": SettingInfo(*info, **more)}
    if isinstance(default, dict):
        return dataclasses.field(default_factory=dict, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


CONNECTION, KERNEL, GPUS, ENVIRONMENT = "Connection", "Kernel", "GPUs", "Environment"
SLURM, RARE = "Slurm", "Rare"
GROUPS = {
    **dict.fromkeys((CONNECTION, KERNEL, GPUS, ENVIRONMENT)),
    SLURM: "DESTINATION is a login node, and each kernel runs in a job, which its first cell submits.",
    RARE: None,
}
"""The groups of options in `add --help`, with what is to say about them."""


@dataclass(frozen=True)
class KernelSettings:
    """The settings of one kernel. Paths in `identity`, `config` and `env_file` are local and absolute; `python`, `cwd`
    and `setup` belong to the work node.

    The hub and the agent add:

    id, kernel_id: The kernel's id, and Jupyter's.
    name, notebook: The kernelspec, and the path of the notebook on the user's computer; "" if it is not known.
    program: How the user runs our commands.
    owner, by: The hub that owns the kernel, and that hub's name for users.
    fresh: Whether the notebook wants a new kernel, although it has left one.
    given_python: The Python that the user gave, if `python` is the one of the host that was chosen; "" if none.
    placement: Why this host was chosen.
    reservation: Whether the kernel only waits for its GPUs so far, as one of several that wait on several hosts: it
        gets them without a cell, and no notebook finds it.
    job: The id of the Slurm job in which the kernel runs.
    login_route, login_via: `route` and `via` of its login node; those of a kernel in a job lead to the job's node.
    started: When the kernel was started, in seconds since the epoch.
    pin: The commit that the kernel runs, see agent/pinned_code/.

    The site's policy (agent/policy.py) adds (None: no limit):

    gpus_per_user: The GPUs of all kernels of a user on this node.
    reserved_gpus: The GPUs that are kept for other users: UUIDs, their beginnings, and indices; "*": all.
    """

    route: Tuple[str, ...] = _setting((), "the hops, as ssh writes them")
    identity: Tuple[str, ...] = _setting(
        (), "a private key file; can be repeated", CONNECTION, "KEY", flag="-i"
    )
    config: str = _setting(
        "", "an ssh configuration file to use instead of ~/.ssh/config", CONNECTION, "SSH_CONFIG", flag="-F"
    )
    python: str = _setting(
        "",
        "the kernel's Python on the node, or with --create-env the one from which the environment is made "
        "(default: the best one found)",
        KERNEL,
        "PATH",
    )
    gpus: int = _setting(
        DEFAULT_GPUS, f"how many GPUs a kernel takes (default: {DEFAULT_GPUS}; 0: none)", GPUS, "N"
    )
    env: Mapping[str, str] = _setting(
        {}, "a variable of the kernel's environment; can be repeated", ENVIRONMENT, "NAME=VALUE"
    )
    env_file: str = _setting(
        "", "a file of NAME=VALUE lines that only you can read; for secrets", ENVIRONMENT, "FILE"
    )
    cwd: str = _setting("", "the kernel's working directory (default: your home folder)", ENVIRONMENT, "DIR")
    setup: Tuple[str, ...] = _setting(
        (), "a shell line to run before the kernel starts; can be repeated", ENVIRONMENT, "LINE"
    )
    sigterm: str = _setting(
        "survive",
        "what SIGTERM does to a kernel in use (default: survive)",
        RARE,
        choices=("survive", "default"),
    )
    spare: str = _setting(
        "on",
        "start each kernel as a new program; by default it is forked from a spare interpreter on the node",
        RARE,
        flag="--no-spare",
        choices=("on", "off"),
        const="off",
    )
    code: str = _setting(
        "",
        "run the code of this git revision: the kernel works in a checkout of it, and not in --cwd itself",
        ENVIRONMENT,
        "REV",
    )
    idle_timeout: float = _setting(
        2 * 3600.0,
        "when an idle kernel without a front end ends (30m, 8h; default: 2h; 0: never)",
        KERNEL,
        "TIME",
    )
    idle_timeout_attached: float = _setting(
        12 * 3600.0, "seconds until an idle kernel with a front end ends; 0: never"
    )
    gpu_timeout: float = _setting(
        30 * 60.0, "seconds until GPUs that no cell has opened are released; 0: never"
    )
    guard_linger: Optional[float] = _setting(
        None, "seconds for which a kernel is in use after its user's last cell"
    )
    journal_memory_mib: float = _setting(8.0, "output that waits in the keeper's memory, in MiB")
    journal_cap_mib: float = _setting(512.0, "output that waits in the keeper's memory and on disk, in MiB")
    min_memory: str = _setting(
        "",
        "the memory that each GPU must have, without what the driver keeps: 20G, 20GiB (default: any)",
        GPUS,
        "SIZE",
    )
    gpu_type: str = _setting(
        "", "what the name of each GPU must contain: 3090, A100 (default: any)", GPUS, "TEXT"
    )
    ignore_lease: Tuple[str, ...] = _setting(
        (),
        "take this GPU although somebody else has its lease, if it is not used; can be repeated",
        RARE,
        "UUID",
    )
    ignore_place: Tuple[str, ...] = _setting(
        (),
        "pass over all places of this user in the queue once free GPUs were left untaken for a minute; can be repeated",
        RARE,
        "USER",
    )
    hosts: Tuple[str, ...] = _setting(
        (),
        "several machines instead of DESTINATION: each kernel starts on the best one",
        CONNECTION,
        "HOST[,HOST…]",
    )
    via: Tuple[str, ...] = _setting(
        (),
        "a command on DESTINATION that leads on: “ssh gpu2”, “docker exec -i box”; can be repeated",
        CONNECTION,
        "COMMAND",
    )
    transport: str = _setting(
        "auto",
        "what speaks SSH: paramiko, or the system's ssh program; auto (the default) takes paramiko unless a host needs "
        "what only ssh can do, such as Kerberos or a ProxyCommand",
        RARE,
        choices=("auto", "paramiko", "ssh"),
    )
    env_dir: str = _setting("", "the virtual environment on the node that “add --create-env” made")
    priority: int = _setting(
        0,
        f"which of your kernels that wait for GPUs get them first: the highest, from -{MAX_PRIORITY} to {MAX_PRIORITY} "
        "(default: 0)",
        GPUS,
        "N",
    )

    slurm: bool = _setting(False, "run kernels in jobs of Slurm", SLURM)
    partition: str = _setting(
        "", "the partition (default: one with such GPUs, the cluster's default first)", SLURM, "NAME"
    )
    time: str = _setting(
        "",
        "the time limit: 30m, 8h, 4:00:00, 1-12:00:00; a number alone is minutes, as for sbatch (default: 4:00:00, or "
        "the partition's)",
        SLURM,
        "TIME",
    )
    cpus: int = _setting(0, "CPUs (sbatch --cpus-per-task)", SLURM, "N")
    mem: str = _setting("", "memory of each node: 32G (default: Slurm's, which may be small)", SLURM, "SIZE")
    account: str = _setting("", "the account to charge", SLURM, "NAME")
    qos: str = _setting("", "the quality of service", SLURM, "NAME")
    nodes: int = _setting(
        1, "machines, each with --gpus GPUs; the kernel runs on the first (default: 1)", SLURM, "N"
    )
    sbatch: Tuple[str, ...] = _setting(
        (), "one more option of sbatch, such as --sbatch=--constraint=ib; can be repeated", SLURM, "OPTION"
    )
    warn_before: Optional[float] = _setting(
        None, "when, before the time limit, a signal tells the kernel (default: 5m; 0: never)", SLURM, "TIME"
    )
    warn_signal: str = _setting(
        "USR1",
        "which signal that is (default: USR1)",
        SLURM,
        choices=("USR1", "USR2", "HUP", "INT", "CONT", "WINCH"),
    )
    share_job: bool = _setting(False, "kernels of this kernelspec share one job", SLURM)
    way: str = _setting(
        "",
        "the only way to the job's node: ssh, or srun on the login node, which can read what passes (default: ssh, "
        "else srun)",
        SLURM,
        choices=("ssh", "srun"),
    )
    keep_job: float = _setting(
        600.0,
        "for how long a job that waits is kept after its notebook was closed (default: 10m; 0: not)",
        SLURM,
        "TIME",
    )

    id: str = ""
    kernel_id: str = ""
    name: str = ""
    notebook: str = ""
    program: str = ""
    owner: str = ""
    by: str = ""
    fresh: bool = False
    given_python: Optional[str] = None
    placement: str = ""
    reservation: bool = False
    job: str = ""
    login_route: Tuple[str, ...] = ()
    login_via: Tuple[str, ...] = ()
    started: float = 0.0
    pin: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    gpus_per_user: Optional[int] = None
    reserved_gpus: Tuple[str, ...] = ()

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> KernelSettings:
        """Read the object of another process. Raises FieldError for a value of a wrong type. Unknown keys are ignored:
        a newer version may send them."""
        given = {name: data[name] for name in _FIELDS if data.get(name) is not None}
        return cls(**{name: _value(name, value) for name, value in given.items()})

    def to_json(self) -> Dict[str, Any]:
        """Return the values that are not the defaults, and always "route" and "gpus"."""
        values = {name: getattr(self, name) for name in _FIELDS}
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in values.items()
            if name in ("route", "gpus") or value != default_of(name)
        }

    def replace(self, **changes: Any) -> KernelSettings:
        """Return the settings with other values."""
        return dataclasses.replace(self, **changes)

    # -------------------------------------------------------------------------------------- where the kernel is

    def each_host(self) -> List[KernelSettings]:
        """Return the settings with the route to each of their hosts; the same settings if they name no hosts."""
        routes = ((*self.route[:-1], host) for host in self.hosts)
        return [self.replace(route=route) for route in routes] or [self]

    def placed(self, python: str, placement: str = "") -> KernelSettings:
        """Return the settings of a kernel on one of the hosts: with its Python there, and why this host was chosen."""
        return self.replace(python=python, given_python=self.python, placement=placement)

    def as_given(self) -> KernelSettings:
        """Return the settings as the kernelspec has them, without what `placed` has added for the host."""
        if self.given_python is None:
            return self
        return self.replace(python=self.given_python, given_python=None, placement="")

    def before_start(self) -> KernelSettings:
        """Return the settings of the kernel before it was started, which lead to its login node, or to the first of its
        hosts."""
        return self.at_login().as_given().each_host()[0]

    def at_login(self) -> KernelSettings:
        """Return the settings that lead to the login node, from those of a kernel in a job."""
        if not self.login_route:
            return self
        return self.replace(route=self.login_route, via=self.login_via, job="", login_route=(), login_via=())


# ------------------------------------------------------------------------------------------ types of values


class ValueType(NamedTuple):
    """A type of JSON values: its name in messages, and whether a value is of this type."""

    name: str
    accepts: Callable[[Any], bool]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < math.inf


def _are_strings(values: Any) -> bool:
    return all(isinstance(one, str) for one in values)


_STRING = ValueType("a string", lambda value: isinstance(value, str))
_NUMBER = ValueType("a number, 0 or greater", _is_number)
_TYPES = {
    "str": _STRING,
    "Optional[str]": _STRING,
    "int": ValueType("an integer", lambda value: isinstance(value, int) and not isinstance(value, bool)),
    "Optional[int]": _NUMBER,
    "float": _NUMBER,
    "Optional[float]": _NUMBER,
    "bool": ValueType("true or false", lambda value: isinstance(value, bool)),
    "Tuple[str, ...]": ValueType(
        "a list of strings", lambda value: isinstance(value, (list, tuple)) and _are_strings(value)
    ),
    "Mapping[str, str]": ValueType(
        "an object whose values are strings",
        lambda value: isinstance(value, Mapping) and _are_strings(value.values()),
    ),
    "Mapping[str, Any]": ValueType("an object", lambda value: isinstance(value, dict)),
}
_FIELDS = {one.name: one for one in dataclasses.fields(KernelSettings)}
USER_SETTINGS: Dict[str, SettingInfo] = {
    name: one.metadata["info"] for name, one in _FIELDS.items() if "info" in one.metadata
}
"""What users can set, by name."""


def type_of(name: str) -> ValueType:
    """Return the type of the values of a setting."""
    return _TYPES[str(_FIELDS[name].type)]


def default_of(name: str) -> Any:
    """Return the default of a setting."""
    default = _FIELDS[name].default
    return {} if default is dataclasses.MISSING else default


def _value(name: str, value: Any) -> Any:
    wanted = type_of(name)
    if not wanted.accepts(value):
        raise FieldError(f"the setting {name!r} is not {wanted.name}")
    return tuple(value) if isinstance(value, list) else value
