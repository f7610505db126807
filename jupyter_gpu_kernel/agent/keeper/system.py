"""What a keeper uses of its node: event loop, processes, sockets and signals. A simulation passes another object."""

from __future__ import annotations

from ..exit.report import ExitReport
from ..process.adopted_process import AdoptedProcess
from ..process.kernel_process import KernelProcess
from ..process.signals import Signals
from ..system.agent_runtime import AgentRuntime, listen
from ..system.loop import Loop
from .limits.kernel_job import KernelJob


class KeeperSystem:
    """The node. It makes the parts of a keeper that nothing but the node can replace."""

    listen = staticmethod(listen)
    kernel = KernelProcess
    running_process = AdoptedProcess
    exit_report = ExitReport
    signals = Signals
    job = KernelJob

    def __init__(self, runtime: AgentRuntime) -> None:
        self.loop = Loop(runtime)
