"""A pending kernel: a cell of its user starts it. Before that it has no node, and a `Starter` acts for it."""

from __future__ import annotations

from ...errors import GpuKernelError
from ...wire.messages import Message
from ..kernel_settings import KernelSettings
from ..node.node_link import NodeLink
from .kernel_state import KernelState
from .messages.relay import HubRelay
from .states import AttachTiming, LinkState, Phase


class LateStart:
    """What a starter does with its kernel."""

    def __init__(self, kernel: KernelState, relay: HubRelay, attach_timing: AttachTiming) -> None:
        self._kernel = kernel
        self._relay = relay
        self._not_started = relay.not_started
        self._table = relay.not_started.table
        self._attach_timing = attach_timing
        self.reason = ""
        """What `show` has shown last: why the kernel has not been started yet; "" while no cell waits."""

    def begin(self) -> None:
        """Begin without a kernel on a node."""
        kernel = self._kernel
        kernel.set_phase(Phase.RUN)
        kernel.status = {"id": kernel.kernel_id, "state": "idle", "gpus": [], "pid": 0}
        kernel.error = None
        self.reason = ""
        self._not_started.begin()
        kernel.set_link_state(LinkState.CONNECTING)

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
        """Show in the waiting cell why the kernel has not been started yet."""
        self.reason = text
        self._not_started.show(self._relay.notice.for_user(text))

    def tell(self, text: str) -> None:
        """Show this text in the first cell that the kernel runs."""
        self._not_started.tell(text)

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

    def failed(self, error: GpuKernelError) -> None:
        """End the cells that wait with the error, as the kernel cannot be started. The next cell may try again."""
        reason = (
            f"{error.hop}: {error.cause}. {error.remedy}" if error.hop else f"{error.cause}. {error.remedy}"
        )
        self._not_started.end_cells(type(error).__name__, self._relay.notice.for_user(reason.strip()))

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
            self._not_started.discard()
        self._kernel.show_wanted(state="idle")

    def shut_down(self, *, restart: bool) -> None:
        """Show the kernel as ended: a front end has requested its shutdown before it was started."""
        asked = "restart" if restart else "shutdown"
        self._kernel.show_status(state="ended", asked=asked, cause="shut down", returncode=0)
