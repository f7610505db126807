"""A kernel that a cell of its user starts. Before that it has no node, and a `Starter` acts for it.

Kernels in a scheduler's job, or with several hosts, are started so late: opening a notebook submits no job, and the
best host is chosen when its GPUs are needed. Until then the placeholder answers what it can. Code that front ends run
by themselves (VS Code does at the start, and waits for its end) is answered by the hub and repeated in the kernel. All
other requests wait in the table, in order.
"""

from __future__ import annotations

from ...errors import GpuKernelError
from ...wire.messages import Message
from ..kernel_settings import KernelSettings
from ..node.node_link import NodeLink
from .core.relay import HubRelay
from .kernel_state import KernelState
from .states import AttachTiming, LinkState, Phase


class LateStart:
    """What a starter does with its kernel, and what the kernel's front ends get meanwhile."""

    def __init__(self, kernel: KernelState, relay: HubRelay, attach_timing: AttachTiming) -> None:
        self._kernel = kernel
        self._relay = relay
        self._table = relay.table
        self._placeholder = relay.placeholder
        self._display = relay.displays.new()
        self._attach_timing = attach_timing
        self._notes: list[str] = []
        self.reason = ""
        """Why the kernel has not been started yet, as `show` was told last; "" when that was hidden since."""

    # -------------------------------------------------------------------------------------- the cells that wait

    @property
    def pending(self) -> bool:
        """Whether the kernel has not been started, or cannot be used yet."""
        return self._table.not_started

    @property
    def cells(self) -> int:
        """How many cells of the user wait for the start."""
        return len(self._table.waiting_cells)

    @property
    def messages(self) -> list[Message]:
        """All requests that wait for the start."""
        return self._table.waiting

    @property
    def wanted(self) -> bool:
        """Whether a cell of the user waits for the start."""
        return self.pending and not self.held and bool(self._table.waiting_cells)

    @property
    def held(self) -> bool:
        """Whether the kernel is not to be started now, as its front ends may get another one."""
        return self._table.held

    def show(self, text: str) -> None:
        """Show in the first cell that waits why the kernel has not been started yet."""
        cells = self._table.waiting_cells
        if cells:
            self._display.show(self._relay.notice.for_user(text), cells[0].parts[0])
        else:
            self.hide()
        self.reason = text

    def hide(self) -> None:
        """Remove what `show` has shown."""
        self.reason = ""
        self._display.clear()

    def tell(self, text: str) -> None:
        """Show this text in the first cell that the kernel runs, to stay there."""
        self._notes.append(text)

    def cancel_cells(self) -> None:
        """The user has interrupted the cells that wait."""
        self._end_cells("KeyboardInterrupt", "the kernel had not started yet; its start was cancelled")

    def discard_cells(self) -> None:
        """The kernel is shut down or restarted: nobody waits for the user's cells any more."""
        self.hide()
        self._table.discard_waiting()
        self._show_idle()

    def _end_cells(self, name: str, reason: str) -> None:
        """No kernel is started for the cells that wait: they end with an error."""
        self.hide()
        cells = self._table.cancel_waiting()
        self._show_idle()
        self._placeholder.end_cells(cells, name, reason)

    def _show_idle(self) -> None:
        if self.pending:
            self._placeholder.show_state("idle")

    # -------------------------------------------------------------------------------------- the start

    def begin(self) -> None:
        """Begin without a kernel on a node."""
        kernel = self._kernel
        kernel.set_phase(Phase.RUN)
        kernel.status = {"id": kernel.kernel_id, "state": "idle", "gpus": [], "pid": 0}
        kernel.error = None
        self.reason = ""
        self._table.not_started = True
        self._placeholder.show_state("busy" if self._table.waiting_cells else "idle")
        kernel.set_link_state(LinkState.CONNECTING)

    def start_on(self, link: NodeLink, settings: KernelSettings, kernel_id: str) -> None:
        """Create the kernel with this id, or find it, on this host. Requests that wait are sent when the kernel can be
        used."""
        kernel = self._kernel
        kernel.link, kernel.settings = link, settings
        self._relay.set_link(link)
        if kernel_id != kernel.kernel_id:
            kernel.kernel_id = kernel_id
            self._relay.switch(kernel_id)
            kernel.notify()  # as the files have the new id from now on
        kernel.open_arguments = {"create": settings.to_json()}
        self._attach_timing.start(link)

    def end(self) -> None:
        """The kernel can be used: requests do not wait for its start any more."""
        if not self.pending:
            return
        self.hide()
        notes, self._notes = self._notes, []
        for cell in self._table.waiting_cells[:1]:
            for text in notes:
                self._placeholder.show_text(cell, text)
        self._table.not_started = False

    def failed(self, error: GpuKernelError) -> None:
        """End the cells that wait with the error, as the kernel cannot be started. The next cell may try again."""
        hop = f"{error.hop}: " if error.hop else ""
        reason = f"{hop}{error.cause}. {error.remedy}".strip()
        self._end_cells(type(error).__name__, self._relay.notice.for_user(reason))

    def undo(self, link: NodeLink, settings: KernelSettings, kernel_id: str) -> None:
        """Return to the state without a kernel, as it does not exist any more: a cell starts one with this id. Requests
        without a reply wait for it."""
        self._attach_timing.move(link)
        self._kernel.link, self._kernel.settings, self._kernel.kernel_id = link, settings, kernel_id
        self._relay.set_link(link)
        self._relay.unstart(kernel_id)
        self.begin()

    def restart(self, *, requested: bool) -> None:
        """Show the kernel as idle: the front end has restarted it before it was started.

        `requested`: by a shutdown_request, which discarded the cells, so that those that wait are for the new kernel.
        """
        if not requested:
            self.discard_cells()
        self._kernel.show_wanted(state="idle")

    def shut_down(self, *, restart: bool) -> None:
        """Show the kernel as ended: a front end has requested its shutdown before it was started."""
        self._kernel.shutdown_requested(restart=restart)
        asked = "restart" if restart else "shutdown"
        self._kernel.show_status(state="ended", asked=asked, cause="shut down", returncode=0)
