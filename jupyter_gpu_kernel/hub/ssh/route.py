"""Makes the list of hops of a route from the user's destinations and the ssh configuration.

Nothing here connects, asks or verifies. A destination is what a user writes for one machine: `alice@gpu2`,
`login:7092`, `[fd00::1]:22`, `ssh://alice@login`, an alias of the ssh configuration, or a pasted
`ssh -i id_rsa alice@login -p 7092`.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ...errors import RouteError
from . import restrictions, ssh_config
from .destination import Destination, existing_files, parse_destination, split_command, split_jumps
from .restrictions import UNRESTRICTED, Restrictions

_MAX_JUMP_DEPTH = 8  # jump hosts with jump hosts of their own: more is a loop


@dataclass(frozen=True)
class Hop:
    """One machine of a route. `label` names it in messages; `destination` is stored, to get the same hop again."""

    label: str
    kind: Literal["ssh", "command", "local"]
    host: str
    port: int = 22
    user: str = ""
    destination: str = ""
    command: str = ""  # kind "command": run on the previous hop; its stdio leads on
    host_key_alias: str | None = None
    identity_files: tuple[Path, ...] = ()
    identities_only: bool = False
    identity_agent: str | None = None  # None: that of SSH_AUTH_SOCK; "none": no agent; else its socket
    known_hosts: tuple[Path, ...] = ()
    connect_timeout: float | None = None  # seconds
    restrictions: Restrictions = UNRESTRICTED  # what the ssh configuration forbids


def parse_route(
    destination: str,
    jumps: Sequence[str] = (),
    *,
    identity: Sequence[str] = (),
    config: str | None = None,
    port: int | None = None,
) -> tuple[Hop, ...]:
    """Return the hops to `destination`, which is the last one. `jumps` win over its ProxyJump. RouteError."""
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
        values = self._values(destination)
        before = tuple(jumps) or destination.jumps or _config_jumps(destination, values)
        return (*self._chain([one for one in before if one != "none"], depth), self._hop(destination, values))

    def _chain(self, texts: Sequence[str], depth: int) -> tuple[Hop, ...]:
        if not texts:
            return ()
        first, *rest = [parse_destination(text) for text in texts]
        hops = self.expand(first, (), depth + 1)
        for destination in rest:
            if destination.jumps:
                cause = "only the first hop of a route may have -J"
                raise RouteError(cause, hop=destination.text, remedy="Give all jump hosts in one list.")
            hops += (self._hop(destination, self._values(destination)),)
        return hops

    def _values(self, destination: Destination) -> ssh_config.Values:
        return ssh_config.lookup(
            destination.host,
            user=destination.user,
            port=destination.port,
            identity=destination.identity or self.identity,
            config=destination.config or self.config,
        )

    def _hop(self, destination: Destination, values: ssh_config.Values) -> Hop:
        def one(key: str, default: str = "") -> str:
            return (values.get(key) or [default])[0]

        def files(text: str) -> tuple[Path, ...]:
            return tuple(ssh_config.expand(f, host, values, destination.host) for f in ssh_config.paths(text))

        host = one("hostname", destination.host)
        known = files(one("userknownhostsfile")) + files(one("globalknownhostsfile"))
        agent = one("identityagent")
        return Hop(
            label=destination.label,
            kind="ssh",
            host=host,
            port=int(one("port", "22")),
            user=one("user"),
            destination=destination.to_text(),
            host_key_alias=one("hostkeyalias") or None,
            identity_files=tuple(
                ssh_config.expand(f, host, values, destination.host) for f in values.get("identityfile", ())
            ),
            identities_only=one("identitiesonly") == "yes",
            identity_agent=_agent(agent, host, values, destination.host),
            known_hosts=known,
            connect_timeout=float(one("connecttimeout")) if one("connecttimeout").isdigit() else None,
            restrictions=restrictions.read_restrictions(
                values, ssh_config.defaults(), destination.label, files
            ),
        )


def _agent(text: str, host: str, values: ssh_config.Values, original: str) -> str | None:
    if text in ("", "SSH_AUTH_SOCK"):
        return None
    if text.startswith("$") and not text.startswith("${"):
        return os.environ.get(text[1:], "none")
    return text if text == "none" else str(ssh_config.expand(text, host, values, original))


def _config_jumps(destination: Destination, values: ssh_config.Values) -> tuple[str, ...]:
    jump = (values.get("proxyjump") or ["none"])[0]
    if jump != "none":
        return tuple(split_jumps(jump))
    command = (values.get("proxycommand") or ["none"])[0]
    return () if command == "none" else (_as_jump(destination, command),)


def _as_jump(destination: Destination, command: str) -> str:
    """Translate the old idiom `ssh -W %h:%p login` into a jump; no other ProxyCommand is supported."""
    words = split_command(command)
    for idiom in (["-W", "%h:%p"], ["-W", "[%h]:%p"]):
        at = next((i for i in range(len(words)) if words[i : i + 2] == idiom), None)
        if at is not None and os.path.basename(words[0]) == "ssh":
            return shlex.join(words[:at] + words[at + 2 :])
    raise RouteError(
        f"ProxyCommand {command} in the ssh configuration is not supported",
        hop=destination.text,
        remedy="Use ProxyJump, or -J.",
    )
