"""What one writes for one machine, taken apart: user, host, port, and the options of a pasted ssh command.

Pure text: no ssh config, no connection. What ssh or a shell could take for more than a name is refused.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from ...errors import RouteError

_BARE = re.compile(r"[^\s\x00-\x1f'\"`$\\;&<>|(){}*?#!@/-][^\s\x00-\x1f'\"`$\\;&<>|(){}*?#!@/]*")
_FLAGS_IGNORED = "XYxAaTtvqCknN46"  # harmless or never done here (no agent is forwarded)


@dataclass(frozen=True)
class Destination:
    text: str
    host: str
    user: str | None = None
    port: int | None = None
    identity: tuple[str, ...] = ()
    config: str | None = None
    jumps: tuple[str, ...] = ()


def split_jumps(text: str) -> list[str]:
    return [text] if _is_pasted(text) else [part.strip() for part in text.split(",") if part.strip()]


def _is_pasted(text: str) -> bool:
    return re.match(r"\s*(\S*/)?ssh\s", text) is not None


def read_word(text: str, port: int | None = None) -> Destination:
    if _is_pasted(text):
        return _read_pasted(text, port)
    user, host, own_port = _split_address(text.strip())
    return _checked(Destination(text.strip(), host, user, own_port if port is None else port))


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


def _checked(word: Destination) -> Destination:
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


def shell_words(text: str) -> list[str]:
    try:
        words = shlex.split(text, posix=os.name != "nt")
    except ValueError as error:
        raise RouteError(
            f"{text!r} cannot be split into words: {error}", remedy="Look at the quotes."
        ) from error
    return [word.strip('"') for word in words] if os.name == "nt" else words


def _read_pasted(text: str, port: int | None) -> Destination:
    """`ssh -i key -p 7092 alice@login`, options before or after the host; -i -p -l -J -F are understood."""
    options: dict[str, list[str]] = {}
    hosts: list[str] = []
    words = iter(shell_words(text)[1:])
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
    if "p" in options and port is None:
        digits = options["p"][-1]
        port = int(digits) if digits.isdecimal() else -1
    return _checked(
        Destination(
            text.strip(),
            host,
            options.get("l", [user])[-1],
            own_port if port is None else port,
            absolute(options.get("i", ())),
            next(iter(absolute(options.get("F", ()))), None),
            tuple(one for jump in options.get("J", ()) for one in split_jumps(jump)),
        )
    )


def absolute(files: Sequence[str]) -> tuple[str, ...]:
    """Files the user named: ssh would pass over a missing one and fail later, for another reason."""
    found = tuple(os.path.abspath(os.path.expanduser(file)) for file in files)
    for file in found:
        if not os.path.isfile(file):
            raise RouteError(f"there is no file {file}", remedy="Check the path given with -i or -F.")
    return found


def label(word: Destination) -> str:
    host = f"[{word.host}]" if ":" in word.host and word.port else word.host
    return f"{word.user}@" * bool(word.user) + host + f":{word.port}" * bool(word.port)


def stored(word: Destination) -> str:
    """The word again, with absolute paths; jumps are hops of their own."""
    if not word.identity and not word.config:
        return label(word)
    options = [part for key in word.identity for part in ("-i", key)]
    options += ["-F", word.config] if word.config else []
    return shlex.join(["ssh", *options, label(word)])
