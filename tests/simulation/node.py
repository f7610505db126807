"""The work node: keepers, and the kernels whose processes outlive their keepers."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from jupyter_gpu_kernel.agent.failover.successor import RunningKernel
from jupyter_gpu_kernel.agent.kernel_settings import KernelSettings
from jupyter_gpu_kernel.agent.paths import Root

from .attach import Attach
from .gpus import NodeGpus
from .keeper import KeeperProcess
from .kernel import CRASHED, ModelKernel
from .network import Session
from .node_sockets import SocketTable
from .slurm import Slurm
from .world import SimulatedRuntime, World


class Node:
    """`dial` opens sessions. `keepers`: the last one of each kernel. `processes`: kernels by process id."""

    def __init__(self, world: World, folder: Path, name: str = "node") -> None:
        self.world, self.name = world, name
        self.runtime = SimulatedRuntime(world, name)
        self.random = world.random(f"{name}'s times")
        self.kills = world.random("kills of keepers")
        self.on_kill_due: Callable[[KeeperProcess], None] = lambda keeper: None
        folder.mkdir(mode=0o700)
        self.root = Root(folder)
        self.sockets = SocketTable(world)
        self.gpus: NodeGpus | None = None
        self.slurm: Slurm | None = None
        self.keepers: dict[str, KeeperProcess] = {}
        self.processes: dict[int, ModelKernel] = {}
        self.attached: list[Attach] = []
        self.started = 0
        self.slow = 0.0
        self.replaced = True
        self.on_death: Callable[[str, str], None] = lambda kind, notebook: None

    def new_process(self, process: ModelKernel) -> int:
        """Return the id of a new process."""
        self.started += 1
        pid = self.world.new_pid()
        self.processes[pid] = process
        return pid

    def login(self, session: Session) -> None:
        """Start an `attach` for this session."""
        self.attached = [one for one in self.attached if one.alive] + [Attach(self, session)]

    def delay(self, least: float, most: float) -> float:
        """Return how long something takes here."""
        return self.random.uniform(least, most) + self.slow

    def create(self, settings: KernelSettings) -> KeeperProcess:
        """Start a keeper with its kernel."""
        keeper = self.keepers[settings.id] = KeeperProcess(self, settings)
        keeper.begin()
        return keeper

    def uuids(self, words: list[str]) -> list[str]:
        """Return the GPUs that these words name in an environment."""
        return [] if self.gpus is None else [one.uuid for word in words for one in self.gpus.named(word)]

    def succeed(self, kernel: ModelKernel) -> None:
        """The kernel's keeper was killed: a successor takes over."""
        if not kernel.running or not self.replaced:
            return
        settings = kernel.successor_settings
        assert settings is not None
        running = RunningKernel(kernel.pid, 0, True, settings, ended=kernel.ended_before)
        keeper = self.keepers[settings.id] = KeeperProcess(self, settings, running)
        self.world.note("successor", settings.id)
        if not keeper.keeper.core.log.found:
            self.world.log_was_lost = True
            self.world.times["log lost"].append(kernel.lost_keeper_at)
        keeper.begin()

    def reboot(self) -> None:
        """Nothing is left of keepers and kernels."""
        self.end_processes(list(self.keepers))

    def end_processes(self, kernel_ids: Iterable[str]) -> None:
        """Nothing is left of the keepers of these kernels, and of the kernels."""
        for keeper in [self.keepers[one] for one in kernel_ids if self.has_processes(one)]:
            self.world.note("reboot", keeper.kernel_id)
            keeper.alive, keeper.ended = False, True
            keeper.release()
            kernel = keeper.keeper.kernel.model
            if kernel is not None:
                kernel.on_end = lambda: None
                kernel.die(CRASHED)
            shutil.rmtree(keeper.keeper.folder, ignore_errors=True)

    def has_processes(self, kernel_id: str) -> bool:
        """Whether the kernel's keeper runs, or the kernel, which starts another keeper."""
        keeper = self.keepers.get(kernel_id)
        return keeper is not None and (keeper.alive or keeper.keeper.kernel.runs_without_keeper)

    def close(self) -> None:
        """Close what is open at the end of an episode."""
        for keeper in self.keepers.values():
            keeper.release()
