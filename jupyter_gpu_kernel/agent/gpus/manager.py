"""A kernel's GPUs from the keeper's point of view: user cells wait at the gate while GPUs are acquired, the kernel
is told which GPUs it has, and unused ones are released.

This module does not know the link, sockets, or how GPUs are acquired.
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Protocol, Sequence

from ...wire.kernel_messages.answers import Answers
from ...wire.messages import Channel, Message
from ...wire.texts import STOP_HINT, duration, with_program
from ..kernel_context import KernelContext
from ..relay.requests import InternalRequests
from ..system.loop import Timer
from .acquisition import Acquisition
from .gate import Gate
from .hours import GpuTime
from .judge import WAITING
from .sharing.announcements import Details

RETRY_AFTER = 0.1
"""Seconds until the kernel is informed of its GPUs again, if it did not execute the first request."""
SHOW_AFTER = 1.5
"""Seconds that a cell waits before it shows why."""


class KernelMessages(Protocol):
    """How the kernel is reached, and its front ends are answered: `relay.relay.Relay` is one."""

    @property
    def answers(self) -> Answers:
        """Answers requests in the kernel's name."""

    @property
    def internal_requests(self) -> InternalRequests:
        """Requests of the keeper's own."""

    def send(
        self, channel: Channel, client: int, msg_type: str, content: Dict[str, Any], parent: bytes
    ) -> None:
        """Send a message to front ends in the kernel's name."""

    def release(self, cell: Message) -> None:
        """Send a cell to the kernel."""


class GpuCallbacks(NamedTuple):
    """What the keeper does and knows.

    on_state: Called with "waiting" and "idle" as the kernel's state changes.
    details: Return what other kernels show of this kernel: see `LeaseTaker`. Called whenever somebody asks.
    on_given: Called when it is known which GPUs the scheduler has given.
    """

    on_state: Callable[[str], None]
    details: Details
    on_given: Callable[[], None] = lambda: None


class GpuManager:
    """Ask `admit` for every cell. `acquisition` knows which GPUs the kernel has."""

    def __init__(
        self, context: KernelContext, messages: KernelMessages, callbacks: GpuCallbacks, early: int = -1
    ) -> None:
        """`early`: see Acquisition."""
        loop, self._story = context.loop, context.story
        self._loop = loop
        self._settings = context.settings
        self._notice = self._problem = ""
        self._internal_requests = messages.internal_requests
        self._on_state, self._on_given = callbacks.on_state, callbacks.on_given
        self._retry: Optional[Timer] = None
        self.acquisition = Acquisition(
            context,
            callbacks.details,
            on_acquired=self._acquired,
            on_error=self._failed,
            on_waiting=self._waiting,
            on_given=self._given,
            early=early,
        )
        self.gpu_time = GpuTime(
            loop.time, self._story, lambda: self.acquisition.uuids, lambda: self.acquisition.names
        )
        self._is_informed = False  # whether the kernel knows its GPUs
        self._text = ""
        self._waits_since: Optional[float] = None  # when the story has said that cells wait
        self._gate = Gate(
            loop.runtime,
            messages.send,
            messages.answers,
            messages.release,
            is_open=self.acquisition.acquired,
        )

    @property
    def reservation_status(self) -> Dict[str, Any]:
        """What the hub needs to know of a reservation; {} for a kernel that is none. `waiting_text`: what it waits for;
        `problem`: why it cannot get GPUs, "" if it can."""
        if not self._settings.now.reservation:
            return {}
        return {"reservation": True, "waiting_text": self._text, "problem": self._problem}

    @property
    def wait_text(self) -> str:
        """What the first cell that waits waits for, "" if none does."""
        return self._gate.text if self._gate.cells else ""

    @property
    def waiting_cells(self) -> List[Message]:
        """The cells that wait for GPUs."""
        return self._gate.cells

    @property
    def ignored_leases(self) -> List[str]:
        """Texts about the leases of others that this kernel ignores."""
        ignored = self.acquisition.ignored_leases.items()
        return [
            f"{self.acquisition.name(uuid)} is {holder or 'leased by another process'}"
            for uuid, holder in ignored
        ]

    def set_priority(self, priority: int) -> Optional[int]:
        """Change the priority among this user's kernels that wait. Returns the kernel's place."""
        place = self.acquisition.set_priority(priority)
        where = f"number {place}" if place else "not"
        self._story.tell(
            "priority", f"priority {priority}: the kernel is {where} in the queue", priority=priority
        )
        return place

    def set_notice(self, text: str) -> None:
        """Have cells that wait show this text, in addition to their own."""
        self._notice = text

    def inherit(self, uuids: List[str], since: Optional[float] = None) -> None:
        """Lease the GPUs that the kernel has from a killed keeper. `since`: when it got them."""
        for uuid in self.acquisition.inherit(uuids, since):
            self._story.tell("gpu", f"another process has leased {uuid} since; this kernel still uses it")
        self._open_if_acquired()

    def _open_if_acquired(self) -> None:
        """The kernel has its GPUs from its start on."""
        if self.acquisition.acquired:
            self._is_informed = True
            self._gate.open()

    def receive(self, leases: Sequence[socket.socket], since: Optional[float] = None) -> None:
        """Take over the leases, by their sockets, of the kernel that this one replaces, and that got them at `since`.
        The kernel must be up."""
        if self.acquisition.receive(leases, since):
            self._acquired()

    def hand_over(self, folder: Path, kernel_id: str) -> bool:
        """Pass all leases to the keeper with this folder, which replaces the kernel `kernel_id`."""
        passed = self.acquisition.hand_over(folder, kernel_id)
        self.gpu_time.update()
        return passed

    def kernel_started(self) -> None:
        """Prepare for the first cell of a new process. Cells need not wait if it has its GPUs already."""
        self._cancel_retry()
        self.acquisition.prepare()
        self._open_if_acquired()

    def kernel_up(self) -> None:
        """The kernel takes requests. A reservation requests its GPUs now."""
        if self._settings.now.reservation and not self.acquisition.acquired:
            self._request()

    def admit(self, message: Message) -> bool:
        """Return whether this cell may go to the kernel; otherwise it waits, and GPUs are requested."""
        if self._gate.admit(message):
            return True
        self._loop.later(SHOW_AFTER, self._gate.show_text)
        self._request()
        return False

    def _request(self) -> None:
        self._on_state("waiting")
        self.acquisition.request()

    def fail_first_cell(self, name: str, reason: str) -> bool:
        """End the first waiting cell with this error. Returns whether there was one."""
        if not self._gate.cells:
            return False
        self._gate.fail_first(name, reason)
        if not self._gate.cells:
            self.acquisition.cancel()
            self._waits_since, self._text = None, ""
            self._on_state("idle")
        return True

    def fail_all_cells(self, name: str, reason: str) -> None:
        """End every waiting cell, as far as it is not aborted by the failure of the one before it."""
        while self.fail_first_cell(name, reason):
            pass

    def release_unused(self, why: str = "not used for a while") -> None:
        """Release the GPUs until the next cell, as the kernel has not opened CUDA."""
        names = ", ".join(self.acquisition.names)
        self.release()
        self._story.tell("gpu", f"released {names}: {why}")
        self._internal_requests.evaluate("__import__('gpu_kernel').take_gpus([])", lambda _: None)
        self._on_state("idle")

    def release(self) -> None:
        """Release every GPU that was leased here; the next cell waits for GPUs again."""
        self._cancel_retry()
        self.acquisition.release()
        self.gpu_time.update()
        if not self.acquisition.acquired:
            self._is_informed = False
            self._gate.close()

    def _waiting(self, text: str) -> None:
        if text == self._text:
            return
        self._text = text
        if self._waits_since is None and text.startswith(WAITING):
            self._waits_since = self._loop.time()
            self._story.tell("wait", text.partition("\n")[0].replace(STOP_HINT, ""))
        self._show()
        if self._settings.now.reservation:
            self._on_state("waiting")

    def _show(self) -> None:
        """Show in the first waiting cell what it waits for."""
        text = "\n".join(one for one in (self._text, self._notice) if one)
        self._gate.set_text(with_program(text, self._settings.now.program))

    def _failed(self, reason: str) -> None:
        self._story.tell("gpu", reason)
        if self._settings.now.reservation:  # the GPUs of another host may do; the hub decides
            self._problem = reason
            return self._on_state("waiting")
        self.fail_all_cells("GpuError", reason)

    def _given(self) -> None:
        """A scheduler has given these GPUs, which the kernel can use from its start on."""
        self._story.tell(
            "gpu", f"the job has {', '.join(self.acquisition.names)}", gpus=self.acquisition.uuids
        )
        self.gpu_time.update()
        self._on_given()

    def _acquired(self) -> None:
        """Tell the kernel its GPUs; then the gate opens."""
        waited = (
            ""
            if self._waits_since is None
            else f" after {duration(round(self._loop.time() - self._waits_since))}"
        )
        self._waits_since = None
        self._story.tell(
            "gpu",
            f"took {', '.join(self.acquisition.names)}{self.acquisition.choice}{waited}",
            gpus=self.acquisition.uuids,
        )
        for text in self.ignored_leases:
            self._story.tell("gpu", f"{text}: that lease is ignored, as the setting “ignore_lease” says")
        self.gpu_time.update()
        self._inform_kernel()

    def _inform_kernel(self) -> None:
        code = f"__import__('gpu_kernel').take_gpus({self.acquisition.uuids!r})"
        self._internal_requests.evaluate(code, self._kernel_informed)

    def _kernel_informed(self, reply: Dict[str, Any]) -> None:
        if not reply:  # aborted, because a cell of the user failed before it
            self._retry = self._loop.later(RETRY_AFTER, self._inform_kernel)
            return
        if reply.get("status") != "ok":
            self._story.tell("gpu", f"telling the kernel its GPUs failed: {reply.get('evalue')}")
        self._is_informed = True
        self._open()

    def _open(self) -> None:
        self._text = ""
        self._on_state("idle")
        self._gate.open()

    def _cancel_retry(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
