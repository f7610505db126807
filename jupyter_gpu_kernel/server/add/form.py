"""What the form “Add a remote GPU” offers and sends: machines, and the route and settings, which are checked.

Each error names a field of the form.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Iterator
from typing import Any

from ...adding import GivenRoute, settings_of, split_hosts
from ...errors import GpuKernelError, RouteError, SettingsError
from ...hub.ssh.config.destination import existing_files, parse_destination
from ...hub.ssh.config.route import hosts
from ...wire.kernel_settings import USER_SETTINGS, KernelSettings
from ..api import Handler, RequestRefused, refusing, route

MAX_TEXT = 2000
"""Characters of one field."""
MAX_BODY = 64 * 1024
"""Bytes of a request."""
ROUTE = ("destination", "jumps", "identity", "config")
"""The fields that describe the route to the machine."""
_OTHER_FIELDS = ("route", "hosts", "identity", "config", "env_dir")
"""Settings that come from other fields, or only from `add --create-env`."""
_QUOTED = re.compile(r"“(\w+)”")


def settings_from(body: dict[str, Any]) -> KernelSettings:
    """Return the settings that the form describes: {"destination", "jumps", "identity", "config", "settings"}.

    All but the destination may be left out. "jumps" are comma-separated; "settings" is an object of other settings.
    Raises RequestRefused, with the field that the error is about. This runs ssh, and so may block.
    """
    destination, jumps, identity, config = (_text(body, field) for field in ROUTE)
    with _about("destination"):
        if not destination:
            raise RouteError("there is no destination", remedy="Write user@host, or choose a host.")
        parse_destination(destination)
    with _about("jumps"):
        for jump in split_hosts([jumps]):
            if jump != "none":
                parse_destination(jump)
    for field, file in (("identity", identity), ("config", config)):
        with _about(field):
            existing_files([file] if file else [])
    more = body.get("settings", {})
    with _about("settings"):
        if not isinstance(more, dict) or (unknown := more.keys() & set(_OTHER_FIELDS)):
            raise SettingsError(
                "“settings” is not an object" if not isinstance(more, dict) else f"{min(unknown)} is no field"
            )
    keys = [identity] if identity else []
    try:
        given = GivenRoute([destination], jumps=[jumps] if jumps else [], identity=keys, config=config)
        return settings_of(given, more)
    except GpuKernelError as error:
        raise _refused(error, "settings" if isinstance(error, SettingsError) else "destination") from None


def field_of(error: GpuKernelError, otherwise: str = "") -> str:
    """Return the setting that the error is about."""
    found = _QUOTED.search(error.cause) if isinstance(error, SettingsError) else None
    return found[1] if found and found[1] in USER_SETTINGS else otherwise


@contextlib.contextmanager
def _about(field: str) -> Iterator[None]:
    try:
        yield
    except GpuKernelError as error:
        raise _refused(error, field) from None


def _refused(error: GpuKernelError, field: str) -> RequestRefused:
    return RequestRefused(400, error, field=field_of(error, field))


def _text(body: dict[str, Any], field: str) -> str:
    value = body.get(field, "")
    with _about(field):
        if not isinstance(value, str) or len(value) > MAX_TEXT or not value.isprintable():
            raise SettingsError(f"this is not one line of at most {MAX_TEXT} characters")
    return str(value).strip()


@route("GET", "ssh-hosts")
async def ssh_hosts(handler: Handler) -> list[dict[str, Any]]:
    """The machines that the user's ssh configuration names, and nothing else of it: [{name, user, port, jumps}];
    `?config=`: of this file instead of ~/.ssh/config."""
    config = handler.get_query_argument("config", "").strip()
    with refusing(400, field="config"):
        if len(config) > MAX_TEXT or not config.isprintable():
            raise RouteError("this is not the path of a file")
        return await asyncio.to_thread(_hosts, config)


def _hosts(config: str) -> list[dict[str, Any]]:
    return hosts(*existing_files([config] if config else []))
