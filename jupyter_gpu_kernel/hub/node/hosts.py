"""A kernelspec's settings with several hosts, as settings for each of them, and the error if none can be used."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...errors import GpuKernelError, KernelStartError
from .. import sanitize


def each_host(settings: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the settings with the route to each of their hosts; the same settings if they name no hosts."""
    hosts = settings.get("hosts") or ()
    if not hosts:
        return [settings]
    jumps = list(settings["route"])[:-1]
    return [{**settings, "route": [*jumps, host]} for host in hosts]


def each_spec(specs: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the specs, {"settings", "name"}, with one for each host of each."""
    return [{**spec, "settings": one} for spec in specs for one in each_host(spec["settings"])]


def placed(settings: dict[str, Any], python: str, placement: str, standby: str) -> dict[str, Any]:
    """Return the settings of a kernel on one of the hosts: with its Python there, and why this host was chosen."""
    given = settings.get("python") or ""
    return {**settings, "python": python, "given_python": given, "placement": placement, "standby": standby}


def as_given(settings: dict[str, Any]) -> dict[str, Any]:
    """Return such settings without what belongs to that host."""
    if "given_python" not in settings:
        return settings
    given = {key: value for key, value in settings.items() if key not in ("placement", "standby")}
    return {**given, "python": given.pop("given_python")}


def none_usable(errors: dict[str, GpuKernelError]) -> GpuKernelError:
    """Return the error if none of the hosts, by name, can be used: that of one to which only its user can sign in."""
    first, *others = errors.values()
    sign_in = next((error for error in errors.values() if error.login), None)
    if sign_in is not None or not others:
        return sign_in or first
    causes = "; ".join(f"{name}: {sanitize.one_line(error.cause)}" for name, error in errors.items())
    return KernelStartError(f"none of the hosts can be used: {causes}", remedy=first.remedy)
