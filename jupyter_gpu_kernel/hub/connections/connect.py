"""Chooses how the connection of a kernelspec's route is made, and makes it."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar
from weakref import WeakSet

from ...errors import RouteError
from ..node.shared_connection import CONNECT_WITHIN, RESPONSE_TIMEOUT, Connection, hop_names
from ..openssh import connect as by_ssh
from ..openssh.connection import OpenSSHConnection
from ..openssh.needs import reasons
from ..openssh.program import is_available
from ..ssh import Asker
from ..ssh import connect as by_paramiko
from ..ssh.connection import SSHConnection
from ..ssh.route import Hop, resolve
from .commands import CommandConnection, CommandHop
from .local import LocalConnection

Progress = Callable[[str, str], None]
C = TypeVar("C", SSHConnection, OpenSSHConnection)


class OpenConnections:
    """The open connections over SSH. Routes that begin alike share the hops for which the user typed a secret."""

    def __init__(self) -> None:
        self._open: WeakSet[SSHConnection | OpenSSHConnection] = WeakSet()
        self._lock = threading.Lock()

    def add(self, connection: SSHConnection | OpenSSHConnection) -> None:
        """Let others use its first hops as long as it is open."""
        with self._lock:
            self._open.add(connection)

    def begun(self, kind: type[C], hops: Sequence[Hop], can_ask: bool) -> C | None:
        """Return a connection of this kind to the first of these hops, if there is one. One that is silent is of no use
        if the user can be asked."""
        with self._lock:
            candidates = [one for one in self._open if isinstance(one, kind)]
        for one in candidates:
            shared = one.share(hops)
            if shared is not None and (not can_ask or shared.responds(RESPONSE_TIMEOUT)):
                return shared
            if shared is not None:
                shared.close()
        return None


def connect(
    route: Sequence[str],
    *,
    identity: Sequence[str],
    config: str | None,
    via: Sequence[str],
    transport: str,
    ask: Asker | None,
    progress: Progress,
    timeout: float = CONNECT_WITHIN,
    trust_file: Path,
    opened: OpenConnections | None = None,
    shares: bool = True,
) -> Connection:
    """Connect along the route, and through the commands of `via`. `trust_file`: as in `hub/ssh/connect.py`. `opened`:
    the connections so far. `timeout`, `shares`: as in `Connect`.

    Raises GpuKernelError that names the hop which fails."""
    hops = resolve(route, identity=identity, config=config)
    names = hop_names(hops[-1].label, via)[1:]
    connection: Connection
    if hops[0].kind == "local":
        _check_local(via)
        connection = LocalConnection(os.environ)
    else:
        others = opened if opened is not None and shares else OpenConnections()
        connection = _connect_ssh(hops, transport, ask, progress, timeout, trust_file, others)
    if not via:
        return connection
    try:
        return CommandConnection(connection, list(map(CommandHop, names, via)), progress)
    except BaseException:
        connection.close()
        raise


def _connect_ssh(
    hops: Sequence[Hop],
    transport: str,
    ask: Asker | None,
    progress: Progress,
    timeout: float,
    trust_file: Path,
    opened: OpenConnections,
) -> Connection:
    """Connect with the chosen transport; "auto" takes the system's ssh where paramiko cannot do what a hop needs."""
    why = ""
    if transport == "auto" and is_available():
        why = "; ".join(f"{hop.label}: {reason}" for hop in hops for reason in reasons(hop))
        if why:
            progress(hops[-1].label, f"taking the system's ssh, for {why}")
    connection: SSHConnection | OpenSSHConnection
    if transport == "ssh" or why:
        control = opened.begun(OpenSSHConnection, hops, ask is not None)
        connection = by_ssh.connect(
            hops,
            ask=ask,
            progress=progress,
            timeout=timeout,
            trust_file=trust_file,
            why=why,
            begun=control,
        )
    else:
        begun = opened.begun(SSHConnection, hops, ask is not None)
        connection = by_paramiko.connect(
            hops, ask=ask, progress=progress, timeout=timeout, trust_file=trust_file, begun=begun
        )
    opened.add(connection)
    return connection


def _check_local(via: Sequence[str]) -> None:
    """Raise RouteError if this machine itself would have to run the agent, and cannot."""
    if not via and not sys.platform.startswith("linux"):
        raise RouteError(
            "kernels that this package manages run on Linux only",
            hop="localhost",
            remedy='Use an ordinary kernel on this machine; or lead on to Linux, as with --via "wsl -e" on Windows or '
            '--via "docker exec -i CONTAINER".',
        )
