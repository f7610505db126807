"""A keeper's process: the real keeper or its successor, with what it uses of a simulated node."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_gpu_kernel.agent.exit.reason import EndFacts, ExitReason, explain
from jupyter_gpu_kernel.agent.failover.keeper_pipe import KeeperPipe
from jupyter_gpu_kernel.agent.failover.successor import RunningKernel, Successor
from jupyter_gpu_kernel.agent.keeper.keeper import Keeper
from jupyter_gpu_kernel.agent.kernel_context import KernelContext
from jupyter_gpu_kernel.agent.kernel_settings import KernelSettings
from jupyter_gpu_kernel.agent.policy import Policy

from . import invariants
from .gpus import NodeRuntime
from .kernel import ModelKernel
from .kernel_end import KernelEnd
from .network import Listener
from .slurm import HOST
from .world import KeeperLoop, Killed, Process

if TYPE_CHECKING:
    from .node import Node


class _Cleanup:
    """Nothing is left of a simulated kernel. `leaves`: its keeper has released the GPUs, and was about to end."""

    alive = leaves = False

    def terminate(self, *_: Any) -> list[Any]:
        self.leaves = True
        return []

    def kill(self) -> None:
        """Nothing runs."""


class _ExitReport:
    """Explains a kernel's end by the real rules, from what the model knows."""

    def __init__(self, context: KernelContext) -> None:
        self.cleanup = _Cleanup()
        self.reason = ExitReason("")
        self._loop, self._story = context.loop, context.story
        self.stop_reason = ""
        self.signal_sent = 0

    def process_started(self, *_: Any, **__: Any) -> dict[str, Any]:
        return {}

    def guard_switched(self, on: bool) -> None:
        """Nothing depends on it."""

    def explain(self, returncode: int, requested: str, _: Any, __: Any, done: Callable[[str], None]) -> None:
        self.reason = explain(EndFacts(returncode, requested, self.stop_reason, self.signal_sent))
        text = f"the kernel ended: {self.reason}"
        self._story.tell("end", text, returncode=returncode, asked=requested)
        if requested:
            done(text)
        else:
            self._loop.run_in_thread(lambda: None, lambda _: done(text))


class _Signals:
    """No kernel gets a SIGTERM."""

    def __init__(self) -> None:
        self.last_sigterm: dict[str, Any] = {}

    def watch_cell(self) -> None:
        """There is nothing to watch for."""

    def read_reports(self) -> None:
        """The guard has reported nothing."""


class _System:
    """What a keeper uses of this node."""

    def __init__(self, process: KeeperProcess) -> None:
        self.process = process
        node = process.node
        self.loop = KeeperLoop(process, NodeRuntime(node, process))
        if node.gpus is not None:
            self.loop.thread_seconds = node.gpus.reading

    def listen(self, path: Path, _: int) -> Listener:
        self.process.listener = Listener(self.process.world, self.process, self.loop)
        return self.process.listener

    def kernel(self, context: KernelContext, on_message: Any, on_mark: Any, _: Any) -> KernelEnd:
        return KernelEnd(self.process, context, on_message, on_mark)

    def running_process(self, _: Any, pid: int, on_end: Callable[[], Any]) -> ModelKernel:
        kernel = self.process.node.processes[pid]
        kernel.on_end = lambda: self.loop.later(0.001, on_end)
        return kernel

    def exit_report(self, context: KernelContext) -> _ExitReport:
        return _ExitReport(context)

    def signals(
        self, _: Any, kernel: KernelEnd, cells: Any, on_child: Callable[[], None], __: Any
    ) -> _Signals:
        kernel.on_child = on_child
        return _Signals()

    def job(self, keeper: Keeper, _: Any) -> _Job:
        return _Job(keeper.settings.now.job)


class _Job:
    """A keeper's connection to the process of its job."""

    def __init__(self, job_id: str) -> None:
        self.status = {"id": job_id, "partition": "gpu", "node": HOST, "hosts": [HOST], "end_time": None}

    def leave(self) -> None:
        """The job's process sees that the keeper has ended."""

    def set_end_time(self, _: Any) -> None:
        """The kernel's user is told of it."""


class KeeperProcess(Process):
    """A keeper: the real one, on this node. `ended`: it has cleaned up."""

    def __init__(self, node: Node, settings: KernelSettings, running: RunningKernel | None = None) -> None:
        super().__init__(node.world, f"keeper of {settings.id}")
        self.node, self.kernel_id, self.job_id = node, settings.id, settings.job
        self.listener: Listener
        self.sockets: list[Any] = []
        self.system = _System(self)
        self.ended = self.stopped = False
        self.checked: object = None
        """The clocks of the event after which the core was looked at last: each event has others."""
        self.steps = self.killed_before_step = 0
        """How many steps were taken, and before which one the process is killed; 0: before none."""
        if running is None:
            self.keeper = Keeper(self.system, node.root, settings, Policy(Path("none")))  # type: ignore[arg-type]
        else:
            leases = node.processes[running.pid].leases.inherited(self)
            running = running._replace(leases=leases.fileno())
            self.keeper = Successor(self.system, node.root, running, KeeperPipe())  # type: ignore[arg-type]

        actions = self.keeper.runner.actions
        actions.update({kind: partial(self._carry_out, action) for kind, action in actions.items()})

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self.node.sockets.pid_of(self)

    def step(self) -> None:
        """An effect of the core is about to be carried out, or something was sent: the process may be killed now."""
        self.steps += 1
        if self.steps == self.killed_before_step:
            self.node.on_kill_due(self)
        if not self.alive:
            raise Killed

    def _carry_out(self, action: Callable[..., object], *fields: Any) -> None:
        self.step()
        action(*fields)

    def begin(self) -> None:
        """Start the kernel, or take it over."""
        self.keeper.begin()

    def after_event(self) -> None:  # type: ignore[override]
        """End when its loop was stopped."""
        invariants.check_bounds(self)
        invariants.check_waiting(self)
        if self.system.loop.stopped and not self.ended:
            self.ended = True
            self.keeper.clean_up()
            self.node.sockets.close_all(self)
            self.world.note("keeper ends", self.kernel_id)
            self.alive = False

    def kill(self) -> None:
        """SIGKILL: nothing is cleaned up but what the system does."""
        self.world.note("keeper killed", self.kernel_id)
        self.alive = False
        self.release()
        self.keeper.kernel.keeper_killed()

    def release(self) -> None:
        """The system closes what the process had open."""
        for sock in self.sockets:
            sock.close()
        self.keeper.runner.log_file.close()
        self.node.sockets.close_all(self)

    @property
    def story(self) -> list[dict[str, Any]]:
        """What the keeper has told."""
        return [json.loads(line) for line in self.keeper.story.path.read_bytes().splitlines()]
