"""Parses what a user writes for one machine, the destination.

That is `alice@gpu2`, `login:7092`, `[fd00::1]:22`, `ssh://alice@login`, an alias of the ssh configuration, or a pasted
`ssh -i id_rsa alice@login -p 7092`. Anything in it that ssh or a shell could read as more than a name is refused.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from ....errors import RouteError

_NAME = re.compile(r"[^\s\x00-\x1f'\"`$\\;&<>|(){}*?#!@/-][^\s\x00-\x1f'\"`$\\;&<>|(){}*?#!@/]*")
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

    @property
    def options(self) -> list[str]:
        """The options with which `ssh` finds this machine."""
        user = ["-l", self.user] if self.user else []
        return [*self._files, *user, *(["-p", str(self.port)] if self.port else [])]

    @property
    def _files(self) -> list[str]:
        config = ["-F", self.config] if self.config else []
        return [*config, *(word for key in self.identity for word in ("-i", key))]

    def to_text(self) -> str:
        """Return text that can be parsed again anywhere: with absolute paths, and without the jumps."""
        return shlex.join(["ssh", *self._files, self.label]) if self._files else self.label


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
