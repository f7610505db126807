"""How a kernelspec comes about from what a user wrote: the settings, what the probe of the machine adds, and the name.

The verb `add` and JupyterLab's form both use it. This module asks nobody, and does not know who calls the hub.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import kernelspecs
from .errors import AgentError, RouteError, SettingsError
from .hub.ssh.config.destination import parse_destination, split_jumps
from .hub.ssh.config.route import parse_route
from .settings import parse, read_env_file
from .wire.kernel_settings import USER_SETTINGS, KernelSettings


@dataclass(frozen=True)
class GivenRoute:
    """The route to one machine, or with `several` to each of some, in ssh's words; the paths are local ones."""

    hosts: Sequence[str]
    several: bool = False
    jumps: Sequence[str] = ()
    identity: Sequence[str] = ()
    config: str = ""
    port: int | None = None


def settings_of(given: GivenRoute, more: Mapping[str, Any]) -> KernelSettings:
    """Return the settings that `given` and `more`, the other settings by name, describe. None: the default.

    Raises RouteError or SettingsError, before anything connects.
    """
    config, identity = _absolute(given.config), tuple(map(_absolute, given.identity))
    if config and (os.path.isdir(config) or not os.path.exists(config)):  # /dev/null is an empty one
        raise RouteError(f"there is no file {config}", remedy="Check the path given with -F.")

    def destinations(host: str, jumps: Sequence[str] = ()) -> list[str]:
        hops = parse_route(host, jumps, identity=identity, config=config or None, port=given.port)
        return [hop.destination for hop in hops]

    routes = [destinations(host, given.jumps) for host in given.hosts]
    differing = [one for one in routes if one[:-1] != routes[0][:-1]]
    for one in routes if differing else ():
        if destinations(one[-1]) != one:  # each start reads such jump hosts from the ssh configuration
            cause = "the hosts have different jump hosts"
            raise RouteError(cause, hop=one[-1], remedy="Put their ProxyJump into the ssh configuration.")
    env_file = _absolute(more.get("env_file"))
    if env_file:
        read_env_file(env_file)
    values = {
        **{key: value for key, value in more.items() if value is not None},
        "route": routes[0][-1:] if differing else routes[0],
        "hosts": tuple(dict.fromkeys(one[-1] for one in routes)) if given.several else (),
        "identity": identity,
        "config": config,
        "env_file": env_file,
    }
    return parse(values)


def split_hosts(texts: Sequence[str]) -> list[str]:
    """Return the machines in comma-separated lists."""
    return [host for text in texts for host in split_jumps(text)]


def hop_names(settings: KernelSettings) -> list[str]:
    """Return the names that the hops of the route have in progress and in errors."""
    return [*(parse_destination(text).label for text in settings.route), *settings.via]


def words_of(settings: KernelSettings) -> list[str]:
    """Return the words after `add` that describe these settings, as far as it has options for them."""
    *jumps, destination = settings.route
    words = [destination, *(word for jump in jumps for word in ("-J", jump))]
    for key, value in settings.to_json().items():
        info = USER_SETTINGS.get(key)
        if info is None or not info.group or key == "hosts":
            continue
        option = option_of(key)
        if value is True or info.const is not None:
            words.append(option)
        else:  # joined, as a text may begin with a hyphen
            joined = f"{option}=" if option.startswith("--") else option
            words += [joined + text for text in _texts(value)]
    return words


def _texts(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        return [f"{name}={text}" for name, text in value.items()]
    return list(map(str, value if isinstance(value, list) else [value]))


def option_of(key: str) -> str:
    """Return the option of `add` for a setting."""
    info = USER_SETTINGS.get(key)
    return (info.flag if info else "") or f"--{key.replace('_', '-')}"


def completed(settings: KernelSettings, probe: Mapping[str, Any]) -> KernelSettings:
    """Return the settings with what the probe found and chose."""
    if "hosts" in probe:
        return settings.replace(python=common_python(working_hosts(probe["hosts"])))
    chosen = probe.get("slurm", {}).get("chosen", {})
    return settings.replace(route=tuple(probe["route"]), python=probe["python"]["path"], **chosen)


def refuse_impossible(probe: Mapping[str, Any], settings: KernelSettings) -> None:
    """Raise AgentError if no kernel with these settings can ever get GPUs on the node, or on any of the hosts."""
    probes = working_hosts(probe["hosts"]) if "hosts" in probe else [probe]
    if all(one.get("gpus_never") for one in probes):
        raise AgentError(
            f"a kernel with these settings can never start: {probes[0]['gpus_problem']}",
            hop=probes[0].get("host") or hop_names(settings)[-1],
            remedy="Request fewer GPUs (--gpus N) or other ones (--min-memory, --gpu-type), or use another node.",
        )


def working_hosts(probes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the probes that succeeded."""
    return [one for one in probes if "error" not in one]


def common_python(probes: list[dict[str, Any]]) -> str:
    """Return the Python that was chosen on each host, "" if they differ: then each start looks for it."""
    paths = {str(one["python"]["path"]) for one in probes}
    return paths.pop() if len(paths) == 1 else ""


def default_name(settings: KernelSettings) -> str:
    """Return the kernelspec's name unless the user gives one: that of the node, or of each host."""
    hosts, via = settings.hosts or settings.route[-1:], settings.via
    return "-".join(map(name_of, via[-1:] if via and len(hosts) == 1 else hosts))


def remove(name: str) -> tuple[list[str], list[str]]:
    """Remove a kernelspec. Return the removed folders, and notes. Raises SettingsError as `kernelspecs.remove` does."""
    notes = []
    with contextlib.suppress(SettingsError):  # it is broken, or not there, which `remove` says
        settings = kernelspecs.find(name).settings
        if folder := settings.env_dir:
            stays = f"Note: the environment {folder} stays on {settings.route[-1]}"
            notes = [f"{stays}; delete it there if nothing uses it."]
    return list(map(str, kernelspecs.remove(name))), notes


def _absolute(path: str | None) -> str:
    return os.path.abspath(os.path.expanduser(path)) if path else ""


def name_of(hop: str) -> str:
    """Return the host of a hop, or the last word of a command, as a kernelspec's name can have it."""
    words = [word for word in hop.split() if not word.startswith("-")] or [hop]
    host = words[-1].rpartition("@")[2].rpartition("/")[2]
    host = re.sub(r":\d+$", "", host) if host.count(":") == 1 or "]" in host else host
    return re.sub(r"[^a-z0-9._-]+", "-", host.lower()).strip("-.") or "gpu"
