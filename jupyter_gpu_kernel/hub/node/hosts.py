"""A kernelspec's settings with several hosts, as settings for each of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


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
