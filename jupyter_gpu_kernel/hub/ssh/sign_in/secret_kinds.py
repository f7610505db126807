"""What kind of secret a question asks for, so that front ends can say it, and know which answers may be stored."""

from __future__ import annotations

import re
from pathlib import Path

from .. import Secret
from ..config.route import Hop

_PASSWORD = re.compile(
    r"(?:\(?\S+@\S+\)? ?)?(?:\S+'s )?(?:unix )?password(?: for \S+| of \S+)?\s*:?\s*", re.I
)
_CODE = re.compile(r"\b(?:code|otp|one-time|passcode|token|verification|authenticator|2fa)\b", re.I)
_PIN = re.compile(r"\bpin\b", re.I)


def password(hop: Hop, again: bool) -> Secret:
    """Return the secret of the user's password for this hop. It belongs to the name under which the host key of the
    hop was verified."""
    return Secret("password", f"{hop.user}@{hop.host_key_alias or hop.host}:{hop.port}", again)


def passphrase(file: Path | str, again: bool) -> Secret:
    """Return the secret of a key file's passphrase."""
    return Secret("passphrase", str(file), again)


def of_server(hop: Hop, prompt: str, again: bool, echo: bool = False) -> Secret:
    """Return the secret that the server's words ask for: its password only if nothing else can be meant, since a
    server may ask for a new password, a code, or anything. `echo`: the server permits that the answer is shown."""
    if _PASSWORD.fullmatch(prompt.strip()) and not echo:
        return password(hop, again)
    if _PIN.search(prompt):
        return Secret("pin", again=again)
    return Secret("code" if _CODE.search(prompt) else "text", again=again)
