"""The errors of connecting and signing in that all transports share: what happened, and what to do."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from ...errors import BY_LOGIN, AuthError, ConnectError
from ..sanitize import one_line
from .config.destination import parse_destination
from .config.directives import first, switched
from .config.route import Hop
from .sign_in.keys import UserKeys

METHODS = {
    "publickey": "PubkeyAuthentication",
    "keyboard-interactive": "KbdInteractiveAuthentication",
    "password": "PasswordAuthentication",
}
"""The methods of signing in, in the order in which they are tried, and the directive that switches each of them off."""
TYPED = "the typed password or code"
_DENIED = re.compile(
    r"\b(denied|not allowed|no active jobs?|expired|locked|maintenance|going down)\b", re.IGNORECASE
)


def typed_methods(methods: Collection[str]) -> list[str]:
    """Return those of the server's methods for which the user types a secret."""
    return [one for one in METHODS if one in methods and one != "publickey"]


# --- on the way there


def unreachable(hop: Hop, reason: str, jump: str) -> ConnectError:
    """`reason` is the operating system's, here or on the jump host. The host is named where the label is an alias."""
    alias = hop.host != parse_destination(hop.label).host
    port = f"{hop.host} port {hop.port}" if alias else f"port {hop.port}"
    where = f" from {jump}" if jump else ""
    low = reason.lower()
    if any(word in low for word in ("name", "getaddrinfo", "resolution")):
        cause = f"{f'the host name {hop.host}' if alias else 'its host name'} cannot be resolved{where}"
        other = f"; {jump} must be able to resolve it" if jump else ", or give its jump host with -J"
        remedy = f"Check the spelling{other}."
    elif "refused" in low:
        cause = f"{port}: connection refused{where}"
        remedy = "Check the port, and that its SSH server is running."
    elif "timed out" in low or "timeout" in low:
        cause = f"{port}: connection timed out{where}"
        remedy = "The machine may be down, or a firewall or a missing VPN may block the connection."
    elif "route" in low or "unreachable" in low:
        cause = f"no route to {hop.host if alias else 'host'}{where}"
        remedy = "Check the network, the VPN, and the jump hosts."
    else:
        cause, remedy = f"{port} cannot be reached{where}: {reason}", "Check the address and the network."
    return ConnectError(cause, hop=hop.label, remedy=remedy)


def forwarding_refused(hop: Hop, jump: str) -> ConnectError:
    """Return the error for a jump host that forwards nothing to `hop`."""
    return ConnectError(
        f"does not permit TCP forwarding to {hop.label} (AllowTcpForwarding or PermitOpen)",
        hop=jump,
        remedy="Use another login node as the jump host; or let this one sign in there by itself, if you trust it with "
        f'what passes: “jupyter gpu-kernel add {jump} --via "ssh {hop.host}"” adds that route.',
    )


def lost(hop: str) -> ConnectError:
    """Return the error for a connection to this hop that has ended without a reason."""
    return ConnectError("the connection was lost", hop=hop, remedy="Check the network and try again.")


class NoCommonAlgorithm(ConnectError):
    """paramiko and the server have no algorithm of some kind in common. The ssh program has more algorithms."""


def no_greeting(hop: Hop) -> ConnectError:
    """Return the error for a server that takes connections and says nothing."""
    return ConnectError(
        "accepted the TCP connection, but sent no SSH version string",
        hop=hop.label,
        remedy="Its SSH server may be overloaded (MaxStartups) or hanging: try again in a few minutes.",
    )


# --- signing in


def attempts(tried: Sequence[str], keys: UserKeys) -> str:
    """Return what was refused and what could not be used, in parentheses; "" if nothing."""
    parts = [f"refused: {', '.join(dict.fromkeys(tried))}"] if tried else []
    parts += keys.unusable
    return f" ({'; '.join(parts)})" if parts else ""


def nobody_to_ask(hop: Hop, keys: UserKeys, tried: Sequence[str], partial: bool) -> AuthError:
    """Return the error for a server that wants a typed secret. `partial`: something else was accepted before."""
    what = "another password or code" if partial else "a password or code"
    return AuthError(
        f"asks for {what}" + attempts(tried, keys),
        hop=hop.label,
        remedy=f"Sign in once {BY_LOGIN}.",
        login=True,
    )


def refused(
    hop: Hop, keys: UserKeys, tried: Sequence[str], methods: Collection[str], accepts_keys: bool
) -> AuthError:
    """Return the error for a server that accepted nothing. `methods`: those that it does accept."""
    if keys.remedies:
        remedy = f"Run {'; '.join(keys.remedies)} in a terminal."
    elif TYPED in tried:
        remedy = "Check the user name, and the password or code."
    elif forbidden := _forbidden(hop, methods):
        remedy = f"Your own ssh configuration forbids them for this host: check {forbidden}."
    elif "gssapi-with-mic" in methods and not accepts_keys:
        remedy = (
            "This server accepts no keys (PubkeyAuthentication no), but Kerberos tickets: get one with kinit, and set "
            "GSSAPIAuthentication yes for it in your ssh configuration."
        )
    elif not accepts_keys:
        remedy = (
            "This server accepts no keys (PubkeyAuthentication no). Ask its administrators how to sign in."
        )
    elif tried:
        remedy = "Check the user name, and that the public key is in ~/.ssh/authorized_keys there."
    else:
        remedy = "Give a key with -i, or add one to the ssh agent (ssh-add)."
    accepted = one_line(", ".join(sorted(filter(None, methods)))) or "no supported method"
    return AuthError(
        f"permission denied for {hop.user}{attempts(tried, keys)}; accepted methods: {accepted}",
        hop=hop.label,
        remedy=remedy,
        login=keys.locked,
    )


def _forbidden(hop: Hop, methods: Collection[str]) -> str:
    """Return the directives that forbid every method which the server accepts; "" if a method remains."""
    found = [forbidding(hop, name) for name in METHODS if name in methods]
    return one_line(", ".join(dict.fromkeys(found)), 300) if all(found) else ""


def forbidding(hop: Hop, method: str) -> str:
    """Return the directive with which the ssh configuration forbids a method of `METHODS`; "" if it does not."""
    if not switched(hop.values, METHODS[method].lower(), True):
        return f"{METHODS[method]} no"
    preferred = first(hop.values, "preferredauthentications", method)
    return "" if method in preferred.split(",") else f"PreferredAuthentications {preferred}"


def closed_while_signing_in(hop: Hop, banner: str) -> AuthError | ConnectError:
    """Return the error for a connection that ended without a reason: the network failed, or the server's PAM rules
    refuse the user, which its last `banner` says."""
    if not _DENIED.search(banner):
        cause = "the connection was lost while signing in"
        return ConnectError(cause, hop=hop.label, remedy="Try again in a few minutes.")
    remedy = "Ask its administrators: the server itself sent this message."
    if re.search(r"\bjobs?\b", banner, re.IGNORECASE):
        remedy = "Start a job on this node first (Slurm: salloc, sbatch), then try again."
    return AuthError(f"refuses to sign anybody in: “{banner}”", hop=hop.label, remedy=remedy)


def disconnected(hop: Hop, reason: str, tried: str) -> AuthError:
    """Return the error for a server that ended the sign-in with a reason. `tried`: of `attempts`."""
    return AuthError(
        f"closed the connection while signing in: {reason}" + tried,
        hop=hop.label,
        remedy="It may have been offered too many keys: give one with -i, or set IdentitiesOnly yes.",
    )
