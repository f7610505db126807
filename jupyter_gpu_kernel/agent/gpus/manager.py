"""A kernel's GPUs from the keeper's point of view: GPUs are acquired while a user's cell waits for them, the kernel
learns which GPUs it has, and unused ones are released.

This module does not know sockets, which cells wait, or how GPUs are acquired.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional

from ...wire.texts import STOP_HINT, duration, with_program
from ..core.events import CellsFailed, Event, GpusChanged
from ..core.internal_requests import Evaluate
from ..kernel_context import KernelContext
from .acquisition import Acquisition, AcquisitionCallbacks
from .hours import GpuTime
from .judge import WAITING
from .sharing.announcements import Details
from .sharing.lease_transfer import PassedLeases


class GpuCallbacks(NamedTuple):
    """What the keeper does and knows.

    evaluate: Evaluate an expression in the kernel: see `KernelRequests.evaluate`.
    handle: Called with events for the core.
    on_state: Called with "waiting" and "idle" as the kernel's state changes.
    details: Return what other kernels show of this kernel: see `LeaseTaker`. Called whenever somebody asks.
    on_given: Called when it is known which GPUs the scheduler has given.
    """

    evaluate: Evaluate
    handle: Callable[[Event], None]
    on_state: Callable[[str], None]
    details: Details
    on_given: Callable[[], None] = lambda: None


class GpuManager:
    """`want` GPUs while a cell waits. `acquisition` knows which GPUs the kernel has.

    are_ready: Whether the kernel has its GPUs, and knows them, so that no cell need wait.
    notice: What cells that wait show in addition to their own text.
    """

    def __init__(self, context: KernelContext, callbacks: GpuCallbacks) -> None:
        loop, self._story = context.loop, context.story
        self._loop = loop
        self._settings = context.settings
        self._problem = ""
        self.notice = ""
        self._evaluate, self._handle = callbacks.evaluate, callbacks.handle
        self._on_state, self._on_given = callbacks.on_state, callbacks.on_given
        reports = AcquisitionCallbacks(self._acquired, self._failed, self._waiting, self._given)
        self.acquisition = Acquisition(context, callbacks.details, reports)
        self.gpu_time = GpuTime(
            loop.time, self._story, lambda: self.acquisition.uuids, lambda: self.acquisition.names
        )
        self.are_ready = False
        self._cell_waits = False
        self._text = ""
        self._waits_since: Optional[float] = None  # when the story has said that cells wait

    @property
    def reservation_status(self) -> Dict[str, Any]:
        """What the hub needs to know of a reservation; {} for a kernel that is none. `waiting_text`: what it waits for;
        `problem`: why it cannot get GPUs, "" if it can."""
        if not self._settings.now.reservation:
            return {}
        return {"reservation": True, "waiting_text": self._text, "problem": self._problem}

    @property
    def ignored_leases(self) -> List[str]:
        """Texts about the leases of others that this kernel ignores."""
        name, ignored = self.acquisition.name, self.acquisition.ignored_leases.items()
        return [f"{name(uuid)} is {holder or 'leased by another process'}" for uuid, holder in ignored]

    def set_priority(self, priority: int) -> Optional[int]:
        """Change the priority among this user's kernels that wait. Returns the kernel's place."""
        place = self.acquisition.set_priority(priority)
        where = f"number {place}" if place else "not"
        text = f"priority {priority}: the kernel is {where} in the queue"
        self._story.tell("priority", text, priority=priority)
        return place

    def receive(self, passed: PassedLeases) -> None:
        """Take over the leases of the kernel that this one replaces. The kernel must be up."""
        if self.acquisition.receive(passed):
            self._acquired()
        elif self._cell_waits:
            self.acquisition.request()

    def hand_over(self, folder: Path) -> bool:
        """Pass all leases to the keeper with this folder, whose kernel replaces this one."""
        passed = self.acquisition.hand_over(folder)
        self.gpu_time.update()
        return passed

    def _become_ready(self, ready: bool) -> None:
        """The GPUs have changed; `ready`: the kernel has all that it needs, and knows them."""
        self.are_ready = ready
        self._handle(GpusChanged(ready, self.acquisition.names))

    def kernel_started(self) -> None:
        """Prepare for the first cell of a new process. Cells need not wait if it has its GPUs already."""
        self.acquisition.prepare()
        self._become_ready(self.acquisition.acquired)

    def kernel_taken_over(self) -> None:
        """The kernel of a killed keeper takes requests: tell it its GPUs, as that keeper may not have told it."""
        if self.acquisition.holds_leases or not self.acquisition.acquired:  # else no lease is needed
            self._evaluate(self._take_gpus, lambda _: None)

    def kernel_up(self) -> None:
        """The kernel takes requests. A reservation requests its GPUs now."""
        if self._settings.now.reservation and not self.acquisition.acquired:
            self._on_state("waiting")
            self.acquisition.request()

    def want(self, cell_waits: bool) -> None:
        """Request GPUs if a cell waits for them; else end the wait."""
        waited, self._cell_waits = self._cell_waits, cell_waits
        if cell_waits:
            if not waited:
                self._on_state("waiting")
            self.acquisition.request()
        elif waited and not self.are_ready:
            self.acquisition.cancel()
            self._waits_since, self._text = None, ""
            self._on_state("idle")

    def release_unused(self) -> None:
        """Release the GPUs until the next cell, as the kernel has not opened CUDA."""
        names = ", ".join(self.acquisition.names)
        self.release()
        self._story.tell("gpu", f"released {names}: not used for a while")
        self._evaluate(self._take_gpus, lambda _: None)
        self._on_state("idle")

    def release(self) -> None:
        """Release every GPU that was leased here; the next cell waits for GPUs again."""
        self.acquisition.release()
        self.gpu_time.update()
        if not self.acquisition.acquired:
            self._become_ready(False)

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
        text = "\n".join(one for one in (self._text, self.notice) if one)
        text = with_program(text, self._settings.now.program)
        self._handle(GpusChanged(self.are_ready, self.acquisition.names, text))

    def _failed(self, reason: str) -> None:
        self._story.tell("gpu", reason)
        if self._settings.now.reservation:  # the GPUs of another host may do; the hub decides
            self._problem = reason
            return self._on_state("waiting")
        self._handle(CellsFailed("GpuError", reason))

    def _given(self) -> None:
        """A scheduler has given these GPUs, which the kernel can use from its start on."""
        names = ", ".join(self.acquisition.names)
        self._story.tell("gpu", f"the job has {names}", gpus=self.acquisition.uuids)
        self.gpu_time.update()
        self._become_ready(self.are_ready)
        self._on_given()

    def _acquired(self) -> None:
        """Tell the kernel its GPUs; then the cells that wait go to the kernel."""
        text = f"took {', '.join(self.acquisition.names)}"
        if self._waits_since is not None:
            text += f" after {duration(round(self._loop.time() - self._waits_since))}"
        self._waits_since = None
        self._story.tell("gpu", text, gpus=self.acquisition.uuids)
        for text in self.ignored_leases:
            self._story.tell("gpu", f"{text}: that lease is ignored, as the setting “ignore_lease” says")
        self.gpu_time.update()
        self._evaluate(self._take_gpus, self._kernel_informed)

    def _take_gpus(self) -> str:
        return f"__import__('gpu_kernel').take_gpus({self.acquisition.uuids!r})"

    def _kernel_informed(self, reply: Dict[str, Any]) -> None:
        if reply.get("status") != "ok":
            self._story.tell("gpu", f"telling the kernel its GPUs failed: {reply.get('evalue')}")
        self.are_ready, self._text = True, ""
        self._on_state("idle")
        self._become_ready(True)
