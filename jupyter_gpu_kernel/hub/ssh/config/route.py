"""Makes the list of hops of a route from the user's destinations and the ssh configuration; and lists the machines that
the configuration names, so that they can be offered. Nothing else of it is shown.

Nothing here connects, asks or verifies.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from ....errors import RouteError
from . import ssh_config
from .destination import Destination, existing_files, parse_destination, split_command, split_jumps
from .directives import Values, first, switched

_MAX_JUMP_DEPTH = 8  # jump hosts with jump hosts of their own: more is a loop
MAX_HOSTS = 300
"""Machines that are listed."""
_MAX_FILES = 100
_AT_ONCE = 8  # programs ssh, each of which takes some milliseconds
_PATIENCE = 5.0  # seconds for all of them
_PATTERN = re.compile(r"[*?!]")


@dataclass(frozen=True)
class Hop:
    """One machine of a route. `label` names the machine in messages. `destination` is stored: parsed again, it gives an
    equal hop."""

    label: str
    kind: Literal["ssh", "local"]
    host: str
    port: int = 22
    user: str = ""
    destination: str = ""
    host_key_alias: str | None = None
    identity_files: tuple[Path, ...] = ()
    identities_only: bool = False
    uses_agent: bool = True  # whether the keys of the ssh agent at SSH_AUTH_SOCK are offered
    known_hosts: tuple[Path, ...] = ()
    connect_timeout: float | None = None  # seconds
    asks: bool = True  # whether the user may be asked for anything (BatchMode)
    new_hosts: bool = True  # whether the user may accept an unknown host key (StrictHostKeyChecking)
    rsa_bits: int = 1024  # of an RSA key, at least (RequiredRSASize)
    proxy_command: str = ""  # ProxyCommand of the ssh configuration, if it leads to this hop
    arguments: tuple[str, ...] = ()  # those with which `ssh` finds this machine, and the same configuration
    # What `ssh -G` prints.
    values: Mapping[str, Sequence[str]] = field(default_factory=dict, compare=False, repr=False)

    @property
    def account(self) -> str:
        """The account of the user's password for this hop. It is named after the name under which the host key of the
        hop was verified."""
        return f"{self.user}@{self.host_key_alias or self.host}:{self.port}"

    def same_as(self, other: Hop) -> bool:
        """Whether both are one account on one machine with the same options, whatever name the user wrote."""
        names = {"label": "", "destination": "", "arguments": ()}
        values, others = ({**one.values, "host": ()} for one in (self, other))
        return replace(self, **names) == replace(other, **names) and values == others  # type: ignore[arg-type]


def begins_with(route: Sequence[Hop], hops: Sequence[Hop]) -> bool:
    """Whether the route begins with the same hops."""
    return len(route) >= len(hops) and all(map(Hop.same_as, hops, route))


def parse_route(
    destination: str,
    jumps: Sequence[str] = (),
    *,
    identity: Sequence[str] = (),
    config: str | None = None,
    port: int | None = None,
) -> tuple[Hop, ...]:
    """Return the hops to `destination`, which is the last one. `jumps` win over its ProxyJump.

    Raises RouteError if the destination, a jump or the ssh configuration cannot be used."""
    parsed = parse_destination(destination, port)
    given = tuple(one for text in jumps for one in split_jumps(text))
    if parsed.host == "localhost" and destination == "localhost" and not given:
        return (Hop("localhost", "local", "localhost", destination="localhost"),)
    return _RouteBuilder(existing_files(identity), config).expand(parsed, given)


def resolve(
    route: Sequence[str], *, identity: Sequence[str] = (), config: str | None = None
) -> tuple[Hop, ...]:
    """Return the hops of a kernelspec's "route". The ssh configuration may add jumps before the first one only."""
    if not route:
        raise RouteError("the route is empty", remedy='Write at least one hop: "route": ["alice@gpu2"].')
    return parse_route(route[-1], route[:-1], identity=identity, config=config)


class _RouteBuilder:
    def __init__(self, identity: tuple[str, ...], config: str | None) -> None:
        self.identity, self.config = identity, config

    def expand(self, destination: Destination, jumps: Sequence[str], depth: int = 0) -> tuple[Hop, ...]:
        """Return the destination's jumps (those given, else its own, else the configuration's), and its hop."""
        if depth > _MAX_JUMP_DEPTH:
            remedy = "Check ProxyJump in the ssh configuration."
            raise RouteError("its jump hosts form a loop", hop=destination.text, remedy=remedy)
        values = ssh_config.lookup(self._with_options(destination))
        before = tuple(jumps) or destination.jumps or config_jumps(values)
        hop = self._hop(destination, values)
        if not before:
            hop = replace(hop, proxy_command=_proxy_command(values))
        return (*self._chain([one for one in before if one != "none"], depth), hop)

    def _chain(self, texts: Sequence[str], depth: int) -> tuple[Hop, ...]:
        if not texts:
            return ()
        first, *rest = [parse_destination(text) for text in texts]
        hops = self.expand(first, (), depth + 1)
        for destination in rest:
            if destination.jumps:
                cause = "only the first hop of a route may have -J"
                raise RouteError(cause, hop=destination.text, remedy="Give all jump hosts in one list.")
            hops += (self._hop(destination, ssh_config.lookup(self._with_options(destination))),)
        return hops

    def _with_options(self, destination: Destination) -> Destination:
        """Return the destination with the key files and the configuration that it must use."""
        identity, config = destination.identity or self.identity, destination.config or self.config
        return replace(destination, identity=identity, config=config)

    def _hop(self, destination: Destination, values: Values) -> Hop:
        timeout = first(values, "connecttimeout")
        return Hop(
            label=destination.label,
            kind="ssh",
            host=first(values, "hostname", destination.host),
            port=int(first(values, "port", "22")),
            user=first(values, "user"),
            destination=destination.to_text(),
            host_key_alias=first(values, "hostkeyalias") or None,
            identity_files=ssh_config.files(values, "identityfile"),
            identities_only=switched(values, "identitiesonly", False),
            uses_agent=first(values, "identityagent", "SSH_AUTH_SOCK") == "SSH_AUTH_SOCK",
            known_hosts=ssh_config.known_hosts(values),
            connect_timeout=float(timeout) if timeout.isdigit() else None,
            asks=not switched(values, "batchmode", False),
            new_hosts=first(values, "stricthostkeychecking").lower() not in ("yes", "true"),
            rsa_bits=int(first(values, "requiredrsasize", "1024")),
            arguments=(*self._with_options(destination).options, "--", destination.host),
            values=values,
        )


def config_jumps(values: Values) -> tuple[str, ...]:
    """Return the jump hosts that the ssh configuration gives."""
    jump = first(values, "proxyjump", "none")
    if jump != "none":
        return tuple(split_jumps(jump))
    as_jump = _as_jump(_proxy_command(values))
    return (as_jump,) if as_jump else ()


def _proxy_command(values: Values) -> str:
    command = first(values, "proxycommand", "none")
    return "" if command == "none" else command


def _as_jump(command: str) -> str:
    """Translate the old idiom `ssh -W %h:%p login` into a jump; "" for another ProxyCommand."""
    words = _words(command)
    for idiom in (["-W", "%h:%p"], ["-W", "[%h]:%p"]):
        at = next((i for i in range(len(words)) if words[i : i + 2] == idiom), None)
        if at is not None and os.path.basename(words[0]) == "ssh":
            jump = shlex.join(words[:at] + words[at + 2 :])
            with contextlib.suppress(RouteError):  # it has other options
                parse_destination(jump)
                return jump
    return ""


def _words(command: str) -> list[str]:
    try:
        return split_command(command) if command else []
    except RouteError:  # ssh gives it to a shell, which may understand it
        return []


def hosts(config: str = "") -> list[dict[str, Any]]:
    """Return [{"name", "user", "port", "jumps"}] of the names in `Host` lines of ~/.ssh/config (or `config`), and of
    the files that it includes, in their order; patterns are left out. The values are those that ssh finds for a name.

    A name that ssh cannot look up is left out. This may take some seconds, since it runs ssh for each name; "port" is
    None for those that take longer, since `Match exec` may run any program.
    """
    file = Path(config) if config else Path.home() / ".ssh" / "config"
    names = list(dict.fromkeys(itertools.islice(_names(file, set()), 10 * MAX_HOSTS)))
    pool = ThreadPoolExecutor(_AT_ONCE)
    found = {name: pool.submit(_host, name, config or None) for name in names[:MAX_HOSTS]}
    done, _ = wait(found.values(), _PATIENCE)
    pool.shutdown(wait=False, cancel_futures=True)
    unknown: dict[str, Any] = {"user": "", "port": None, "jumps": []}
    rows = [one.result() if one in done else {"name": name, **unknown} for name, one in found.items()]
    return [row for row in rows if row is not None]


def _names(file: Path, seen: set[Path]) -> Iterator[str]:
    """Yield the names in this file, and in files that it includes, also if only for some hosts."""
    if file in seen or len(seen) >= _MAX_FILES:
        return
    seen.add(file)
    with contextlib.suppress(OSError):  # it cannot be read, so ssh cannot either
        for keyword, words in ssh_config.parsed_lines(file):
            if keyword == "include":
                for included in ssh_config.included_files(words, file):
                    yield from _names(included, seen)
            elif keyword == "host":
                yield from (word for word in words if not _PATTERN.search(word))


def _host(name: str, config: str | None) -> dict[str, Any] | None:
    try:
        parse_destination(name)
        values = ssh_config.lookup(Destination(name, name, config=config))
    except RouteError:
        return None
    port = first(values, "port")
    return {
        "name": name,
        "user": first(values, "user"),
        "port": int(port) if port.isdecimal() else 22,
        "jumps": [jump for jump in config_jumps(values) if jump != "none"],
    }
