"""The settings of one kernel in the hub. They are parsed once, where a client's call comes in, and passed whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ..errors import SettingsError
from ..wire import DEFAULT_GPUS
from ..wire.fields import FieldError, changed_values, typed_values

KEEP_JOB = 600.0
"""Seconds for which a job that waits is kept after its notebook was closed, unless the setting says otherwise."""
WARN_BEFORE = 300.0
"""Seconds before its time limit at which a job gets the warning signal, unless the setting says otherwise."""


class LoginRoute(NamedTuple):
    """The way to the login node, for a kernel in a job: its own settings lead to the job's node."""

    route: tuple[str, ...] = ()
    via: tuple[str, ...] = ()


class KernelSettings(NamedTuple):
    """What the hub reads. The options of the user have the names that they have in a kernelspec. The others are:

    name, notebook: The kernelspec, and the path of the notebook on this computer; "" if it is not known.
    kernel_id: Jupyter's id of the kernel.
    program: How the user runs our commands.
    given_python: The Python that the user gave, if `python` is the one of the host that was chosen; "" if none.
    placement: Why this host was chosen.
    standby, reserved_for: See agent/gpus/standby.py.
    job, login: The id of the Slurm job in which the kernel runs, and the way to its login node.
    others: What only front ends or the agent read, as JSON; the hub passes it on.
    """

    route: tuple[str, ...] = ()
    identity: tuple[str, ...] = ()
    config: str = ""
    via: tuple[str, ...] = ()
    transport: str = "auto"
    hosts: tuple[str, ...] = ()

    name: str = ""
    notebook: str = ""
    kernel_id: str = ""
    program: str = ""
    python: str = ""
    setup: tuple[str, ...] = ()
    cwd: str = ""
    code: str = ""
    priority: int = 0

    gpus: int = DEFAULT_GPUS
    min_memory: str = ""
    gpu_type: str = ""
    given_python: str | None = None
    placement: str = ""
    standby: str = ""
    reserved_for: str = ""

    slurm: bool = False
    partition: str = ""
    time: str = ""
    cpus: int = 0
    mem: str = ""
    account: str = ""
    qos: str = ""
    nodes: int = 1
    sbatch: tuple[str, ...] = ()
    warn_before: float | None = None
    warn_signal: str = "USR1"
    share_job: bool = False
    way: str = ""
    keep_job: float | None = None
    job: str = ""
    login: LoginRoute = LoginRoute()

    others: Mapping[str, Any] = {}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> KernelSettings:
        """Read a client's object, or that of `to_json`. Raises SettingsError for a value of a wrong type."""
        defaults = {**cls._field_defaults, "given_python": "", "login": {}}
        others = {key: value for key, value in data.items() if key not in cls._fields}
        try:
            values = typed_values(data, defaults)
            login = LoginRoute(**typed_values(values.get("login", {}), LoginRoute._field_defaults))
        except FieldError as error:
            raise SettingsError(str(error)) from None
        return cls(**{**values, "login": login, "others": others})

    def to_json(self) -> dict[str, Any]:
        """For clients and the agent: all values except defaults, and always "route" and "gpus"."""
        values = changed_values(self._replace(others={})._asdict(), self._field_defaults)
        if self.login.route:
            values["login"] = {"route": list(self.login.route), "via": list(self.login.via)}
        return {**self.others, **values, "route": list(self.route), "gpus": self.gpus}

    # -------------------------------------------------------------------------------------- where the kernel is

    def each_host(self) -> list[KernelSettings]:
        """Return the settings with the route to each of their hosts; the same settings if they name no hosts."""
        routes = ((*self.route[:-1], host) for host in self.hosts)
        return [self._replace(route=route) for route in routes] or [self]

    def placed(self, python: str, placement: str = "", standby: str = "") -> KernelSettings:
        """Return the settings of a kernel on one of the hosts: with its Python there, and why this host was chosen."""
        return self._replace(python=python, given_python=self.python, placement=placement, standby=standby)

    def as_given(self) -> KernelSettings:
        """Return such settings without what belongs to that host."""
        if self.given_python is None:
            return self
        return self._replace(python=self.given_python, given_python=None, placement="", standby="")

    def at_login(self) -> KernelSettings:
        """Return the settings that lead to the login node, from those of a kernel in a job."""
        if not self.login.route:
            return self
        return self._replace(route=self.login.route, via=self.login.via, job="", login=LoginRoute())


class Spec(NamedTuple):
    """A kernelspec: its settings and its name, "" if no kernelspec is known."""

    settings: KernelSettings
    name: str = ""

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Spec:
        """Read a client's {"settings", "name"}."""
        return cls(KernelSettings.from_json(data["settings"]), str(data.get("name") or ""))
