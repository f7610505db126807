"""Connections as the hub makes them, each by a hub of its own unless the test joins some."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from jupyter_gpu_kernel.hub.connections.connect import Connections
from jupyter_gpu_kernel.hub.node.shared_connection import RouteSettings
from jupyter_gpu_kernel.hub.openssh.hops import MasterHop
from jupyter_gpu_kernel.hub.openssh.process import SSHProcess
from jupyter_gpu_kernel.hub.ssh import Asker, Attempt
from jupyter_gpu_kernel.hub.ssh.config.route import Hop
from jupyter_gpu_kernel.hub.ssh.paramiko_hop import ParamikoHop
from jupyter_gpu_kernel.hub.ssh.route_connection import RouteConnection
from jupyter_gpu_kernel.hub.ssh.transport import Transport
from jupyter_gpu_kernel.hub.transport.connection import Connection


def connect(
    hops: Sequence[Hop],
    *,
    trust_file: Path,
    transport: str = "paramiko",
    ask: Asker | None = None,
    timeout: float = 25.0,
    progress: Callable[[str, str], None] = lambda hop, step: None,
) -> RouteConnection:
    """A connection along these hops. The transport "direct" is "ssh" without a ControlMaster, as on Windows."""
    connections = Connections(trust_file, masters=transport != "direct")
    return connections.along(hops, Attempt(ask, progress, timeout), transport.replace("direct", "ssh"))


def connect_route(
    route: Sequence[str],
    *,
    trust_file: Path,
    config: Path,
    via: Sequence[str] = (),
    transport: str = "auto",
    ask: Asker | None = None,
    progress: Callable[[str, str], None] = lambda hop, step: None,
) -> Connection:
    """A connection as a kernelspec's."""
    settings = RouteSettings(tuple(route), (), str(config), tuple(via), transport.replace("direct", "ssh"))
    return Connections(trust_file, masters=transport != "direct").connect(settings, Attempt(ask, progress))


def transports(connection: Connection) -> list[Transport]:
    """Those of paramiko, one for each hop."""
    assert isinstance(connection, RouteConnection)
    return [one.transport for one in connection.opened if isinstance(one, ParamikoHop)]


def masters(connection: Connection) -> list[SSHProcess]:
    """Our own processes of ssh, one for each hop."""
    assert isinstance(connection, RouteConnection)
    hops = [one for one in connection.opened if isinstance(one, MasterHop)]
    return [one.process for one in hops if one.process is not None]
