"""The core of a keeper without a kernel's process or a hub: what goes to each is noted. No GPU is needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from runtimes import RUNTIME, make

from jupyter_gpu_kernel.agent.core import effects, events
from jupyter_gpu_kernel.agent.core.code_request import requested_revision
from jupyter_gpu_kernel.agent.keeper.core_runner import CoreRunner
from jupyter_gpu_kernel.agent.kernel_settings import KernelSettings
from jupyter_gpu_kernel.agent.system.loop import Loop
from jupyter_gpu_kernel.wire.messages import Channel, Message


class Exchange:
    """With a kernel that is up; `taken_over`: that ran under a killed keeper, and is not up yet. A hub is attached.

    received: The messages to front ends.
    passed: The messages to the kernel.
    wanted: The revision to pin; "" if there is none.
    """

    def __init__(self, folder: Path, *, taken_over: bool = False) -> None:
        self.received: list[Message] = []
        self.passed: list[Message] = []
        self.rejected: list[Exception] = []
        self.wanted = ""
        self.loop = Loop(RUNTIME)
        self.runner = CoreRunner(self.loop, folder, KernelSettings(id="k"), print)
        self.handle, self.core, self.relay = self.runner.handle, self.runner.core, self.runner.core.relay
        self.runner.actions.update(
            {
                effects.ToKernel: self.passed.append,
                effects.ToHub: lambda lane, data: self.received.append(Message.decode(data)),
                effects.Want: self._want,
                effects.InputRejected: self.rejected.append,
                effects.CommandReceived: lambda command: None,
                effects.RequestReceived: lambda request, by_user: None,
                effects.ReplySent: lambda msg_id: None,
                effects.WithdrawFromHub: lambda: None,
            }
        )
        self.handle(events.HubAttached("hub", [0, 0, 0]))
        self.handle(events.HubReads([0, 0, 0], 1 << 30))
        self.received.clear()
        self.handle(events.KernelStarting(taken_over))
        self.handle(events.GpusChanged(True, []))
        if not taken_over:
            self.handle(events.KernelUp({"status": "ok"}))
            self.relay.waiting.may_pin = False

    def end_turn(self) -> None:
        """The loop's turn ends."""
        self.loop.later(0, self.loop.stop)
        self.loop.run()

    def receive(self, request: Message) -> None:
        """Give the keeper a request of a front end."""
        self.handle(events.HubSent([0, 0, 0], request))

    def _want(self, code: Message | None, gpus: Message | None) -> None:
        self.wanted = requested_revision(code.content()["code"]) if code else ""

    def starts(self) -> None:
        """Another process of the kernel starts, and is up."""
        self.handle(events.KernelStarting())
        self.handle(events.KernelUp({}))

    def crashes(self) -> None:
        """The kernel has ended, and another process may follow."""
        self.handle(events.KernelGone())
        self.handle(events.KernelEnded("it has crashed", False))

    def pinned(self, problem: str = "") -> None:
        """What is wanted is pinned, unless there is a problem."""
        self.handle(events.CodePinned(problem))

    def lose_gpus(self) -> None:
        """User cells wait for GPUs from now on."""
        self.handle(events.GpusChanged(False, []))

    def get_gpus(self) -> None:
        """The kernel has its GPUs."""
        self.handle(events.GpusChanged(True, []))

    def return_(self) -> None:
        """Another front end attaches."""
        self.handle(events.FrontEndReturned([], self.runner.log_file.queue.parents, 3600))

    def interrupt(self) -> None:
        """The kernel's user interrupts it, not by a message."""
        self.handle(events.InterruptRequested())

    def asks(self, msg_type: str, channel: Channel = Channel.SHELL, **content: Any) -> bytes:
        """A front end's request; returns its header."""
        request = Message(channel, 1, make(msg_type, content))
        self.receive(request)
        return request.parts[0]

    def sends(self, channel: Channel, msg_type: str, content: dict[str, Any], request: bytes) -> None:
        """The kernel, to this request."""
        self.kernel_sends(Message(channel, 1, make(msg_type, content, request)))

    def kernel_sends(self, message: Message) -> None:
        """A message of the kernel comes."""
        self.handle(events.KernelSent(message))

    def is_(self, state: str, request: bytes) -> None:
        """The kernel, by its status."""
        self.sends(Channel.IOPUB, "status", {"execution_state": state}, request)

    def states(self) -> list[tuple[str, str]]:
        """Each status sent to front ends since the last call, and the type of the request that it is about."""
        received, self.received[:] = list(self.received), []
        statuses = [message for message in received if message.header()["msg_type"] == "status"]
        return [
            (str(one.content()["execution_state"]), str(one.parent().get("msg_type", ""))) for one in statuses
        ]
