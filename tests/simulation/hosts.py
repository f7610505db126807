"""Several hosts: the nodes on one of which a kernel starts, and how a hub reaches each of them.

Real: the choice of a host, the reservations and the start of the kernel (`hub/several_hosts`), with the hub's nodes and
their connections. A reservation is a keeper that waits for the GPUs of its node as any other.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_gpu_kernel.errors import ConnectError
from jupyter_gpu_kernel.hub.node.link import Link
from jupyter_gpu_kernel.hub.node.node import Node as HubNode
from jupyter_gpu_kernel.hub.node.nodes import Nodes as HubNodes
from jupyter_gpu_kernel.hub.node.shared_connection import RouteSettings
from jupyter_gpu_kernel.hub.rpc import Call
from jupyter_gpu_kernel.hub.transport.connection import Completed, Connection

from .gpus import NodeGpus
from .keeper import KeeperProcess
from .kernel import ModelKernel
from .network import Carrier
from .network import Path as NetworkPath
from .node import Node
from .plan import NAMES
from .slurm import HOST, LOGIN, Slurm
from .world import World

if TYPE_CHECKING:
    from .hub import HubProcess


class Hosts(Node):
    """The hosts as one node, for what asks all of them. A kernel's own keeper is found by the kernel's id."""

    def __init__(self, world: World, folder: Path, number: int) -> None:
        super().__init__(world, folder)
        self.all = [Node(world, folder / name, name) for name in NAMES[:number]]
        for node in self.all:
            node.gpus = NodeGpus(node, 1, 1)

    @property
    def keepers(self) -> dict[str, KeeperProcess]:  # type: ignore[override]
        """All keepers; those of reservations by other keys than the kernel's id."""
        found: dict[str, KeeperProcess] = {}
        for number, node in enumerate(self.all):
            for kernel_id, keeper in node.keepers.items():
                is_free = kernel_id not in found or not found[kernel_id].alive
                own = keeper.alive and not keeper.keeper.settings.now.reservation
                if (before := found.get(kernel_id)) is not None and (own or is_free):
                    found[f"{kernel_id} {number}"] = before
                found[kernel_id if own or is_free else f"{kernel_id} on {number}"] = keeper
        return found

    @keepers.setter
    def keepers(self, _: dict[str, KeeperProcess]) -> None:
        """Each node has its own."""

    @property
    def processes(self) -> dict[int, ModelKernel]:  # type: ignore[override]
        """The kernels of all nodes."""
        return {id(one): one for node in self.all for one in node.processes.values()}

    @processes.setter
    def processes(self, _: dict[int, ModelKernel]) -> None:
        """Each node has its own."""

    def reboot(self) -> None:
        """The first node loses everything."""
        self.all[0].reboot()

    def heal(self) -> None:
        """Foreign processes end."""
        for node in self.all:
            node.slow = 0.0
            if node.gpus is not None:
                node.gpus.leave_all()

    def close(self) -> None:
        for node in self.all:
            node.close()
        super().close()


class _Connection(Connection):
    """An SSH connection, as far as it is not modelled by the sessions."""

    def __init__(self, path: NetworkPath, slurm: Slurm | None) -> None:
        super().__init__("")
        self._path, self._slurm = path, slurm

    def open(self, command: str) -> Any:
        raise ConnectError("the simulation runs no commands")

    def run(self, command: str, *, stdin: bytes = b"", timeout: float = 30.0) -> Completed:
        if not self._path.up:
            raise ConnectError("the connection is down", hop=self._path.name)
        return Completed(0, b"", b"") if self._slurm is None else self._slurm.run(stdin)

    def alive(self) -> bool:
        return not self.closed and self._path.up


class _HubNode(HubNode):
    """A node in the hub, to which sessions of the simulated network lead."""

    hub: HubProcess

    def begin_link(self, python: str, call: Call | None) -> Link:
        if self._link is None or self._link.state == "failed":
            self.python, self._call = python, call
            self._link = Link(self._runtime, self.name, self._dial, self._log, carry=Carrier)  # type: ignore[arg-type]
        else:
            self._link.retry()
        return self._link

    def _start_agent(self, _: Connection) -> Any:
        machine = _machine(self.settings)
        session = self.hub.computer.host_path(machine).session()
        self.hub.computer.host(machine).login(session)
        self.hub.sessions.append(session)
        return session


class NodesOfHub(HubNodes):
    """The nodes of a simulated hub."""

    def __init__(self, hub: HubProcess) -> None:
        super().__init__(hub.runtime, self._reach, hub.log)
        self._hub = hub

    def at(self, route: RouteSettings, name: str = "") -> HubNode:
        if route not in self._nodes:
            node = _HubNode(self._runtime, route, self._connect, self._log, name=name)
            node.hub = self._hub
            self._nodes[route] = node
        return self._nodes[route]

    def _reach(self, route: RouteSettings, _: Any) -> Connection:
        machine, computer = _machine(route), self._hub.computer
        path = computer.host_path(machine)
        if not path.up:
            raise ConnectError("no route to the host", hop=machine)
        return _Connection(path, computer.node.slurm if machine == LOGIN else None)


def _machine(route: RouteSettings) -> str:
    """Return the host to which a route leads; a command of Slurm's leads on from the login node."""
    return HOST if route.via else route.route[-1].rpartition("@")[2]


class _Client:
    """The client of a call."""

    gone = False

    def send(self, message: dict[str, Any]) -> None:
        """Progress is shown to nobody."""


def start_call() -> Call:
    """Return the call by which a launcher starts a kernel."""
    return Call(_Client(), {"id": 1, "op": "start"})  # type: ignore[arg-type]
