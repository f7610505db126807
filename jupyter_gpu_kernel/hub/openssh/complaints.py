"""Why ssh could not connect to a hop: reads the log of ssh, and makes errors of this package of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from ...errors import ConnectError, GpuKernelError, RouteError
from ..sanitize import one_line
from ..ssh import failures, hostkeys
from ..ssh.config.directives import first
from ..ssh.config.route import Hop
from ..ssh.route_connection import ServerBusy
from ..ssh.sign_in.keys import UserKeys
from .process import HOST_KEY, REACH, SSHLog
from .questions import ASKPASS

_RESOLVE = re.compile(r"ssh: Could not resolve hostname \S+: (.*)")
_CONNECT = re.compile(r"ssh: connect to host \S+ port \d+: (.*)")
_NEGOTIATE = re.compile(r"Unable to negotiate with .*: no matching (.*) found\. Their offer: (.*)")
_DISCONNECT = re.compile(r"Received disconnect from .* port \d+:\d+: (.*)")
_REFUSED_KEY = re.compile(r"Host key verification failed|incorrect signature")
_CONFIGURATION = re.compile(r"(.*(?:line \d+: |terminating, |Bad owner or permissions ).*)")
_CLOSED = re.compile(
    r"(?:kex_exchange_identification|ssh_exchange_identification|Connection (?:closed|reset) by)|"
    r"banner exchange: Connection to .*: Broken pipe|"
    r"ssh_dispatch_run_fatal: Connection to .*: (?:Broken pipe|Connection reset by peer|Connection closed)"
)
_NOISE = re.compile(  # lines that explain nothing
    r"OpenSSH_|Warning: Permanently added|@{5}|kex_exchange_identification|Connection (?:closed|reset) by|"
    r"banner exchange: Connection to |Stdio forwarding request failed|Transferred: |Bytes per second: |"
    r"Authenticated to "
)
_OFFERED = re.compile(r"(.*?) \S+ SHA256:")


def not_started(hop: Hop, error: OSError) -> ConnectError:
    """Return the error for an ssh program that this machine does not start."""
    cause = f"the ssh program cannot be run: {error.strerror or error}"
    return ConnectError(cause, hop=hop.label, remedy="Try again.")


def nothing_to_ask_with(hop: Hop) -> RouteError:
    """Return the error for a hop about which the user must be asked, if the program is missing with which ssh asks."""
    cause = f"needs your answer, and the program {ASKPASS} is not installed beside this Python, with which ssh asks"
    remedy = "Install jupyter-gpu-kernel again, or use --transport paramiko."
    return RouteError(cause, hop=hop.label, remedy=remedy)


def not_reached(hop: Hop, log: SSHLog, jump: str, refused: str) -> GpuKernelError:
    """Return the error for an ssh that ended before the server had sent its host key; raise ServerBusy if another
    attempt may succeed.

    `refused`: why the previous hop, `jump`, does not lead to this one; "" if that is not known."""
    words = log.words()
    if found := _first(_RESOLVE, words) or _first(_CONNECT, words):
        return failures.unreachable(hop, found[1], "")
    if refused.startswith("administratively prohibited"):
        return failures.forwarding_refused(hop, jump)
    if refused:
        return failures.unreachable(hop, one_line(refused.removeprefix("connect failed: ")), jump)
    if found := _first(_NEGOTIATE, words):
        return no_algorithm(hop, found[1], found[2])
    if "Connection timed out during banner exchange" in words:
        return failures.no_greeting(hop)
    if found := _first(_CONFIGURATION, words):
        cause = f"the ssh configuration cannot be used: {one_line(found[1])}"
        return RouteError(cause, hop=hop.label, remedy="Correct it, or use --transport paramiko.")
    reason = explanation([*log.other_lines, *words])
    if hop.proxy_command and _first(_CLOSED, words):
        cause = f"its ProxyCommand ended{f': {reason}' if reason else ''}"
        return ConnectError(
            cause, hop=hop.label, remedy=f"Try by hand whether “{_expanded_command(hop)}” works."
        )
    if _first(_CLOSED, words):
        raise ServerBusy(hop, log.greeted)
    return ConnectError(
        reason or "ssh ended without a message", hop=hop.label, remedy="Check the network and try again."
    )


def _expanded_command(hop: Hop) -> str:
    """Return the ProxyCommand as ssh has run it."""
    tokens = {"%": "%", "h": hop.host, "p": str(hop.port), "r": hop.user}
    return one_line(re.sub(r"%([%hpr])", lambda found: tokens[found[1]], hop.proxy_command), 500)


def no_algorithm(hop: Hop, kind: str, offer: str) -> ConnectError:
    """Return the error for a server with which there is no common algorithm."""
    return ConnectError(
        f"no common SSH algorithm ({one_line(kind)}: it has {one_line(offer, 500)})",
        hop=hop.label,
        remedy="Permit one of these for this host in the ssh configuration, or ask its administrators.",
    )


def host_key_refused(hop: Hop, log: SSHLog, trust_file: Path, declined: bool) -> GpuKernelError:
    """Return the error for an ssh that ended while it verified the host key. `declined`: the user has not confirmed
    the key.

    It is a HostKeyError only if ssh refused the key: after that the hub waits long before it tries again."""
    words, key = log.words(), log.host_key
    assert key is not None
    entries = hostkeys.lookup(hop, trust_file)
    if any("IDENTIFICATION HAS CHANGED" in line for line in words):
        known = [entry for entry in entries if not entry.marker]
        return hostkeys.changed(hop, known, key.type, key.fingerprint)
    if declined or any("host key is known for" in line for line in words):
        if not hop.new_hosts:
            return hostkeys.strict(hop, key.type, key.fingerprint)
        reason = "has not signed this key"
        return hostkeys.unknown(hop, entries, key.type, key.fingerprint, declined, reason)
    if any(_REFUSED_KEY.search(line) for line in words):
        return hostkeys.not_permitted(hop, f"its host key was refused: {explanation(words)}")
    cause = "the connection was lost in the SSH key exchange"
    return ConnectError(cause, hop=hop.label, remedy="Try again in a few minutes.")


def sign_in_failed(hop: Hop, log: SSHLog, keys: UserKeys, can_ask: bool, typed: bool) -> GpuKernelError:
    """Return the error for a server that did not let the user in. `keys` knows why some keys were not used. `typed`:
    whether the user has answered a question."""
    words = log.words()
    offered = [found[1] for line in log.offered if (found := _OFFERED.match(line))]
    tried = [key for key in offered if not any(reason.startswith(key) for reason in keys.unusable)]
    if typed:
        tried.append(failures.TYPED)
    if found := _first(_DISCONNECT, words):
        return failures.disconnected(hop, one_line(found[1]), failures.attempts(tried, keys))
    if not any("Permission denied (" in line for line in words):
        lines = [line for line in (*log.other_lines, *words) if line and not _NOISE.match(line)]
        return failures.closed_while_signing_in(hop, one_line(" ".join(lines[-5:]), 500))
    provider = first(hop.values, "pkcs11provider", "none")
    if provider != "none" and not can_ask and not any(line.endswith(" token") for line in log.offered):
        keys.add_token(provider)
    accepts_keys = log.partial or "publickey" in log.methods
    if not accepts_keys:
        keys.forget_problems()
    may_type = any(not failures.forbidding(hop, one) for one in failures.typed_methods(log.methods))
    if may_type and not can_ask and not keys.remedies:
        return failures.nobody_to_ask(hop, keys, tried, log.partial)
    return failures.refused(hop, keys, tried, log.methods, accepts_keys)


def timed_out(hop: Hop, log: SSHLog, jump: str) -> ConnectError:
    """Return the error for an ssh that has come no further in time."""
    if log.step == REACH and not log.greeted:
        return failures.no_greeting(hop) if log.connected else failures.unreachable(hop, "timed out", jump)
    doing = "in the SSH key exchange" if log.step <= HOST_KEY else "while signing in"
    return ConnectError(f"timed out {doing}", hop=hop.label, remedy="Try again in a few minutes.")


def explanation(words: Sequence[str]) -> str:
    """Return the last lines that explain something, joined to one line."""
    lines = [line for line in words if line and not _NOISE.match(line)]
    return one_line("; ".join(lines[-3:]), 500)


def _first(pattern: re.Pattern[str], lines: Sequence[str]) -> re.Match[str] | None:
    return next((found for line in lines if (found := pattern.match(line))), None)
