"""Words and ssh config → hops. Pure values: nothing here connects, asks or verifies.

A word is what one writes for one machine: `alice@gpu2`, `login:7092`, `[fd00::1]:22`, `ssh://alice@login`, an
alias of the ssh config, or a pasted `ssh -i id_rsa alice@login -p 7092`. Each hop goes by its own name.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

from ..errors import RouteError
from . import sshconfig

_DEEPEST = 8  # jumps that lead to jumps: more is a circle
_BARE = re.compile(r"[^\s\x00-\x1f'\"`$\\;&<>|(){}*?#!@/-][^\s\x00-\x1f'\"`$\\;&<>|(){}*?#!@/]*")
_FLAGS_IGNORED = "XYxAaTtvqCknN46"  # harmless or never done here (no agent is forwarded)


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


@dataclass(frozen=True)
class _Word:
    text: str
    host: str
    user: str | None = None
    port: int | None = None
    identity: tuple[str, ...] = ()
    config: str | None = None
    jumps: tuple[str, ...] = ()


def parse_route(
    destination: str,
    jumps: Sequence[str] = (),
    *,
    identity: Sequence[str] = (),
    config: str | None = None,
    port: int | None = None,
) -> tuple[Hop, ...]:
    """The hops to `destination`, it included; `jumps` win over its ProxyJump. Else RouteError."""
    word = _read_word(destination, port)
    given = tuple(one for text in jumps for one in _split_jumps(text))
    if word.host == "localhost" and destination == "localhost" and not given:
        return (Hop("localhost", "local", "localhost", word="localhost"),)
    return _Reader(_absolute(identity), config).expand(word, given)


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

    def expand(self, word: _Word, jumps: Sequence[str], depth: int = 0) -> tuple[Hop, ...]:
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
        first, *rest = [_read_word(text) for text in words]
        hops = self.expand(first, (), depth + 1)
        for word in rest:
            if word.jumps:
                raise RouteError(
                    "a hop behind another one has -J of its own", hop=word.text, remedy="Give the jumps once."
                )
            hops += (self._hop(word, self._values(word)),)
        return hops

    def _values(self, word: _Word) -> sshconfig.Values:
        return sshconfig.lookup(
            word.host,
            user=word.user,
            port=word.port,
            identity=word.identity or self.identity,
            config=word.config or self.config,
        )

    def _hop(self, word: _Word, values: sshconfig.Values) -> Hop:
        def one(key: str, default: str = "") -> str:
            return (values.get(key) or [default])[0]

        host = one("hostname", word.host)
        known = sshconfig.paths(one("userknownhostsfile")) + sshconfig.paths(one("globalknownhostsfile"))
        agent = one("identityagent")
        return Hop(
            label=_label(word),
            kind="ssh",
            host=host,
            port=int(one("port", "22")),
            user=one("user"),
            word=_stored(word),
            host_key_alias=one("hostkeyalias") or None,
            identity_files=tuple(
                sshconfig.expand(f, host, values, word.host) for f in values.get("identityfile", ())
            ),
            identities_only=one("identitiesonly") == "yes",
            identity_agent=_agent(agent, host, values, word.host),
            known_hosts=tuple(sshconfig.expand(f, host, values, word.host) for f in known),
            connect_timeout=float(one("connecttimeout")) if one("connecttimeout").isdigit() else None,
        )


def _agent(text: str, host: str, values: sshconfig.Values, original: str) -> str | None:
    if text in ("", "SSH_AUTH_SOCK"):
        return None
    if text.startswith("$") and not text.startswith("${"):
        return os.environ.get(text[1:], "none")
    return text if text == "none" else str(sshconfig.expand(text, host, values, original))


def _config_jumps(word: _Word, values: sshconfig.Values) -> tuple[str, ...]:
    jump = (values.get("proxyjump") or ["none"])[0]
    if jump != "none":
        return tuple(_split_jumps(jump))
    command = (values.get("proxycommand") or ["none"])[0]
    return () if command == "none" else (_as_jump(word, command),)


def _as_jump(word: _Word, command: str) -> str:
    """The old idiom `ssh -W %h:%p login` is a jump; any other ProxyCommand needs the system's ssh."""
    words = _shell_words(command)
    for idiom in (["-W", "%h:%p"], ["-W", "[%h]:%p"]):
        at = next((i for i in range(len(words)) if words[i : i + 2] == idiom), None)
        if at is not None and os.path.basename(words[0]) == "ssh":
            return shlex.join(words[:at] + words[at + 2 :])
    raise RouteError(
        f"its ssh config has ProxyCommand {command}, which only the system's ssh can run",
        hop=word.text,
        remedy="Write it as ProxyJump or with -J; a transport through the system's ssh is planned.",
    )


def _split_jumps(text: str) -> list[str]:
    return [text] if _is_pasted(text) else [part.strip() for part in text.split(",") if part.strip()]


def _is_pasted(text: str) -> bool:
    return re.match(r"\s*(\S*/)?ssh\s", text) is not None


def _read_word(text: str, port: int | None = None) -> _Word:
    if _is_pasted(text):
        return _read_pasted(text, port)
    user, host, own_port = _split_address(text.strip())
    return _checked(_Word(text.strip(), host, user, port or own_port))


def _split_address(text: str) -> tuple[str | None, str, int | None]:
    """ "user@host:port", "[v6]:port", "ssh://…" → (user, host, port)."""
    if text.startswith("ssh://"):
        try:
            parts = urlsplit(text)
            return (unquote(parts.username) if parts.username else None), parts.hostname or "", parts.port
        except ValueError as error:
            raise RouteError(
                f"not an address: {error}", hop=text, remedy="Write ssh://user@host:port."
            ) from error
    user, _, rest = text.rpartition("@")
    found = re.fullmatch(r"\[([^]]+)\](?::(\d+))?|([^:]+)(?::(\d+))?|([0-9a-fA-F:.]+(?:%\w+)?)", rest)
    if not found:
        raise RouteError(
            f"{text!r} is not an address", remedy="Write user@host, user@host:port or user@[v6]:port."
        )
    digits = found[2] or found[4]
    return user or None, found[1] or found[3] or found[5], int(digits) if digits else None


def _checked(word: _Word) -> _Word:
    """Refuse what ssh could take for an option or a shell for a command."""
    for part, value in (
        ("host", re.sub(r"[:%]", "", word.host)),
        ("user", (word.user or "u").replace("@", "")),
    ):
        if not _BARE.fullmatch(value):
            raise RouteError(
                f"{word.text!r} has no usable {part} name", remedy="Write user@host or user@host:port."
            )
    if word.port is not None and not 0 < word.port < 65536:
        raise RouteError(f"{word.port} is not a port", hop=word.text, remedy="Ports go from 1 to 65535.")
    return word


def _shell_words(text: str) -> list[str]:
    try:
        words = shlex.split(text, posix=os.name != "nt")
    except ValueError as error:
        raise RouteError(
            f"{text!r} cannot be split into words: {error}", remedy="Look at the quotes."
        ) from error
    return [word.strip('"') for word in words] if os.name == "nt" else words


def _read_pasted(text: str, port: int | None) -> _Word:
    """`ssh -i key -p 7092 alice@login`, options before or after the host; -i -p -l -J -F are understood."""
    options: dict[str, list[str]] = {}
    hosts: list[str] = []
    words = iter(_shell_words(text)[1:])
    for word in words:
        if not word.startswith("-"):
            hosts.append(word)
        elif word[:2] in ("-i", "-p", "-l", "-J", "-F"):
            options.setdefault(word[1], []).append(word[2:] or next(words, ""))
        elif word.strip("-" + _FLAGS_IGNORED):
            raise RouteError(
                f"the option {word} of {text!r} is not understood", remedy="Put it into the ssh config."
            )
    if len(hosts) != 1:
        raise RouteError(
            f"{text!r} should name one host and no command", remedy="Write ssh [-i KEY] [-p PORT] user@host."
        )
    user, host, own_port = _split_address(hosts[0])
    digits = options.get("p", ["0"])[-1]
    return _checked(
        _Word(
            text.strip(),
            host,
            options.get("l", [user])[-1],
            port or (int(digits) if digits.isdigit() else -1) or own_port,
            _absolute(options.get("i", ())),
            next(iter(_absolute(options.get("F", ()))), None),
            tuple(one for jump in options.get("J", ()) for one in _split_jumps(jump)),
        )
    )


def _absolute(files: Sequence[str]) -> tuple[str, ...]:
    """Files the user named: ssh would pass over a missing one and fail later, for another reason."""
    found = tuple(os.path.abspath(os.path.expanduser(file)) for file in files)
    for file in found:
        if not os.path.isfile(file):
            raise RouteError(f"there is no file {file}", remedy="Check the path given with -i or -F.")
    return found


def _label(word: _Word) -> str:
    host = f"[{word.host}]" if ":" in word.host and word.port else word.host
    return f"{word.user}@" * bool(word.user) + host + f":{word.port}" * bool(word.port)


def _stored(word: _Word) -> str:
    """The word again, with absolute paths; jumps are hops of their own."""
    if not word.identity and not word.config:
        return _label(word)
    options = [part for key in word.identity for part in ("-i", key)]
    options += ["-F", word.config] if word.config else []
    return shlex.join(["ssh", *options, _label(word)])
