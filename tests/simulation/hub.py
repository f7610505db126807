"""The hub's process, with the real link, kernel and front ends. It can be killed, and another one adopts the kernel."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_gpu_kernel.errors import ConnectError, GpuKernelError, KernelStartError
from jupyter_gpu_kernel.hub.front_end.delivered import Delivered, RequestFile
from jupyter_gpu_kernel.hub.front_end.front_ends import FrontEnd, FrontEndSpec
from jupyter_gpu_kernel.hub.front_end.requests import Change
from jupyter_gpu_kernel.hub.jobs.job_files import JobFiles
from jupyter_gpu_kernel.hub.jobs.job_kernels import JobKernels
from jupyter_gpu_kernel.hub.kernel.core.life import LinkState, Phase
from jupyter_gpu_kernel.hub.kernel.kernel_state import HubContext, Origin
from jupyter_gpu_kernel.hub.kernel.remote_kernel import RemoteKernel
from jupyter_gpu_kernel.hub.kernel.starter import Starter
from jupyter_gpu_kernel.hub.node.link import Link
from jupyter_gpu_kernel.hub.node.node_link import NodeLink
from jupyter_gpu_kernel.hub.several_hosts.host_starter import HostStarter
from jupyter_gpu_kernel.hub.several_hosts.placement import Placement
from jupyter_gpu_kernel.hub.slurm.scheduler import Schedulers
from jupyter_gpu_kernel.wire.kernel_settings import KernelSettings

from . import invariants
from .front_end import KEY, Client, HubSockets, Ports
from .hosts import NodesOfHub, start_call
from .network import Carrier, Session
from .slurm import Disk
from .world import AsyncLoop, Killed, Process, SimulatedRuntime

if TYPE_CHECKING:
    from .computer import Computer

REPLACED_WITHIN = 30.0
_TO_LAUNCHER = 0.0005
"""Seconds at most until an event of the hub has been written to a launcher."""


class _Log(logging.Handler):
    """What the hub reports as an error is a bug."""

    def __init__(self, hub: HubProcess) -> None:
        super().__init__(logging.ERROR)
        self._hub, self._world = hub, hub.world

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if self._world.failure is None and self._hub.alive:
            self._world.fail("log", f"{record.getMessage()}: {error!r}")


class KernelInfos:
    """The replies of kernels before, in place of a folder."""

    def __init__(self) -> None:
        self._known: dict[str, bytes] = {}

    def get(self, node: str, python: str) -> bytes | None:
        return self._known.get(node)

    def put(self, node: str, python: str, content: bytes) -> None:
        self._known[node] = content


class KernelFiles(Delivered):
    """The files of a kernel. The hub may be killed before it writes to them."""

    def __init__(self, path: Path, ports: Ports) -> None:
        super().__init__(path)
        self.requests = Requests(path, ports)
        self._ports = ports

    def save(self, counts: list[int], pieces: int = 0) -> None:
        if any(counts):  # else the files are about to get another name, within one effect
            self._ports.before_write()
        super().save(counts, pieces)


class Requests(RequestFile):
    """The file of requests."""

    def __init__(self, path: Path, ports: Ports) -> None:
        super().__init__(path)
        self._ports = ports

    def write(self, changes: Iterable[Change]) -> None:
        self._ports.before_write()
        super().write(changes)


class UserFrontEnd:
    """A front end: its connection file, its clients, and the process that serves it, which stays when a hub is killed.

    `front` and `remote` are what the present hub has of it.
    """

    def __init__(self, computer: Computer, number: int) -> None:
        self.computer, self.number = computer, number
        self.front: FrontEnd | None = None
        self.remote: RemoteKernel | None = None
        self.connection: dict[str, Any] = {"key": KEY, "shell_port": computer.ports.new()}
        self.client = Client(computer.ports, f"front{number}", self.connection["shell_port"])
        self._random = computer.world.random(f"launcher of {self.client}")
        self._hears_at = 0.0
        self.kernel_id = ""
        self.state = ""
        self.place: dict[str, Any] = {}
        """Where its kernel was started."""
        self.asked = ""
        self.here = True
        self.priority = 0
        self.outside = False
        """Whether its kernel runs outside of jobs, where others run in jobs."""
        self.fresh = False
        """Whether it starts a new kernel also if its notebook has left one."""
        self.taken = False
        """Whether another computer has its kernel."""
        self.attaches = False
        """Whether it attaches to a kernel that runs."""
        self.wants_restart = False
        self.restarts = False
        """Whether its kernel was requested to restart, and has not yet."""
        self.spec_number: int | None = None
        self.started = False
        """Whether its kernel could be used once: then the next hub adopts it."""

    @property
    def notebook(self) -> str:
        """The path of the notebook that is open in it."""
        return self.client.notebook

    @property
    def failed(self) -> bool:
        """Whether its kernel cannot be started or attached to, or was taken before it had restarted."""
        if self.remote is None or self.started:
            return self.restarts and self.taken
        refused = self.remote.link_state in (LinkState.LOST, LinkState.TAKEN)
        return self.remote.link.state == "failed" or (self.attaches and refused)

    def send(self, event: dict[str, Any]) -> None:
        """The hub sends an event to the front end's launcher; if it is killed now, the event may be lost."""
        world, hub = self.computer.world, self.computer.hub
        self._hears_at = max(self._hears_at, world.now + self._random.uniform(0, _TO_LAUNCHER))
        world.later(self._hears_at - world.now, self._hear, event, process=hub)

    def _hear(self, event: dict[str, Any]) -> None:
        if event["event"] == "kernel":
            self.kernel_id = str(event["kernel"])
            if event["link"] == "taken" and not self.taken:
                self.computer.episode.disturb("taken", self.notebook)
            self.taken = event["link"] == "taken"
            places = ("route", "python", "given_python")
            self.place = {key: event[key] for key in places if key in event}
            is_ended = self.remote is not None and self.remote.ended  # else only for this front end
            if event["state"] == "ended" and self.state != "ended" and is_ended:
                self.client.kernel_ended()
            self.state, self.asked = str(event["state"]), str(event.get("asked", ""))
            self.started = self.started or self.state in ("idle", "busy", "waiting")
            self.restarts = self.restarts and self.state == "starting"

    def spec(self, *, adopted: bool = False) -> FrontEndSpec:
        """Return what its launcher tells of it."""
        plan = self.computer.plan
        return FrontEndSpec(
            dict(self.connection),
            label=f"notebook {self.number}",
            number=self.spec_number if adopted else None,
            listener=self,
            rate_limited=plan.rate_limited,
            revives=plan.revives,
        )


class HubProcess(Process):
    """`create` a kernel, or `join` one, which connects it. All of it must be called by its events."""

    def __init__(self, computer: Computer, number: int) -> None:
        super().__init__(computer.world, f"hub {number}{computer.name}")
        self.computer = computer
        self.runtime = SimulatedRuntime(computer.world, self.name)
        self.async_loop = AsyncLoop(self)
        self.sessions: list[Session] = []
        self._files: list[Delivered] = []
        self.kernels: list[RemoteKernel] = []
        self._placed: Placement | None = None
        self.log = logging.Logger("hub", logging.ERROR)
        self.log.addHandler(_Log(self))
        self.link: Link | None = None
        self.nodes = NodesOfHub(self) if computer.plan.hosts or computer.plan.slurm else None
        self._jobs: JobKernels | None = None
        if computer.plan.slurm and self.nodes is not None:
            self.schedulers = Schedulers(self.runtime, self.nodes, self.log)
            files = JobFiles(computer.episode.folder / "jobs", Disk())  # type: ignore[arg-type]
            self._jobs = JobKernels(self.runtime, self.nodes, self.schedulers, files, self.log)
        bind = partial(HubSockets, computer.ports, self)
        infos, owner = computer.infos, computer.owner
        self.context = HubContext(self.runtime, self.log, infos, owner, bind)  # type: ignore[arg-type]

    def _begin_link(self) -> Link:
        if self.link is None or self.link.state == "failed":
            self.link = Link(self.runtime, "node", self._dial, self.log, carry=Carrier)  # type: ignore[arg-type]
        return self.link

    def _dial(self, _: bool) -> Any:
        if not self.computer.path.up:
            raise ConnectError("no route to the host", hop="node")
        session = self.computer.path.session()
        self.computer.node.login(session)
        self.sessions.append(session)
        return session

    def _path(self, kernel_id: str) -> Path:
        return self.computer.folder / "node" / kernel_id

    def create(self, front_end: UserFrontEnd, *, how: str = "create", kernel_id: str = "") -> RemoteKernel:
        """A front end starts a kernel, attaches to one, or adopts one."""
        kernel_id = kernel_id or self.runtime.new_id()[:12]
        front_end.kernel_id = kernel_id
        settings = self._settings(front_end)
        delivered = KernelFiles(self._path(kernel_id), self.computer.ports)
        self._files.append(delivered)
        adopted, link = how == "adopt", self._begin_link()
        if not adopted:
            delivered.requests.replace([])
        else:
            link.keep_trying()
        spec = front_end.spec(adopted=adopted)
        remote = RemoteKernel(self.context, kernel_id, settings, spec, link, Origin(how, delivered))
        self.kernels.append(remote)
        self._serve(front_end, remote, next(iter(remote.front_ends)))
        return remote

    def start(self, front_end: UserFrontEnd) -> None:
        """A front end starts a kernel, on one of several hosts if the plan has these."""
        if self.nodes is None or front_end.outside:
            self.create(front_end)
        else:
            self.async_loop.create_task(self._start_pending(front_end, self.nodes))

    async def _start_pending(self, front_end: UserFrontEnd, nodes: NodesOfHub) -> None:
        call = start_call()
        kernel_id, settings = self.runtime.new_id()[:12], self._settings(front_end)
        starter = self._starter(nodes, settings)
        try:
            settings = await starter.prepare(settings, call, "")
        except GpuKernelError:
            return self.computer.episode.start_again(front_end)
        if front_end.here:  # else its call has ended
            link = nodes.no_link(settings) or nodes.of(settings).begin_link(settings.python, call)
            self._create_pending(front_end, kernel_id, settings, link, starter)

    def adopt(self, front_end: UserFrontEnd) -> None:
        """A front end of a killed hub comes with its kernel."""
        if self.nodes is None or front_end.outside:
            self.create(front_end, how="adopt", kernel_id=front_end.kernel_id)
            return
        settings = KernelSettings.from_json({**self._settings(front_end).to_json(), **front_end.place})
        link: NodeLink | None = self.nodes.no_link(settings)
        if link is None:
            link = self.nodes.of(settings).begin_link(settings.python, None)
            link.keep_trying()
        starter = self._starter(self.nodes, settings)
        self._create_pending(front_end, front_end.kernel_id, settings, link, starter, how="adopt")

    def _starter(self, nodes: NodesOfHub, settings: KernelSettings) -> Starter:
        if self._jobs is not None:
            return self._jobs.starter(settings)
        self._placed = self._placed or Placement(nodes, self.computer.owner)
        return HostStarter(self.runtime, nodes, self._placed, self.log)

    def _create_pending(
        self,
        front_end: UserFrontEnd,
        kernel_id: str,
        settings: KernelSettings,
        link: NodeLink,
        starter: Starter,
        how: str = "create",
    ) -> None:
        """As in `Kernels.create`."""
        front_end.kernel_id = kernel_id
        delivered = KernelFiles(self._path(kernel_id), self.computer.ports)
        self._files.append(delivered)
        adopted = how == "adopt"
        if not adopted:
            delivered.requests.replace([])
        origin = Origin(how, delivered, starter=starter)
        remote = RemoteKernel(
            self.context, kernel_id, settings, front_end.spec(adopted=adopted), link, origin
        )
        self.kernels.append(remote)
        starter.begin(remote, adopted=adopted)
        self._serve(front_end, remote, next(iter(remote.front_ends)))

    def restart(self, remote: RemoteKernel) -> None:
        """As in `Kernels.restart`."""
        if remote.starter is None:
            return remote.restart()
        self.async_loop.create_task(self._restart_pending(remote))

    async def _restart_pending(self, remote: RemoteKernel) -> None:
        starter = remote.starter
        host_lost = starter is not None and await starter.host_lost(remote)
        if host_lost:
            self.computer.episode.disturb("host left")
            self.world.times["kernel gone"].append(self.world.now)
        if not remote.closed:
            remote.restart(host_lost=host_lost)

    def _settings(self, front_end: UserFrontEnd) -> KernelSettings:
        return KernelSettings.from_json(self.computer.plan.settings(outside=front_end.outside)).replace(
            notebook=front_end.notebook, name="gpu", priority=front_end.priority, fresh=front_end.fresh
        )

    async def end_replaced(self, left: RemoteKernel, remote: RemoteKernel) -> None:
        """Once the kernel `remote` can be used, end the one that it replaces, as `PendingStops` does."""
        kernel_id = left.kernel_id
        await remote.until(lambda: remote.status["state"] in ("idle", "busy", "waiting"), REPLACED_WITHIN)
        with contextlib.suppress(GpuKernelError):
            why, by = "its notebook has another kernel", remote.kernel_id
            await left.link.request("stop", kernel=kernel_id, why=why, replaced_by=by)

    def join(self, front_end: UserFrontEnd, remote: RemoteKernel, *, adopted: bool = False) -> None:
        """A further front end of the kernel."""
        self._serve(front_end, remote, remote.front_ends.add(front_end.spec(adopted=adopted)))

    def _serve(self, front_end: UserFrontEnd, remote: RemoteKernel, front: FrontEnd) -> None:
        front_end.front, front_end.remote, front_end.spec_number = front, remote, front.number
        front_end.connection = dict(front.edge.connection)
        front_end.send(remote.event())  # as the answer to its launcher's call

    def start_failed(self, front_end: UserFrontEnd) -> None:
        """The kernel of a front end could not be started, or attached to: as in the operations `start` and `attach`."""
        if front_end.attaches:
            self.remove(front_end)
        elif front_end.remote is not None and not front_end.remote.closed:
            if front_end.taken:
                front_end.remote.refuse(KernelStartError(front_end.remote.life.taken_cause))
            front_end.remote.stop("it did not start")

    def remove(self, front_end: UserFrontEnd) -> None:
        """The front end leaves, as in `Kernels.remove`."""
        remote, front = front_end.remote, front_end.front
        front_end.front = front_end.remote = None
        if remote is None or front is None or remote.closed:
            return
        remote.front_ends.remove(front)
        if len(remote.front_ends):
            return
        if remote.phase is Phase.SHUT_DOWN and not remote.ended:
            remote.stop("shut down by its front end")
        else:
            remote.close()
        if timers := invariants.timers_of_closed_kernels(self):
            self.world.fail("timers left", "; ".join(timers))

    def kill(self) -> None:
        """SIGKILL."""
        self.world.note("hub killed")
        self.alive = False
        self.world.kills += 1
        self.world.times["hub killed"].append(self.world.now)
        for sockets in list(self.computer.ports.bound.values()):
            sockets.killed()
        for session in self.sessions:
            session.close_by_hub()
        for files in self._files:
            files.requests.close()

    def kill_now(self) -> None:
        """SIGKILL, in the middle of what it does."""
        self.kill()
        raise Killed

    async def close(self) -> None:
        """End it, as nobody uses it any more."""
        if self._jobs is not None:
            self.schedulers.close()
        if self.nodes is not None:
            await self.nodes.hang_up(unused_only=False)
        if self.link is not None:
            await self.link.close()
