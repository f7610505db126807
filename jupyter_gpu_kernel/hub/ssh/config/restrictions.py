"""What the user's ssh configuration forbids for one host, as far as paramiko follows that: authentication methods,
unknown host keys, short keys.

`directives.py` has the table of all directives: none that restricts is ignored.
"""

from __future__ import annotations

from dataclasses import dataclass

from .directives import Values, first

DIRECTIVES = {
    "publickey": "PubkeyAuthentication",
    "keyboard-interactive": "KbdInteractiveAuthentication",
    "password": "PasswordAuthentication",
}
"""The methods of signing in, in the order in which they are tried, and the directive that switches each of them off."""
METHODS = tuple(DIRECTIVES)
_NO = ("no", "false")


@dataclass(frozen=True)
class Restrictions:
    """What one host's configuration permits."""

    methods: tuple[str, ...] = METHODS
    asks: bool = True
    """Whether the user may be asked for anything (BatchMode)."""
    tries: int = 3
    new_hosts: bool = True
    """Whether the user may accept an unknown host key (StrictHostKeyChecking)."""
    rsa_bits: int = 1024


UNRESTRICTED = Restrictions()


def read_restrictions(values: Values) -> Restrictions:
    """Return the restrictions in `values`."""

    def number(key: str, default: int) -> int:
        text = first(values, key)
        return int(text) if text.isdigit() else default

    return Restrictions(
        methods=_methods(values),
        asks=not switched(values, "batchmode", False),
        tries=number("numberofpasswordprompts", 3),
        new_hosts=first(values, "stricthostkeychecking").lower() not in ("yes", "true"),
        rsa_bits=number("requiredrsasize", 1024),
    )


def switched(values: Values, key: str, default: bool) -> bool:
    """Return a directive's yes or no; words that are neither mean more than yes, such as "host-bound"."""
    found = first(values, key).lower()
    return default if not found else found not in _NO


def _methods(values: Values) -> tuple[str, ...]:
    """Return the permitted authentication methods in the configuration's order."""
    off = {
        method
        for method, name in DIRECTIVES.items()
        if any(text.lower() in _NO for text in values.get(name.lower(), ()))  # under any of its names
    }
    preferred = first(values, "preferredauthentications")
    wanted = [one.strip() for one in preferred.split(",")] if preferred else METHODS
    return tuple(one for one in wanted if one in METHODS and one not in off)
