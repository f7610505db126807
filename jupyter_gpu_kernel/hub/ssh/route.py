"""Words and ssh config → hops. Pure values: nothing here connects, asks or verifies.

A word is what one writes for one machine: `alice@gpu2`, `login:7092`, `[fd00::1]:22`, `ssh://alice@login`, an
alias of the ssh config, or a pasted `ssh -i id_rsa alice@login -p 7092`. Each hop goes by its own name.
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
from .destination import Destination, absolute, label, read_word, shell_words, split_jumps, stored
from .restrictions import NO_LIMITS, Restrictions

_DEEPEST = 8  # jumps that lead to jumps: more is a circle


@dataclass(frozen=True)
class Hop:
    """One machine on the way. `label` is for messages, `word` is what to store to get the same hop again."""

    label: str
    kind: Literal["ssh", "command", "local"]
    host: str
    port: int = 22
    user: str = ""
    word: str = ""
    command: str = ""  # kind "command": run on the hop before, its stdio is the way on
    host_key_alias: str | None = None
    identity_files: tuple[Path, ...] = ()
    identities_only: bool = False
    identity_agent: str | None = None  # None: the usual one; "none": no agent; else its socket
    known_hosts: tuple[Path, ...] = ()
    connect_timeout: float | None = None  # seconds
    restrictions: Restrictions = NO_LIMITS  # what the ssh config forbids


def parse_route(
    destination: str,
    jumps: Sequence[str] = (),
    *,
    identity: Sequence[str] = (),
    config: str | None = None,
    port: int | None = None,
) -> tuple[Hop, ...]:
    """The hops to `destination`, it included; `jumps` win over its ProxyJump. Else RouteError."""
    word = read_word(destination, port)
    given = tuple(one for text in jumps for one in split_jumps(text))
    if word.host == "localhost" and destination == "localhost" and not given:
        return (Hop("localhost", "local", "localhost", word="localhost"),)
    return _Reader(absolute(identity), config).expand(word, given)


def resolve(
    route_words: Sequence[str], *, identity: Sequence[str] = (), config: str | None = None
) -> tuple[Hop, ...]:
    """The hops of a kernelspec's "route"; only before the first one may the ssh config put further jumps."""
    if not route_words:
        raise RouteError("the route is empty", remedy='Write at least one hop: "route": ["alice@gpu2"].')
    return parse_route(route_words[-1], route_words[:-1], identity=identity, config=config)


class _Reader:
    def __init__(self, identity: tuple[str, ...], config: str | None) -> None:
        self.identity, self.config = identity, config

    def expand(self, word: Destination, jumps: Sequence[str], depth: int = 0) -> tuple[Hop, ...]:
        """The word's hop behind its jumps: those given, else its own, else the config's."""
        if depth > _DEEPEST:
            raise RouteError(
                "its jump hosts lead round in circles",
                hop=word.text,
                remedy="Look at ProxyJump in ssh config.",
            )
        values = self._values(word)
        before = tuple(jumps) or word.jumps or _config_jumps(word, values)
        return (*self._chain([one for one in before if one != "none"], depth), self._hop(word, values))

    def _chain(self, words: Sequence[str], depth: int) -> tuple[Hop, ...]:
        if not words:
            return ()
        first, *rest = [read_word(text) for text in words]
        hops = self.expand(first, (), depth + 1)
        for word in rest:
            if word.jumps:
                raise RouteError(
                    "a hop behind another one has -J of its own", hop=word.text, remedy="Give the jumps once."
                )
            hops += (self._hop(word, self._values(word)),)
        return hops

    def _values(self, word: Destination) -> ssh_config.Values:
        return ssh_config.lookup(
            word.host,
            user=word.user,
            port=word.port,
            identity=word.identity or self.identity,
            config=word.config or self.config,
        )

    def _hop(self, word: Destination, values: ssh_config.Values) -> Hop:
        def one(key: str, default: str = "") -> str:
            return (values.get(key) or [default])[0]

        def files(text: str) -> tuple[Path, ...]:
            return tuple(ssh_config.expand(f, host, values, word.host) for f in ssh_config.paths(text))

        host = one("hostname", word.host)
        known = files(one("userknownhostsfile")) + files(one("globalknownhostsfile"))
        agent = one("identityagent")
        return Hop(
            label=label(word),
            kind="ssh",
            host=host,
            port=int(one("port", "22")),
            user=one("user"),
            word=stored(word),
            host_key_alias=one("hostkeyalias") or None,
            identity_files=tuple(
                ssh_config.expand(f, host, values, word.host) for f in values.get("identityfile", ())
            ),
            identities_only=one("identitiesonly") == "yes",
            identity_agent=_agent(agent, host, values, word.host),
            known_hosts=known,
            connect_timeout=float(one("connecttimeout")) if one("connecttimeout").isdigit() else None,
            restrictions=restrictions.of(values, ssh_config.defaults(), label(word), files),
        )


def _agent(text: str, host: str, values: ssh_config.Values, original: str) -> str | None:
    if text in ("", "SSH_AUTH_SOCK"):
        return None
    if text.startswith("$") and not text.startswith("${"):
        return os.environ.get(text[1:], "none")
    return text if text == "none" else str(ssh_config.expand(text, host, values, original))


def _config_jumps(word: Destination, values: ssh_config.Values) -> tuple[str, ...]:
    jump = (values.get("proxyjump") or ["none"])[0]
    if jump != "none":
        return tuple(split_jumps(jump))
    command = (values.get("proxycommand") or ["none"])[0]
    return () if command == "none" else (_as_jump(word, command),)


def _as_jump(word: Destination, command: str) -> str:
    """The old idiom `ssh -W %h:%p login` is a jump; any other ProxyCommand needs the system's ssh."""
    words = shell_words(command)
    for idiom in (["-W", "%h:%p"], ["-W", "[%h]:%p"]):
        at = next((i for i in range(len(words)) if words[i : i + 2] == idiom), None)
        if at is not None and os.path.basename(words[0]) == "ssh":
            return shlex.join(words[:at] + words[at + 2 :])
    raise RouteError(
        f"its ssh config has ProxyCommand {command}, which only the system's ssh can run",
        hop=word.text,
        remedy="Write it as ProxyJump or with -J; a transport through the system's ssh is planned.",
    )
