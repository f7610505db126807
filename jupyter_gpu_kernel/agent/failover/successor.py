"""A keeper that takes over the running kernel of a killed keeper.

The kernel starts the successor, and writes what it needs to know to its stdin. The successor takes the folder's lock,
the log and the leases of GPUs, which the kernel's process has kept, makes a new pipe, and connects to the kernel's
sockets under the identity of the killed keeper, so that replies still arrive. The kernel sends again what the killed
keeper may not have read, and the successor what the kernel may not have received: a kernel drops a request whose
signature it knows, so each cell runs once.

The kernel is not a child of the successor: see `process/adopted_process.py`.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path
from typing import IO, Any, Dict, List, NamedTuple, Sequence

from ...wire.kernel_messages.compose import make
from ...wire.messages import Channel, Lane, Message, keeper_message
from ...wire.runtime import Runtime
from ..core.events import HubSent, KernelStarting, LogCompleted, Tell
from ..keeper.commands import read_unanswered
from ..keeper.keeper import Keeper
from ..keeper.lifetime import EndRequest
from ..keeper.system import KeeperSystem
from ..kernel_protocol import REPEAT_INPUT, TAKEN_OVER
from ..kernel_settings import KernelSettings, settings_from
from ..paths import Root, lock_now
from ..system.agent_runtime import AgentRuntime, send_descriptors
from ..system.process_control import detach
from ..system.procfs import start_ticks
from .keeper_pipe import KeeperPipe

LOCK_TIMEOUT = 10.0
"""Seconds until a process that only inspects the folder has released its lock."""


class RunningKernel(NamedTuple):
    """The kernel to take over.

    leases: The descriptor of the socket that keeps the kernel's leases.
    guard: Whether the kernel's guard against SIGTERM is on.
    ended: The keys of the requests that had ended before the kernel's process started. A hub that had not acknowledged
        their replies may name them.
    """

    pid: int
    leases: int
    guard: bool
    settings: KernelSettings
    ended: Sequence[str] = ()

    @classmethod
    def read(cls, stream: IO[str]) -> RunningKernel:
        """Read what `KeeperWatch` writes: one line, as a process that a cell forked may hold the stream open."""
        info: Dict[str, Any] = json.loads(stream.readline())
        return cls(**{**info, "settings": settings_from(info["settings"])})


def run(root: Root, kernel_id: str) -> int:
    """Start the successor as a daemon. It sends the kernel its end of a new pipe, or the error because of which it does
    not serve."""
    runtime, kernel, pipe = AgentRuntime(), RunningKernel.read(sys.stdin), KeeperPipe()
    folder, kernels_end, sock = root.kernel(kernel_id), pipe.open(), socket.socket(fileno=os.dup(0))

    def keep() -> None:
        with sock:
            try:
                _lock(runtime, folder)  # held as long as this process lives
                if not start_ticks(kernel.pid):
                    raise ProcessLookupError("the kernel has ended, too")
                keeper = Successor(KeeperSystem(runtime), root, kernel, pipe)
            except Exception as error:
                return sock.sendall(f"{type(error).__name__}: {error}".encode())
            send_descriptors(sock, b"\0", [kernels_end])
        os.close(kernels_end)
        keeper.run()

    detach(keep, folder / "log")
    return 0


class Successor(Keeper):
    """A keeper that begins with a running kernel. After a restart of that kernel it is a keeper like any other."""

    def __init__(self, system: KeeperSystem, root: Root, kernel: RunningKernel, pipe: KeeperPipe) -> None:
        """`pipe`: the new pipe to the kernel."""
        self._running = kernel
        super().__init__(system, root, kernel.settings, policy=None)
        self._new_pipe, self._ended_before = pipe, kernel.ended
        # Without a log, replies wait until the hub has named its requests, and until the kernel is taken over.
        self._replies_wait_for = set() if self.core.log.found else {"requests", "kernel"}
        self._early_replies: List[Message] = []
        self._took_over = self._interrupt_waits = False

    def _lease_queue(self, folder: Path) -> socket.socket:
        return self.loop.runtime.received_socket(self._running.leases)

    def _begin(self) -> None:
        self.requests.reset()
        self.handle(LogCompleted(self.core.log.found))
        self.handle(KernelStarting(taken_over=True))
        self.gpus.acquisition.inherit()
        facts = self.exit_report.process_started(self._running.pid, self._running.guard)
        process = self.system.running_process(self.loop, self._running.pid, self._reap)
        self.kernel.adopt(process, self._new_pipe)
        self._save_settings()
        self.story.tell("succession", f"the keeper was killed: process {os.getpid()} took over", **facts)
        self.status.become("busy")
        self.gpus.kernel_started()
        self.requests.begin()

    def _kernel_up(self) -> None:
        if self.kernel.pid != self._running.pid:
            return super()._kernel_up()
        self.requests.send(Channel.CONTROL, TAKEN_OVER, {}, self._take_over, after_idle=True)
        self.requests.send(Channel.STDIN, REPEAT_INPUT, {})

    def _take_over(self, last_replies: Dict[str, Any]) -> None:
        """The kernel has sent again what it had published, and tells its last replies."""
        for channel in (Channel.SHELL, Channel.CONTROL):
            for client, *parts in last_replies.get(channel.name.lower(), []):
                self._from_kernel(Message(channel, int(client), tuple(part.encode() for part in parts)))
        self.gpus.kernel_taken_over()
        self._took_over = True
        super()._kernel_up()
        self._repeat_replies("kernel")
        if self._interrupt_waits:
            super().interrupt()

    def interrupt(self) -> None:
        self._interrupt_waits = not self._took_over and self.kernel.pid == self._running.pid
        if not self._interrupt_waits:
            super().interrupt()

    def _from_kernel(self, message: Message) -> None:
        is_same = self.kernel.pid == self._running.pid
        is_reply = message.channel in (Channel.SHELL, Channel.CONTROL) and message.client
        if is_same and self._replies_wait_for and is_reply:
            return self._early_replies.append(message)
        super()._from_kernel(message)

    def set_unanswered(self, command: Dict[str, Any]) -> None:
        is_same = self.kernel.pid == self._running.pid and self._end_request is not EndRequest.RESTART
        if not self.core.log.found:
            # The kernel may run these cells, though interrupts came again before; the process before may have run them.
            requests, counts = read_unanswered(command), self.core.log.state.received_counts
            if is_same:
                self.handle(HubSent(counts, keeper_message(do="arrived")))
            ended = [one.msg_id for one in requests if not is_same or one.key in self._ended_before]
            self.handle(HubSent(counts, keeper_message(do="cancel", cells=ended)))
        super().set_unanswered(command)
        if is_same:
            self._repeat_replies("requests")
        else:
            self.handle(LogCompleted(True))

    def _repeat_replies(self, there: str) -> None:
        """Handle the replies that came before the hub had named their requests, and before the core could send cells to
        the kernel. Their idle statuses came at that time, too, and were dropped, so this method makes them again."""
        self._replies_wait_for.discard(there)
        if self._replies_wait_for:
            return
        self.handle(LogCompleted(True))
        if not self._early_replies:
            return
        while self._early_replies:
            self._from_kernel(self._early_replies.pop(0))
        for cell in [one for one in self.core.relay.waiting.line if one.reply is not None]:
            idle = make(self.loop.runtime, "status", {"execution_state": "idle"}, cell.request.parts[0])
            self._from_kernel(Message(Channel.IOPUB, 0, idle))

    def _attached(self) -> None:
        if not self.core.log.found:
            self.handle(Tell(Lane.ORDERED, keeper_message(event="successor")))
        super()._attached()


def _lock(runtime: Runtime, folder: Path) -> None:
    """Take the folder's lock. Raises OSError if another process keeps it, or there is no folder."""
    lock = os.open(str(folder / "lock"), os.O_RDWR | os.O_CLOEXEC)
    if not runtime.wait_until(lambda: lock_now(lock), LOCK_TIMEOUT):
        raise BlockingIOError("another process has the kernel's lock")
