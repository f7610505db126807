"""The system's ssh program, and the command lines with which it is run."""

from __future__ import annotations

import functools
import math
import os
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ...errors import RouteError
from ..ssh.config.route import Hop
from ..transport.process import run_quietly

_VERSION_TIMEOUT = 10.0  # seconds
_MASTER_TIMEOUT = 2.0  # seconds for a ControlMaster on this machine to answer
_SILENCE = (
    15  # seconds after which ssh asks the server for a sign of life, which keeps firewalls from forgetting us
)
_SILENCES = (
    60  # of them until it gives up: as late as TCP, for the user may have typed a code for this connection
)
# What a session of ours must not do, whatever the user's configuration says. Every version since 7.4 knows these.
_FIXED = {
    "ControlMaster": "yes",
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


_ANY_HOST = "previous"  # ssh wants the name of a host, and the master does not


class Program(NamedTuple):
    """The ssh program: its path, and its version, such as (9, 2)."""

    path: str
    version: tuple[int, int]

    @property
    def name(self) -> str:
        """The program in words."""
        return f"the system's ssh ({'.'.join(map(str, self.version))})"

    def master(
        self,
        hop: Hop,
        *,
        control: Path,
        before: Path | None,
        known_hosts: Sequence[Path],
        accepts_host: bool,
        asks: bool,
        timeout: float,
    ) -> list[str]:
        """Return the command of a ControlMaster for `hop` that listens at `control`.

        `before`: the ControlPath of the previous hop. `accepts_host`: ask about an unknown host key, and add it to the
        first of `known_hosts`; otherwise refuse it. `asks`: ask for secrets (with SSH_ASKPASS).
        """
        given = {
            **_FIXED,
            **({"RemoteCommand": "none"} if self.version >= (7, 6) else {}),
            **({"ForkAfterAuthentication": "no"} if self.version >= (8, 7) else {}),
            "ControlPath": self._path(control),
            "UserKnownHostsFile": " ".join(f'"{self._path(file)}"' for file in known_hosts),
            "StrictHostKeyChecking": "ask" if accepts_host else "yes",
            "BatchMode": "no" if asks or accepts_host else "yes",
            "ConnectTimeout": str(math.ceil(min(timeout, hop.connect_timeout or timeout))),
        }
        if before is not None:
            given |= {"ProxyCommand": self._through(before), "ProxyUseFdpass": "no"}
        elif not hop.proxy_command:
            given["ProxyCommand"] = "none"
        options = [word for key, value in given.items() for word in ("-o", f"{key}={value}")]
        log = ["-E", "/dev/stdout"]  # apart from stderr, where the server's banner goes
        return [self.path, "-N", "-T", *log, *options, *hop.arguments]

    def session(self, control: Path, command: str) -> list[str]:
        """Return the command that runs `command` through the master that listens at `control`; its log is on stderr."""
        return [*self._by_master(control), "-o", "LogLevel=DEBUG1", "-T", "-e", "none", _ANY_HOST, command]

    def check(self, control: Path) -> list[str]:
        """Return the command that succeeds if a master listens at `control`."""
        return [*self._by_master(control), "-O", "check", _ANY_HOST]

    def _through(self, before: Path) -> str:
        """Return the ProxyCommand through the master of the previous hop."""
        words = shlex.join([*self._by_master(before), "-o", "LogLevel=ERROR"]).replace("%", "%%")
        return f"{words} -W '[%h]:%p' {_ANY_HOST}"

    def _by_master(self, control: Path) -> list[str]:
        """Return the beginning of a command that uses a master, and must not connect anywhere itself."""
        return [self.path, "-F", os.devnull, "-o", "ProxyCommand=false", "-S", self._path(control)]

    def _path(self, path: Path) -> str:
        """Return a path as a value of an option: % begins a token there."""
        return path.as_posix().replace("%", "%%")


def is_available() -> bool:
    """Whether there is an ssh program that can be used as a transport."""
    return sys.platform != "win32" and shutil.which("ssh") is not None


def find_program() -> Program:
    """Return the ssh program. Raises RouteError if there is none."""
    if sys.platform == "win32":  # where it has no ControlMaster
        cause = "the transport ssh does not work on Windows"
        raise RouteError(cause, remedy="Use --transport paramiko.")
    path = shutil.which("ssh")
    if path is None:
        raise RouteError(
            "the ssh program is not installed on this machine",
            remedy="Install OpenSSH's client, or use --transport paramiko.",
        )
    return Program(path, _version(path))


def open_master(hop: Hop) -> Path | None:
    """Return the ControlPath of this hop if a master of the user's own listens there, and not one of another user."""
    path = Path((hop.values.get("controlpath") or ["none"])[0])
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
