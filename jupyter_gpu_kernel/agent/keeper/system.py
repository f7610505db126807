"""What a keeper uses of its node: event loop, processes, sockets and signals. A simulation passes another object."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any, Callable

from ...wire.runtime import Runtime
from ..exit.report import ExitReport
from ..loop import Loop
from ..process.adopted_process import AdoptedProcess
from ..process.kernel_process import KernelProcess, Process
from ..process.kernel_sockets import OnMessage
from ..process.signals import Signals
from ..process_control import ProcessControl
from ..relay.requests import Executions
from ..spare.client import Spare
from ..story import Story
from ..unix_sockets import listen


class KeeperSystem:
    """The node. Each method makes a part of a keeper that nothing but the node can replace."""

    def __init__(self, runtime: Runtime, processes: ProcessControl) -> None:
        self.loop = Loop(runtime)
        self.processes = processes

    def listen(self, path: Path, backlog: int) -> socket.socket:
        """Return a socket that listens at this path for so many connections."""
        return listen(path, backlog)

    def kernel(
        self, folder: Path, on_message: OnMessage, on_mark: Callable[[int], object], spare: Spare
    ) -> KernelProcess:
        """Return the process of the kernel with this folder, which is still to be started."""
        return KernelProcess(self.loop, self.processes, folder, on_message, on_mark, spare)

    def running_process(self, pid: int, on_end: Callable[[], Any]) -> Process:
        """Return a running process that is not a child of the keeper."""
        return AdoptedProcess(self.loop, pid, on_end)

    def exit_report(self, folder: Path, story: Story) -> ExitReport:
        """Return what explains the end of the kernel with this folder."""
        return ExitReport(self.loop, self.processes, folder, story)

    def signals(
        self,
        kernel: KernelProcess,
        cells: Executions,
        story: Story,
        on_child: Callable[[], None],
        on_guard: Callable[[bool], None],
    ) -> Signals:
        """Return what takes the signals of this process."""
        return Signals(self.loop, kernel, cells, story, on_child, on_guard)
