"""A kernel's GPUs from the keeper's point of view: user cells wait at the gate while GPUs are taken, the kernel is
told which they are, unused ones go back. Joins gate, taking and questions; knows no link.
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

from ...wire.answers import Answers
from ...wire.compose import Send
from ...wire.messages import Message
from ...wire.texts import with_program
from ..loop import Loop, Timer
from ..relay.internal_requests import InternalRequests
from ..story import Story
from .acquisition import Acquisition
from .gate import Gate
from .lease import Details

AGAIN = 0.1
"""Seconds until the kernel is told its GPUs again."""
REVEAL = 1.5
"""Seconds a cell waits before it shows so."""
_NOTEBOOK = 100
"""Characters at the end of a notebook's path that are shown."""


class GpuManager:
    """`passes` for every cell; `on_state("waiting" | "idle")` hears when the kernel waits and when no longer."""

    def __init__(
        self,
        loop: Loop,
        settings: Dict[str, Any],
        line: Path,
        send: Send,
        answers: Answers,
        release: Callable[[Message], None],
        internal_requests: InternalRequests,
        story: Story,
        on_state: Callable[[str], None],
        status: Details,
    ) -> None:
        """`line`: where this user's kernels queue; `release` sends a cell on to the kernel; `status`: as `ps` shows
        it."""
        self._loop = loop
        self._program = str(settings.get("program") or "")
        self._internal_requests = internal_requests
        self._story = story
        self._on_state = on_state
        self._again: Optional[Timer] = None
        self._acquisition = Acquisition(
            loop, settings, line, self._taken, self._waiting, lambda: _details(status())
        )
        self._gate = Gate(send, answers, release, is_open=self._acquisition.done)

    @property
    def uuids(self) -> List[str]:
        """The kernel's GPUs; [] as long as it has none."""
        return self._acquisition.uuids

    @property
    def names(self) -> List[str]:
        """The same as users know them: "GPU 0 (NVIDIA A100)"."""
        return self._acquisition.names

    @property
    def held(self) -> List[Message]:
        """The cells that wait."""
        return self._gate.held

    @property
    def returnable(self) -> bool:
        """Whether there are GPUs that `lend_back` would give back."""
        return self._acquisition.returnable

    def environment(self) -> Dict[str, str]:
        """What the kernel's process is born with."""
        return self._acquisition.environment()

    def inherit(self, uuids: List[str]) -> None:
        """The kernel has these GPUs from a keeper that was killed."""
        for uuid in self._acquisition.inherit(uuids):
            self._story.tell(
                "gpu", f"{uuid} was leased by somebody else meanwhile; the kernel has it all the same"
            )
        if self._acquisition.done:
            self._gate.open()

    def receive(self, leases: Sequence[socket.socket]) -> None:
        """The leases of the kernel that this one replaces, by their sockets; once the kernel is up."""
        if self._acquisition.receive(leases):
            self._taken(self.uuids, "")

    def hand_over(self, folder: Path, kernel_id: str) -> bool:
        """Everything taken goes to the keeper with this folder, which replaces the kernel `kernel_id`."""
        return self._acquisition.hand_over(folder, kernel_id)

    def begin(self) -> None:
        """The kernel starts: looks at the GPUs meanwhile. With GPUs that it is born with no cell need wait."""
        self._say_no_more()
        self._acquisition.begin()
        if self._acquisition.done:
            self._gate.open()

    def passes(self, message: Message) -> bool:
        """Whether this cell may go on; else it waits, and GPUs are wanted."""
        if self._gate.passes(message):
            return True
        self._on_state("waiting")
        self._loop.later(REVEAL, self._gate.reveal)
        self._acquisition.want()
        return False

    def give_up(self, name: str, reason: str) -> bool:
        """Whether a cell waited; it ends with this error."""
        if not self._gate.holding:
            return False
        self._gate.give_up(name, reason)
        if not self._gate.holding:
            self._acquisition.give_up()
            self._on_state("idle")
        return True

    def lend_back(self) -> None:
        """CUDA was never opened: others may have the GPUs until the next cell."""
        self._story.tell("gpu", "gave back " + ", ".join(self.names) + ": not used for a while")
        self.give_back()
        self._internal_requests.evaluate("__import__('gpu_kernel').take_gpus([])", lambda _: None)
        self._on_state("idle")

    def give_back(self) -> None:
        """Everything taken is free again; the next cell waits for GPUs anew."""
        self._say_no_more()
        self._acquisition.give_back()
        if not self._acquisition.done:
            self._gate.close()

    def _waiting(self, text: str) -> None:
        self._gate.show(with_program(text, self._program))

    def _taken(self, uuids: List[str], problem: str) -> None:
        """The GPUs are ours, or (`problem`) will never be: tells the kernel, then opens the gate."""
        if problem:
            self._story.tell("gpu", problem)
            while self.give_up("GpuError", problem):
                pass  # the next cell in line, where a failed one does not stop those behind it
            return
        self._story.tell("gpu", "took " + ", ".join(self.names), gpus=uuids)
        self._say_which()

    def _say_which(self) -> None:
        self._internal_requests.evaluate("__import__('gpu_kernel').take_gpus(%r)" % (self.uuids,), self._told)

    def _say_no_more(self) -> None:
        if self._again is not None:
            self._again.cancel()
            self._again = None

    def _told(self, answer: Dict[str, Any]) -> None:
        if not answer:  # aborted, with whatever else was behind a front end's own code that failed
            self._again = self._loop.later(AGAIN, self._say_which)
            return
        if answer.get("status") != "ok":
            self._story.tell("gpu", f"the kernel could not be told its GPUs: {answer.get('evalue')}")
        self._on_state("idle")
        self._gate.open()


def _details(status: Mapping[str, Any]) -> Dict[str, Any]:
    """What the user's other kernels, which wait for these GPUs, show of this one."""
    return {
        "notebook": str(status["notebook"])[-_NOTEBOOK:],
        "state": status["state"],
        "state_since": status["since"],
    }
