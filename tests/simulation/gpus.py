"""The node's GPUs: what `nvidia-smi` prints of them, who uses them, and what must never happen to them.

Leases, the queue and all decisions about GPUs are those of the agent. This model has the processes that use GPUs:
kernels that have opened theirs, and those of other people, which come and go and hold no lease.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jupyter_gpu_kernel.agent.gpus.sharing.lease import PREFIX

from .node_sockets import ProcessRuntime

if TYPE_CHECKING:
    from .keeper import KeeperProcess
    from .kernel import ModelKernel
    from .node import Node

PROGRAM = "nvidia-smi"
_MEMORY_MIB = 40_000
_SEEN = 1.5
"""Seconds after which a process on a GPU is in the sample that confirms a claim."""


class Used:
    """One GPU. `foreign`: when the process of another person has begun to use it; None if none uses it."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.uuid = f"GPU-00000000-0000-4000-8000-{index:012d}"
        self.foreign: float | None = None
        self.pid = 0


class NodeGpus:
    """The GPUs of a node. `smi` answers as `nvidia-smi` does; `kernel_has` is told which GPUs a kernel uses."""

    def __init__(self, node: Node, number: int, wanted: int) -> None:
        """`wanted`: how many each kernel needs."""
        self.node, self.world, self.wanted = node, node.world, wanted
        self.gpus = [Used(index) for index in range(number)]
        self.random = node.world.random("GPUs")
        self.foreign = 0
        self.taken_at = 0.0
        """When a GPU or a lease was taken."""
        self.contested: set[str] = set()
        """Those that Slurm has given to a job while a kernel outside of jobs had them, of which Slurm knows nothing."""
        self._slowest = 0.0
        """The seconds that the slowest reading took besides its usual time."""

    def reading(self) -> float:
        """Return the seconds after which a sample is known."""
        self._slowest = max(self._slowest, self.node.slow)
        return self.random.choice((0.02, 0.05, 0.1, 0.4)) + self.node.slow

    def take(self, index: int) -> bool:
        """A process of another person begins to use a GPU, unless somebody uses it. Return whether it does."""
        gpu = self.gpus[index]
        if gpu.foreign is not None or self._kernels_on(gpu.uuid):
            return False
        self.foreign += 1
        gpu.foreign, gpu.pid = self.world.now, (1 << 25) + self.foreign
        self.taken_at = self.world.now
        self.world.note("foreign process on", gpu.index)
        return True

    def leave(self, index: int) -> None:
        """That process ends."""
        self.gpus[index].foreign = None

    def leave_all(self) -> None:
        """No process of another person uses a GPU any more."""
        for gpu in self.gpus:
            self.leave(gpu.index)

    def free(self, pid: int = 0) -> list[str]:
        """Return the GPUs that nobody uses, and that no process but this one has leased."""
        leased = {uuid for uuid, holder in self.leases().items() if holder != pid}
        return [one.uuid for one in self.gpus if one.uuid not in leased and not self._apps(one)]

    def named(self, word: str) -> list[Used]:
        """Return the GPUs with this UUID or number."""
        return [one for one in self.gpus if word in (one.uuid, str(one.index))]

    def _running(self) -> list[ModelKernel]:
        return [one for one in self.node.processes.values() if one.running]

    def _kernels_on(self, uuid: str) -> list[ModelKernel]:
        return [one for one in self._running() if uuid in one.gpus]

    # ------------------------------------------------------------------------------------ nvidia-smi

    def smi(self, arguments: Sequence[str]) -> str:
        """Return what `nvidia-smi` prints."""
        query = arguments[0]
        if query.startswith("--query-gpu="):
            fields = query.partition("=")[2].split(",")
            return "".join(", ".join(self._values(gpu, fields)) + "\n" for gpu in self.gpus)
        if query.startswith("--query-compute-apps="):
            return "".join(
                f"{gpu.uuid}, {pid}, python, {mib}\n" for gpu in self.gpus for pid, mib in self._apps(gpu)
            )
        return ""  # it knows no links

    def _apps(self, gpu: Used) -> list[tuple[int, int]]:
        foreign = [] if gpu.foreign is None else [(gpu.pid, 5000)]
        return foreign + [(one.pid, 1000) for one in self._kernels_on(gpu.uuid) if one.opened_gpus]

    def _values(self, gpu: Used, fields: list[str]) -> list[str]:
        known = {
            "index": str(gpu.index),
            "uuid": gpu.uuid,
            "memory.total": str(_MEMORY_MIB),
            "memory.used": str(1 + sum(mib for _, mib in self._apps(gpu))),
            "utilization.gpu": "90" if gpu.foreign is not None and gpu.pid % 2 else "0",
            "compute_mode": "Default",
            "mig.mode.current": "Disabled",
            "retired_pages.pending": "No",
            "remapped_rows.pending": "No",
            "remapped_rows.failure": "No",
            "memory.reserved": "0",
            "name": "NVIDIA Model",
        }
        return [known.get(field, "0" if field.startswith("ecc") else "None") for field in fields]

    # ------------------------------------------------------------------------------------ what must not happen

    def kernel_has(self, kernel: ModelKernel, uuids: list[str], *, starts: bool = False) -> None:
        """A kernel uses these GPUs from now on. `starts`: it starts with them, as a restart keeps them whoever uses
        them, too, and as Slurm gives its own."""
        gained = [gpu for gpu in self.gpus if gpu.uuid in uuids and gpu.uuid not in kernel.gpus]
        kernel.gpus = uuids
        keeper = None if kernel.end is None else kernel.end.process.pid
        self.world.note("kernel has", kernel.pid, *(gpu.index for gpu in gained))
        for gpu in gained:
            others = [one.pid for one in self._kernels_on(gpu.uuid) if one is not kernel]
            if kernel.job_id and self.leases().get(gpu.uuid, keeper) != keeper:
                self.contested.add(gpu.uuid)
            if others and gpu.uuid not in self.contested:
                self.world.fail("one GPU twice", f"kernel {kernel.pid} gets {gpu.uuid}, which {others} have")
            late = _SEEN + self._slowest
            if gpu.foreign is not None and not starts and self.world.now - gpu.foreign > late:
                since = self.world.now - gpu.foreign
                self.world.fail(
                    "foreign GPU", f"kernel {kernel.pid} gets {gpu.uuid}, foreign for {since:.1f} s"
                )

    def check_cell(self, kernel: ModelKernel, name: str, *, by_user: bool) -> None:
        """A kernel begins to execute a cell."""
        if self.node.slurm is not None:
            self.node.slurm.check_gpus(kernel, name)
        if by_user and len(kernel.gpus) < self.wanted:
            self.world.fail("ran without GPUs", f"{name} in kernel {kernel.pid}, which has {kernel.gpus}")

    def left(self) -> list[str]:
        """Return which leases and places there are."""
        return [name for name, _ in self.node.sockets.announced("jupyter-gpu-kernel/")]

    def leases(self) -> dict[str, int]:
        """Return which process has leased which GPU."""
        return dict(self.node.sockets.announced(PREFIX))


class _Ended:
    """A program that has printed everything, and ended."""

    pid = 0

    def poll(self) -> int:
        return 0

    def wait(self, timeout: float | None = None) -> int:
        return 0

    def kill(self) -> None:
        """It has ended."""


class NodeRuntime(ProcessRuntime):
    """What a keeper takes from its node, whose only program is `nvidia-smi`."""

    def __init__(self, node: Node, process: KeeperProcess) -> None:
        super().__init__(node.runtime, node.sockets, process)
        self._node, self._keeper = node, process

    @property
    def environ(self) -> dict[str, str]:
        """The user's environment; a job's has the GPUs that the scheduler gave."""
        own = {"IPYTHONDIR": str(self._node.root.path)}
        slurm = self._node.slurm
        return own if slurm is None else {**own, **slurm.environ(self._keeper.job_id)}

    def start(self, command: Sequence[str], streams: Any, **_: Any) -> _Ended:  # type: ignore[override]
        if self._node.gpus is None or os.path.basename(command[0]) != PROGRAM:
            raise OSError("the simulation has no processes")
        os.write(streams.output, self._node.gpus.smi(command[1:]).encode())
        return _Ended()

    def signal_group(self, *_: Any) -> None:
        """Nothing runs."""
