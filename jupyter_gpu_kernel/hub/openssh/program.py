"""The system's ssh program, and the command lines with which it is run."""

from __future__ import annotations

import functools
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from ...errors import RouteError
from ..ssh.config.directives import first
from ..ssh.config.route import Hop
from ..transport.process import run_quietly

_VERSION_TIMEOUT = 10.0  # seconds
_LONG = 86400.0  # seconds
_MASTER_TIMEOUT = 2.0  # seconds for a ControlMaster on this machine to answer
_SILENCE = (
    15  # seconds after which ssh asks the server for a sign of life, which keeps firewalls from forgetting us
)
_SILENCES = (
    60  # of them until it gives up: as late as TCP, for the user may have typed a code for this connection
)
# What an ssh of ours must not do, whatever the user's configuration says. Every version since 7.4 knows these.
_FIXED = {
    "ControlPersist": "no",
    "ForwardAgent": "no",
    "ForwardX11": "no",
    "ClearAllForwardings": "yes",
    "ExitOnForwardFailure": "no",
    "Tunnel": "no",
    "PermitLocalCommand": "no",
    "RequestTTY": "no",
    "EscapeChar": "none",
    "UpdateHostKeys": "no",
    "HashKnownHosts": "no",
    "NoHostAuthenticationForLocalhost": "no",
    "FingerprintHash": "sha256",
    "VisualHostKey": "no",
    "LogLevel": "DEBUG1",
    "ServerAliveInterval": str(_SILENCE),
    "ServerAliveCountMax": str(_SILENCES),
}


@dataclass(frozen=True)
class SignIn:
    """How ssh connects to one hop, and signs in there."""

    hop: Hop
    log: Path
    """Where ssh writes its log: a file, or a device."""
    known_hosts: Sequence[Path]
    accepts_host: bool
    """Whether ssh asks about an unknown host key, and adds an accepted key to the first of `known_hosts`; otherwise ssh
    refuses the key."""
    asks: bool
    """Whether ssh asks the user, with SSH_ASKPASS."""
    timeout: float
    """Seconds for the connection and the server's first line."""
    control: Path | None = None
    """Where a ControlMaster for this hop listens, or is to listen."""
    is_open: bool = False
    """Whether the ControlMaster listens already: then ssh must connect to nothing else."""


def opened(hop: Hop, control: Path, log: Path = Path(os.devnull)) -> SignIn:
    """Return how ssh gets to a hop for which a ControlMaster listens."""
    return SignIn(hop, log, [Path(os.devnull)], False, False, _LONG, control, is_open=True)


class Program(NamedTuple):
    """The ssh program: its path, and its version, such as (9, 2)."""

    path: str
    version: tuple[int, int]

    @property
    def name(self) -> str:
        """The program in words."""
        return f"the system's ssh ({'.'.join(map(str, self.version))})"

    def command(self, hops: Sequence[SignIn], command: str | None) -> list[str]:
        """Return the words that run `command` on the last of these hops; each ssh runs the ssh of the hop before as its
        ProxyCommand. Without a command, ssh is only a ControlMaster."""
        proxy = ""
        quoted = subprocess.list2cmdline if sys.platform == "win32" else shlex.join
        for one, following in pairwise(hops):
            to = f"[{following.hop.host}]:{following.hop.port}"
            proxy = quoted([*self._to(one, proxy), "-W", to, *one.hop.arguments]).replace("%", "%%")
        beginning, arguments = self._to(hops[-1], proxy), hops[-1].hop.arguments
        if command is None:
            return [*beginning, "-N", *arguments]
        session = ["-o", "SessionType=default"] if self.version >= (8, 7) else []
        return [*beginning, *session, *arguments, command]

    def check(self, control: Path) -> list[str]:
        """Return the command that succeeds if a master listens at `control`."""
        nowhere = ["-F", os.devnull, "-o", "ProxyCommand=false"]
        return [self.path, *nowhere, "-S", _path(control), "-O", "check", "host"]

    def _to(self, one: SignIn, proxy: str) -> list[str]:
        """Return the beginning of a command that connects to a hop; `proxy`: by this ProxyCommand of ours."""
        limit = min(one.timeout, one.hop.connect_timeout or one.timeout)
        given = {
            **_FIXED,
            **({"RemoteCommand": "none"} if self.version >= (7, 6) else {}),
            **({"ForkAfterAuthentication": "no", "StdinNull": "no"} if self.version >= (8, 7) else {}),
            "ControlMaster": "yes" if one.control is not None and not one.is_open else "no",
            "ControlPath": _path(one.control) if one.control is not None else "none",
            "UserKnownHostsFile": " ".join(f'"{_path(file)}"' for file in one.known_hosts),
            "StrictHostKeyChecking": "ask" if one.accepts_host else "yes",
            "BatchMode": "no" if one.asks else "yes",
            "ConnectTimeout": str(math.ceil(limit)),
        }
        if one.is_open or proxy:
            given |= {"ProxyCommand": proxy or "false", "ProxyUseFdpass": "no"}
        elif not one.hop.proxy_command:
            given["ProxyCommand"] = "none"
        options = [word for key, value in given.items() for word in ("-o", f"{key}={value}")]
        return [self.path, "-T", "-E", one.log.as_posix(), *options]


def _path(path: Path) -> str:
    """Return a path as a value of an option: % begins a token there."""
    return path.as_posix().replace("%", "%%")


def is_available() -> bool:
    """Whether there is an ssh program that can be used as a transport."""
    return shutil.which("ssh") is not None


def find_program() -> Program:
    """Return the ssh program. Raises RouteError if there is none."""
    path = shutil.which("ssh")
    if path is None:
        raise RouteError(
            "the ssh program is not installed on this machine",
            remedy="Install OpenSSH's client, or use --transport paramiko.",
        )
    return Program(path, _version(path))


def open_master(hop: Hop) -> Path | None:
    """Return the ControlPath of this hop if a master of the user's own listens there, and not one of another user."""
    path = Path(first(hop.values, "controlpath", "none"))
    if sys.platform == "win32" or not is_available():
        return None
    try:
        if path.stat().st_uid != os.getuid():
            return None
        listens = run_quietly(find_program().check(path), _MASTER_TIMEOUT).returncode == 0
    except OSError:
        return None
    return path if listens else None


@functools.cache
def _version(path: str) -> tuple[int, int]:
    try:
        done = run_quietly([path, "-V"], _VERSION_TIMEOUT)
    except OSError as error:
        raise RouteError(f"{path} -V failed ({error})", remedy="Use --transport paramiko.") from error
    found = re.search(rb"OpenSSH\w*?_(\d+)\.(\d+)", done.stderr + done.stdout)
    if not found:
        raise RouteError(f"{path} is not OpenSSH", remedy="Use --transport paramiko.")
    return int(found[1]), int(found[2])
