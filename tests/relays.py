"""A relay without a kernel's process or a hub: what goes to each is noted. No GPU is needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from contexts import context
from runtimes import RUNTIME, make

from jupyter_gpu_kernel.agent.gpus.manager import GpuCallbacks, GpuManager
from jupyter_gpu_kernel.agent.log.log import Log
from jupyter_gpu_kernel.agent.relay.code_request import OnPinned
from jupyter_gpu_kernel.agent.relay.message_limit import MESSAGE_LIMITS
from jupyter_gpu_kernel.agent.relay.relay import Relay
from jupyter_gpu_kernel.agent.relay.waiting import Reason
from jupyter_gpu_kernel.agent.system.loop import Loop
from jupyter_gpu_kernel.wire.messages import Channel, Lane, Message


class Exchange:
    """`relay` to a kernel that is up; `taken_over`: that ran under a killed keeper, and is not up yet.

    received: The messages to front ends.
    passed: The messages to the kernel.
    pins: The revisions that are being pinned, each with the function to call when it is pinned.
    """

    def __init__(
        self, folder: Path, limits: Mapping[Lane, int] = MESSAGE_LIMITS, *, taken_over: bool = False
    ) -> None:
        self.received: list[Message] = []
        self.passed: list[Message] = []
        self.pins: dict[str, OnPinned] = {}
        loop = Loop(RUNTIME)
        kernel = context(loop, folder, id="k", gpus=0)

        def gpus(relay: Relay) -> GpuManager:
            return GpuManager(kernel, relay, GpuCallbacks(lambda state: None, dict))

        self.log = Log(RUNTIME, kernel.folder, kernel.settings.now, lambda text: None)
        self.relay = relay = Relay(
            kernel,
            self.log,
            lambda *message: self.passed.append(Message(*message)),
            self._to_hub,
            gpus,
            self._pin,
            limits,
        )
        relay.gpus.kernel_started()
        if taken_over:
            relay.kernel_taken_over()
        else:
            relay.kernel_up({"status": "ok"})

    def _to_hub(self, lane: Lane, message: Message) -> None:
        self.log.send(lane, message)
        self.received.append(message)

    def receive(self, request: Message) -> None:
        """Give the keeper a request of a front end."""
        self.log.receive([0, 0, 0], request)
        self.relay.handle_request(request)

    def _pin(self, revision: str, cell: str, on_pinned: OnPinned) -> Callable[[], object]:
        self.pins[revision] = on_pinned
        return lambda: self.pins.pop(revision, None)

    def lose_gpus(self) -> None:
        """User cells wait for GPUs from now on."""
        self.relay.gpus.are_ready = False

    def get_gpus(self) -> None:
        """The kernel has its GPUs."""
        self.relay.gpus.are_ready = True
        self.relay.resume(Reason.GPUS)

    def return_(self) -> None:
        """Another front end attaches."""
        self.log.leave()
        self.relay.front_end_returned([])

    def asks(self, msg_type: str, channel: Channel = Channel.SHELL, **content: Any) -> bytes:
        """A front end's request; returns its header."""
        request = Message(channel, 1, make(msg_type, content))
        self.receive(request)
        return request.parts[0]

    def sends(self, channel: Channel, msg_type: str, content: dict[str, Any], request: bytes) -> None:
        """The kernel, to this request."""
        self.relay.handle_kernel_message(channel, 1, make(msg_type, content, request))

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
