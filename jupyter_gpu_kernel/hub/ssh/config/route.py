"""Makes the list of hops of a route from the user's destinations and the ssh configuration.

Nothing here connects, asks or verifies. A destination is what a user writes for one machine: `alice@gpu2`,
`login:7092`, `[fd00::1]:22`, `ssh://alice@login`, an alias of the ssh configuration, or a pasted
`ssh -i id_rsa alice@login -p 7092`. Anything in it that ssh or a shell could read as more than a name is refused.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

from ....errors import RouteError
from . import ssh_config
from .restrictions import UNRESTRICTED, Restrictions, read_restrictions, switched

_NAME = re.compile(r"[^\s\x00-\x1f'\"`$\\;&<>|(){}*?#!@/-][^\s\x00-\x1f'\"`$\\;&<>|(){}*?#!@/]*")
_MAX_JUMP_DEPTH = 8  # jump hosts with jump hosts of their own: more is a loop
_IGNORED_FLAGS = "XYxAaTtvqCknN46"  # without effect here (the agent is never forwarded)


@dataclass(frozen=True)
class Destination:
    """One machine as the user wrote it (`text`), and the parts of that text."""

    text: str
    host: str
    user: str | None = None
    port: int | None = None
    identity: tuple[str, ...] = ()
    config: str | None = None
    jumps: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The name of this machine in messages: user@host:port, as far as they are given."""
        host = f"[{self.host}]" if ":" in self.host and self.port else self.host
        return f"{self.user}@" * bool(self.user) + host + f":{self.port}" * bool(self.port)

    def to_text(self) -> str:
        """Return text that can be parsed again anywhere: with absolute paths, and without the jumps."""
        if not self.identity and not self.config:
            return self.label
        options = [part for key in self.identity for part in ("-i", key)]
        options += ["-F", self.config] if self.config else []
        return shlex.join(["ssh", *options, self.label])


def parse_destination(text: str, port: int | None = None) -> Destination:
    """Parse `user@host:port`, `[v6]:port`, `ssh://…`, an alias, or a pasted ssh command; `port` wins over its own."""
    if _is_command(text):
        return _parse_command(text, port)
    user, host, own_port = _split_address(text.strip())
    return _checked(Destination(text.strip(), host, user, own_port if port is None else port))


def split_jumps(text: str) -> list[str]:
    """Split a list of jump hosts at its commas."""
    return [text] if _is_command(text) else [part.strip() for part in text.split(",") if part.strip()]


def split_command(text: str) -> list[str]:
    """Split a command into words, as this system's shell does."""
    try:
        words = shlex.split(text, posix=os.name != "nt")
    except ValueError as error:
        raise RouteError(
            f"{text!r} cannot be parsed: {error}", remedy="Check the quotation marks."
        ) from error
    return [word.strip('"') for word in words] if os.name == "nt" else words


def existing_files(files: Sequence[str]) -> tuple[str, ...]:
    """Return absolute paths. Raises RouteError for a missing file; ssh would skip it and fail later."""
    found = tuple(os.path.abspath(os.path.expanduser(file)) for file in files)
    for file in found:
        if not os.path.isfile(file):
            raise RouteError(f"there is no file {file}", remedy="Check the path given with -i or -F.")
    return found


def _is_command(text: str) -> bool:
    return re.match(r"\s*(\S*/)?ssh\s", text) is not None


def _split_address(text: str) -> tuple[str | None, str, int | None]:
    """Split "user@host:port", "[v6]:port" or "ssh://…" into user, host and port."""
    if text.startswith("ssh://"):
        try:
            parts = urlsplit(text)
            return (unquote(parts.username) if parts.username else None), parts.hostname or "", parts.port
        except ValueError as error:
            cause = f"not a valid address: {error}"
            raise RouteError(cause, hop=text, remedy="Write ssh://user@host:port.") from error
    user, _, rest = text.rpartition("@")
    found = re.fullmatch(r"\[([^]]+)\](?::(\d+))?|([^:]+)(?::(\d+))?|([0-9a-fA-F:.]+(?:%\w+)?)", rest)
    if not found:
        remedy = "Write user@host, user@host:port or user@[v6]:port."
        raise RouteError(f"{text!r} is not a valid address", remedy=remedy)
    digits = found[2] or found[4]
    return user or None, found[1] or found[3] or found[5], int(digits) if digits else None


def _checked(destination: Destination) -> Destination:
    """Refuse what ssh could read as an option, or a shell as a command."""
    names = {
        "host": re.sub(r"[:%]", "", destination.host),
        "user": (destination.user or "u").replace("@", ""),
    }
    for part, value in names.items():
        if not _NAME.fullmatch(value):
            cause = f"{destination.text!r} has no valid {part} name"
            raise RouteError(cause, remedy="Write user@host or user@host:port.")
    port = destination.port
    if port is not None and not 0 < port < 65536:
        cause = f"{port} is not a valid port"
        raise RouteError(cause, hop=destination.text, remedy="Ports go from 1 to 65535.")
    return destination


def _parse_command(text: str, port: int | None) -> Destination:
    """Parse `ssh -i key -p 7092 alice@login`; options before or after the host: -i -p -l -J -F."""
    options: dict[str, list[str]] = {}
    hosts: list[str] = []
    words = iter(split_command(text)[1:])
    for word in words:
        if not word.startswith("-"):
            hosts.append(word)
        elif word[:2] in ("-i", "-p", "-l", "-J", "-F"):
            options.setdefault(word[1], []).append(word[2:] or next(words, ""))
        elif word.strip("-" + _IGNORED_FLAGS):
            cause = f"the option {word} in {text!r} is not supported"
            raise RouteError(cause, remedy="Put it into the ssh configuration instead.")
    if len(hosts) != 1:
        cause = f"{text!r} must name one host, and no command"
        raise RouteError(cause, remedy="Write ssh [-i KEY] [-p PORT] user@host.")
    user, host, own_port = _split_address(hosts[0])
    if "p" in options and port is None:
        digits = options["p"][-1]
        port = int(digits) if digits.isdecimal() else -1
    return _checked(
        Destination(
            text.strip(),
            host,
            options.get("l", [user])[-1],
            own_port if port is None else port,
            existing_files(options.get("i", ())),
            next(iter(existing_files(options.get("F", ()))), None),
            tuple(one for jump in options.get("J", ()) for one in split_jumps(jump)),
        )
    )


# --- the route


@dataclass(frozen=True)
class Hop:
    """One machine of a route. `label` names it in messages; `destination` is stored, to get the same hop again."""

    label: str
    kind: Literal["ssh", "local"]
    host: str
    port: int = 22
    user: str = ""
    destination: str = ""
    host_key_alias: str | None = None
    identity_files: tuple[Path, ...] = ()
    certificate_files: tuple[Path, ...] = ()  # if there are none, that beside each key file: KEY-cert.pub
    identities_only: bool = False
    identity_agent: str | None = None  # None: that of SSH_AUTH_SOCK; "none": no agent; else its socket
    known_hosts: tuple[Path, ...] = ()
    connect_timeout: float | None = None  # seconds
    restrictions: Restrictions = UNRESTRICTED  # what the ssh configuration forbids
    proxy_command: str = ""  # ProxyCommand of the ssh configuration, if it leads to this hop
    arguments: tuple[str, ...] = ()  # those with which `ssh` finds this machine, and the same configuration
    values: Mapping[str, Sequence[str]] = field(
        default_factory=dict, compare=False, repr=False
    )  # of `ssh -G`

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
        values = self._values(destination)
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
            hops += (self._hop(destination, self._values(destination)),)
        return hops

    def _values(self, destination: Destination) -> ssh_config.Values:
        return ssh_config.lookup(destination.host, **self._given(destination))

    def _given(self, destination: Destination) -> ssh_config.Given:
        return {
            "user": destination.user,
            "port": destination.port,
            "identity": destination.identity or self.identity,
            "config": destination.config or self.config,
        }

    def _hop(self, destination: Destination, values: ssh_config.Values) -> Hop:
        def one(key: str, default: str = "") -> str:
            return (values.get(key) or [default])[0]

        def files(text: str) -> tuple[Path, ...]:
            return tuple(ssh_config.expand(f, host, values, destination.host) for f in ssh_config.paths(text))

        def every(key: str) -> tuple[Path, ...]:
            given = (text for text in values.get(key, ()) if text != "none")
            return tuple(ssh_config.expand(text, host, values, destination.host) for text in given)

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
            identity_files=every("identityfile"),
            certificate_files=every("certificatefile"),
            identities_only=switched(values, "identitiesonly", False),
            identity_agent=_agent(agent, host, values, destination.host),
            known_hosts=known,
            connect_timeout=float(one("connecttimeout")) if one("connecttimeout").isdigit() else None,
            restrictions=read_restrictions(values, ssh_config.defaults(), destination.label, files),
            arguments=(*ssh_config.options(**self._given(destination)), "--", destination.host),
            values=values,
        )


def _agent(text: str, host: str, values: ssh_config.Values, original: str) -> str | None:
    if text in ("", "SSH_AUTH_SOCK"):
        return None
    if text.startswith("$") and not text.startswith("${"):
        return os.environ.get(text[1:], "none")
    return text if text == "none" else str(ssh_config.expand(text, host, values, original))


def config_jumps(values: ssh_config.Values) -> tuple[str, ...]:
    """Return the jump hosts that the ssh configuration gives."""
    jump = (values.get("proxyjump") or ["none"])[0]
    if jump != "none":
        return tuple(split_jumps(jump))
    as_jump = _as_jump(_proxy_command(values))
    return (as_jump,) if as_jump else ()


def _proxy_command(values: ssh_config.Values) -> str:
    command = (values.get("proxycommand") or ["none"])[0]
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
