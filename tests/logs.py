"""The log of a kernel with its file, without a keeper."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from runtimes import RUNTIME

from jupyter_gpu_kernel.agent.core.effects import Logged, ReadQueue, ToHub
from jupyter_gpu_kernel.agent.core.log import Log
from jupyter_gpu_kernel.agent.kernel_settings import KernelSettings
from jupyter_gpu_kernel.agent.log.log_file import LogFile
from jupyter_gpu_kernel.wire.messages import Lane, Message
from jupyter_gpu_kernel.wire.runtime import EventRuntime, Runtime


class FiledLog(Log):
    """A log whose file has each change after `flush`. `effects`: those since then."""

    def __init__(
        self,
        folder: Path,
        settings: KernelSettings,
        report: Callable[[str], object] = lambda text: None,
        runtime: Runtime = RUNTIME,
    ) -> None:
        self.file = LogFile(runtime, folder, settings, report)
        super().__init__(EventRuntime(runtime.new_id()), self.file.state, self.file.found)
        self.sent: list[ToHub] = []

    def wait(self, message: Message) -> None:
        """A message comes while no hub is attached."""
        self._is_attached, before = False, self._is_attached
        self.send(Lane.ORDERED, message)
        self._is_attached = before

    def number(self, lane: Lane, message: Message) -> None:
        """A message comes while a hub reads."""
        self._send_now(lane, message)

    def take(self) -> list[bytes]:
        """A hub reads one message of those that wait."""
        self.carry_out()
        messages, more = self.file.take(1)
        self.state.take(messages, more)
        return messages

    def leaves(self) -> None:
        """The front end leaves, and another one attaches."""
        self.carry_out()
        self.leave(self.file.queue.parents)

    def carry_out(self) -> None:
        """Carry out the effects; what the hub gets is in `sent`."""
        while self.effects:
            effect = self.effects.pop(0)
            if isinstance(effect, Logged):
                self.file.add(*effect)
            elif isinstance(effect, ReadQueue):
                self.queue_read(*self.file.take(effect.size))
            elif isinstance(effect, ToHub):
                self.sent.append(effect)

    def flush(self) -> list[bytes]:
        """Write the changes; return what the hub gets."""
        self.carry_out()
        self.file.flush()
        sent, self.sent = self.sent, []
        return [one.data for one in sent]

    def close(self) -> None:
        self.file.close()
