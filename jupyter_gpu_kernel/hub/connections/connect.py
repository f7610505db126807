"""Chooses the transport for the route of a kernelspec, and connects along the route.

This machine itself can be the node, or the place where a command runs that leads to a node (`LocalConnection`)."""

from __future__ import annotations

import logging
import os
import shlex
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from weakref import WeakSet

from ...errors import ConnectError, RouteError
from ..node.shared_connection import RESPONSE_TIMEOUT, RouteSettings, describe, hop_names
from ..openssh.connect import DirectConnector, MasterConnector
from ..openssh.program import find_program, is_available, open_master
from ..ssh import Attempt
from ..ssh.config.reasons import reasons
from ..ssh.config.route import Hop, resolve
from ..ssh.connect import ParamikoConnector
from ..ssh.failures import NoCommonAlgorithm
from ..ssh.route_connection import Connector, RouteConnection
from ..ssh.sign_in.deadline import AskedMeanwhile, Deadline, Turns
from ..transport.connection import Connection
from ..transport.process import ProcessEnds
from ..transport.stream import CommandStream
from .commands import CommandConnection

_log = logging.getLogger(__name__)
_HERE = "localhost"
"""What messages call this machine."""
_OF_A_LOGIN = (
    *("HOME", "USER", "LOGNAME", "SHELL", "PATH", "LANG", "LANGUAGE", "TZ", "TMPDIR", "XDG_RUNTIME_DIR"),
    *("SSH_AUTH_SOCK", "KRB5CCNAME", "DOCKER_HOST", "CONTAINER_HOST", "JUPYTER_GPU_KERNEL_BASE"),
    # which GPUs a scheduler, or the user, has given to this process
    *("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"),
    # without which programs of Windows do not start
    *("SYSTEMROOT", "SYSTEMDRIVE", "COMSPEC", "PATHEXT", "USERPROFILE", "USERNAME", "TEMP", "TMP"),
    *("APPDATA", "LOCALAPPDATA", "PROGRAMDATA"),
)
_PREFIXES = ("LC_", "SLURM_")
"""The variables that a login has, by their names, and by how their names begin."""


class LocalConnection(Connection):
    """Runs commands on this machine, in the home folder."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        """`environment`: this process's, of which commands get what a login has."""
        super().__init__(_HERE)
        # The hub has the environment of the front end that happened to start it, secrets included.
        self._environment = {
            name: value
            for name, value in environment.items()
            if name in _OF_A_LOGIN or name.startswith(_PREFIXES)
        }

    def open(self, command: str) -> CommandStream:
        """Run a command. Raises ConnectError if it cannot be run."""
        words = shlex.split(command)
        try:
            return self._kept(CommandStream(ProcessEnds(words, self._environment, Path.home())))
        except OSError as error:
            cause = f"“{words[0]}” cannot be run: {error.strerror or error}"
            remedy = "Check that it is installed, and on your PATH."
            raise ConnectError(cause, hop=_HERE, remedy=remedy) from error


class Connections:
    """Makes all connections of the hub. Routes that begin alike share the hops for which the user typed a secret."""

    def __init__(self, trust_file: Path, masters: bool = sys.platform != "win32") -> None:
        """`trust_file`: our own known_hosts file, with the host keys that the user has accepted. `masters`: whether the
        ssh program can share a connection (ControlMaster)."""
        self._trust_file = trust_file
        self._masters = masters
        self._connectors: dict[str, type[Connector]] = {
            "paramiko": ParamikoConnector,
            "ssh": MasterConnector if masters else DirectConnector,
        }
        self._open = {transport: WeakSet[RouteConnection]() for transport in self._connectors}
        self._incompatible: dict[str, str] = {}  # hops to which paramiko could not connect, and why
        self._lock = threading.Lock()
        self._turns = Turns()

    def connect(self, route: RouteSettings, attempt: Attempt) -> Connection:
        """Connect along the route, and through the commands of its `via`. Raises a GpuKernelError that names the hop
        which fails."""
        hops = resolve(route.route, identity=route.identity, config=route.config)
        connection: Connection
        if hops[0].kind == "local":
            _check_local(route.via)
            connection = LocalConnection(os.environ)
        else:
            connection = self.along(hops, attempt, route.transport)
        if route.via:
            names = hop_names(hops[-1].label, route.via)[1:]
            try:
                connection = CommandConnection(connection, names, route.via, attempt.progress)
            except BaseException:
                connection.close()
                raise
        _log.info("connected to %s %s", route.name, describe(connection, route))
        return connection

    def along(self, hops: Sequence[Hop], attempt: Attempt, transport: str = "auto") -> RouteConnection:
        """Connect along hops over SSH; "auto" takes the system's ssh where paramiko cannot do what a hop needs."""
        why, chooses = "", transport == "auto" and is_available()
        if transport == "auto":
            needing = hops if chooses else ()
            why = "; ".join(f"{hop.label}: {one}" for hop in needing for one in self._reasons(hop))
            transport = "ssh" if why else "paramiko"
            if why:
                attempt.progress(hops[-1].label, f"taking the system's ssh, for {why}")
        name = find_program().name if transport == "ssh" else transport
        words = f"{name}, for {why}" if why else name
        deadline = Deadline(attempt.timeout)
        turns = self._turns if attempt.shares else Turns()
        while True:
            since = turns.over  # before looking for hops of others
            connection = self._begun(hops, attempt, transport, words)
            connector = self._connectors[transport](connection, attempt, deadline, self._trust_file)
            try:
                connector.connect(hops, turns, since)
                return connection
            except AskedMeanwhile:
                connection.close()
            except NoCommonAlgorithm as error:
                connection.close()
                if not chooses:
                    raise
                self._incompatible[error.hop] = error.cause
                return self.along(hops, attempt)
            except BaseException:
                connection.close()
                raise

    def _begun(self, hops: Sequence[Hop], attempt: Attempt, transport: str, words: str) -> RouteConnection:
        """Return a connection that begins with the hops of another one, if there is one, and else has none. A silent
        hop is of no use if the user can be asked."""
        connection = RouteConnection(words)
        if not attempt.shares:
            return connection
        with self._lock:
            others = list(self._open[transport])
        for other in others:
            if other.share_with(connection, hops):
                if attempt.ask is None or connection.responds(RESPONSE_TIMEOUT):
                    break
                connection.close()
                connection = RouteConnection(words)
        with self._lock:
            self._open[transport].add(connection)
        return connection

    def _reasons(self, hop: Hop) -> Iterator[str]:
        """Yield why the ssh program is taken for this hop."""
        if self._masters and (master := open_master(hop)) is not None:
            yield f"your own connection is open (ControlPath {master})"
        if hop.label in self._incompatible:
            yield self._incompatible[hop.label]
        yield from reasons(hop)


def _check_local(via: Sequence[str]) -> None:
    """Raise RouteError if this machine itself would have to run the agent, and cannot."""
    if not via and not sys.platform.startswith("linux"):
        raise RouteError(
            "kernels that this package manages run on Linux only",
            hop="localhost",
            remedy='Use an ordinary kernel on this machine; or lead on to Linux, as with --via "wsl -e" on Windows or '
            '--via "docker exec -i CONTAINER".',
        )
