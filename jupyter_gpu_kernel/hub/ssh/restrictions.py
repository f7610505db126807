"""What the user's ssh config forbids for one host: algorithms, ways to sign in, hosts that are not known yet.

A directive that restricts is honoured here, or the route is refused with the directive's name. None is passed over:
whoever wrote it relies on it. What only permits more than we do is no concern of this file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from ...errors import RouteError

METHODS = ("publickey", "keyboard-interactive", "password")
_REFUSED = ("knownhostscommand", "bindinterface", "refuseconnection")
_NAMES = {
    "bindinterface": "BindInterface",
    "knownhostscommand": "KnownHostsCommand",
    "refuseconnection": "RefuseConnection",
}
Values = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Restrictions:
    """Lists of algorithms are as in ssh config, `None` where it leaves them as they are."""

    ciphers: str | None = None
    macs: str | None = None
    key_exchanges: str | None = None
    host_key_algorithms: str | None = None
    user_key_algorithms: str | None = None
    methods: tuple[str, ...] = METHODS
    asks: bool = True
    """Whether the owner may be asked for anything (BatchMode)."""
    tries: int = 3
    new_hosts: bool = True
    """Whether the owner may accept a host that is not known yet (StrictHostKeyChecking)."""
    check_address: bool = False
    """Whether the host's address must not be known with another key (CheckHostIP)."""
    revoked: tuple[Path, ...] = ()
    rsa_bits: int = 1024
    family: str = "any"
    bind: str = ""


NO_LIMITS = Restrictions()


def of(values: Values, defaults: Values, hop: str, files: Callable[[str], Sequence[Path]]) -> Restrictions:
    """The limits in `values`, where `defaults` are those of a host without any config. RouteError names a directive
    that cannot be honoured. `files` makes paths of a directive's value."""

    def one(*keys: str) -> str:
        return next((values[key][0] for key in keys if values.get(key)), "")

    def chosen(*keys: str) -> str | None:
        """The value if it is not the default."""
        return next((values[k][0] for k in keys if values.get(k) and values[k] != defaults.get(k)), None)

    for key in _REFUSED:
        if one(key) not in ("", "none"):
            raise _refused(f"{_NAMES[key]} {one(key)}", hop)
    tries, rsa_bits = one("numberofpasswordprompts"), one("requiredrsasize")
    return Restrictions(
        ciphers=chosen("ciphers"),
        macs=chosen("macs"),
        key_exchanges=chosen("kexalgorithms"),
        host_key_algorithms=chosen("hostkeyalgorithms"),
        user_key_algorithms=chosen("pubkeyacceptedalgorithms", "pubkeyacceptedkeytypes"),
        methods=_methods(values, hop),
        asks=one("batchmode") not in ("yes", "true"),
        tries=min(int(tries), 3) if tries.isdigit() else 3,
        new_hosts=one("stricthostkeychecking") not in ("yes", "true"),
        check_address=chosen("checkhostip") in ("yes", "true"),
        revoked=tuple(files(one("revokedhostkeys"))),
        rsa_bits=int(rsa_bits) if rsa_bits.isdigit() else 1024,
        family=one("addressfamily") or "any",
        bind=one("bindaddress"),
    )


def select(ours: Sequence[str], text: str | None) -> list[str]:
    """Those of ours that a list of the ssh config permits, in its order. It may begin with +, - or ^, and hold
    wildcards."""
    if not text or text.startswith("+"):
        return list(ours)
    patterns = text.lstrip("-^").split(",")
    named = [one for pattern in patterns for one in ours if fnmatchcase(one, pattern.strip())]
    others = [one for one in ours if one not in named]
    if text.startswith("-"):
        return others
    return list(dict.fromkeys(named + others if text.startswith("^") else named))


def _methods(values: Values, hop: str) -> tuple[str, ...]:
    """Ways to sign in, in the config's order."""
    switches = {
        "publickey": ("pubkeyauthentication",),
        "keyboard-interactive": ("kbdinteractiveauthentication", "challengeresponseauthentication"),
        "password": ("passwordauthentication",),
    }
    off = {
        method
        for method, keys in switches.items()
        if any((values.get(key) or ["yes"])[0] in ("no", "false") for key in keys)
    }
    preferred = (values.get("preferredauthentications") or [""])[0]
    wanted = [one.strip() for one in preferred.split(",")] if preferred else METHODS
    methods = tuple(one for one in wanted if one in METHODS and one not in off)
    if not methods:
        cause = f"PreferredAuthentications {preferred}" if preferred else "PubkeyAuthentication no and others"
        raise _refused(cause, hop)
    return methods


def _refused(directive: str, hop: str) -> RouteError:
    return RouteError(
        f"its ssh config has {directive}, which only the system's ssh can follow",
        hop=hop,
        remedy="Take it out for this host; a transport through the system's ssh is planned.",
    )
