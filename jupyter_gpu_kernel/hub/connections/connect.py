"""Chooses how the connection of a kernelspec's route is made, and makes it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from ...errors import RouteError
from ..node.shared_connection import Connection, hop_names
from ..openssh import connect as by_ssh
from ..openssh.needs import reasons
from ..openssh.program import is_available
from ..ssh import Asker
from ..ssh import connect as by_paramiko
from ..ssh.route import Hop, resolve
from .borrowed import BorrowedConnection
from .commands import CommandConnection, CommandHop
from .local import LocalConnection

Progress = Callable[[str, str], None]


def connect(
    route: Sequence[str],
    *,
    identity: Sequence[str],
    config: str | None,
    via: Sequence[str],
    transport: str,
    ask: Asker | None,
    progress: Progress,
    trust_file: Path,
    before: Connection | None = None,
) -> Connection:
    """Connect along the route, and through the commands of `via`. `trust_file`: as in `hub/ssh/connect.py`. `before`:
    as in `Connect`.

    Raises GpuKernelError that names the hop which fails."""
    hops = resolve(route, identity=identity, config=config)
    names = hop_names(hops[-1].label, via)[1:]
    if before is not None:
        return CommandConnection(BorrowedConnection(before), [CommandHop(names[-1], via[-1])], progress)
    connection: Connection
    if hops[0].kind == "local":
        _check_local(via)
        connection = LocalConnection(os.environ)
    else:
        connection = _connect_ssh(hops, transport, ask, progress, trust_file)
    if not via:
        return connection
    try:
        return CommandConnection(connection, list(map(CommandHop, names, via)), progress)
    except BaseException:
        connection.close()
        raise


def _connect_ssh(
    hops: Sequence[Hop], transport: str, ask: Asker | None, progress: Progress, trust_file: Path
) -> Connection:
    """Connect with the chosen transport; "auto" takes the system's ssh where paramiko cannot do what a hop needs."""
    why = ""
    if transport == "auto" and is_available():
        why = "; ".join(f"{hop.label}: {reason}" for hop in hops for reason in reasons(hop))
        if why:
            progress(hops[-1].label, f"taking the system's ssh, for {why}")
    if transport == "ssh" or why:
        return by_ssh.connect(hops, ask=ask, progress=progress, trust_file=trust_file, why=why)
    return by_paramiko.connect(hops, ask=ask, progress=progress, trust_file=trust_file)


def _check_local(via: Sequence[str]) -> None:
    """Raise RouteError if this machine itself would have to run the agent, and cannot."""
    if not via and not sys.platform.startswith("linux"):
        raise RouteError(
            "kernels that this package manages run on Linux only",
            hop="localhost",
            remedy='Use an ordinary kernel on this machine; or lead on to Linux, as with --via "wsl -e" on Windows or '
            '--via "docker exec -i CONTAINER".',
        )
