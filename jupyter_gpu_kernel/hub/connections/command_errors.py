"""Why a command that is a hop gave no shell, from its exit status and its words. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

from ...errors import AuthError, ConnectError
from .. import sanitize

_NO_TERMINAL = "Remove the option that allocates a terminal (-t, --tty, --pty)."


class _Ending(NamedTuple):
    """Why a command ended, if its output matches `pattern`."""

    pattern: str
    error: type[ConnectError]
    cause: str
    remedy: str


_ENDINGS = (
    _Ending(
        r"host key verification failed|no \S+ host key is known",
        ConnectError,
        "ended, since it does not know the host's key",
        "Sign in there once by hand with this command, and accept the host key if it is the right one.",
    ),
    _Ending(
        r"permission denied \(|password|passphrase|verification code|a terminal is required|askpass|too many auth",
        AuthError,
        "ended without signing in; it cannot ask for a password or code, as there is no terminal",
        "Let it sign in with a key that needs no passphrase, or by host.",
    ),
    _Ending(
        r"not a tty|stdin is not a terminal", ConnectError, "ended, since it wants a terminal", _NO_TERMINAL
    ),
)
_NO_PROGRAM = re.compile(r"not found|no such file or directory", re.IGNORECASE)
_BY_HAND = "Run it there by hand, followed by /bin/sh, to see what is wrong."


def ended(hop: str, program: str, status: int | None, output: str) -> ConnectError:
    """Return the error for a command that has ended before it gave a shell."""
    words = _words(output)
    for ending in _ENDINGS:
        if re.search(ending.pattern, output, re.IGNORECASE):
            return ending.error(f"{ending.cause}{words}", hop=hop, remedy=ending.remedy)
    if status == 127 or (status == 126 and _NO_PROGRAM.search(output)):
        remedy = (
            "Check the spelling, and that /bin/sh is there behind it; or give the program's whole path, since the "
            "PATH of a session without a terminal may be shorter."
        )
        return ConnectError(
            f"“{program}”, or /bin/sh behind it, was not found{words}", hop=hop, remedy=remedy
        )
    if status == 0:
        remedy = "It must pass its stdin on to the command that follows it: docker exec, podman exec with -i."
        return ConnectError(f"ended before it gave a shell, without an error{words}", hop=hop, remedy=remedy)
    how = "ended" if status is None or status < 0 else f"ended with status {status}"
    return ConnectError(f"{how} before it gave a shell{words}", hop=hop, remedy=_BY_HAND)


def short_lived(hop: str) -> ConnectError:
    """Return the error for a command whose end is that of all processes behind it."""
    return ConnectError(
        "all processes behind it end with it, so a kernel would not outlive a drop of the connection",
        hop=hop,
        remedy='Start the container by itself, and enter it: docker run -d …, then --via "docker exec -i NAME"; '
        'apptainer instance start …, then --via "apptainer exec instance://NAME"; and no --pid, --containall.',
    )


def held_back(hop: str, seconds: float) -> ConnectError:
    """Return the error for a command that does not pass on bytes at once."""
    cause = f"does not pass on what is printed within {seconds:.0f} s, perhaps since it waits for whole lines"
    return ConnectError(cause, hop=hop, remedy="It must not hold back output: srun needs --unbuffered.")


def no_shell(hop: str, seconds: float, output: str) -> ConnectError:
    """Return the error for a command that gives no shell, and does not end."""
    remedy = (
        "It must pass its stdin and stdout on to the command that follows it (docker exec: with -i). "
        + _BY_HAND
    )
    return ConnectError(f"gave no shell within {seconds:.0f} s{_words(output)}", hop=hop, remedy=remedy)


def terminal(hop: str) -> ConnectError:
    """Return the error for a command that allocates a terminal, which changes the bytes that pass."""
    return ConnectError("allocates a terminal, through which no data can pass", hop=hop, remedy=_NO_TERMINAL)


def endless(hop: str) -> ConnectError:
    """Return the error for a command that prints without giving a shell."""
    return ConnectError("prints without end", hop=hop, remedy=_BY_HAND)


def _words(output: str) -> str:
    text = sanitize.block(output.strip()[-1000:])
    return f"; its output:\n{text}" if text else ""
