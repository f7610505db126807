"""What front ends get while their kernel has not been started. Such a kernel starts when its user runs the first cell.

Kernels in a scheduler's job, or with several hosts, are started so late: opening a notebook submits no job, and the
best host is chosen when its GPUs are needed. Until then kernel_info requests, and requests whose answer is known for a
kernel without variables, are answered by the hub. Code that front ends run by themselves (VS Code does at the start,
and waits for its end) is answered by the hub and repeated in the kernel. All other requests wait, in order.

This module knows neither link nor sockets, and not how the kernel is started: that is the `Starter`'s job.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....wire.kernel_messages.compose import TransientDisplay, composer
from ....wire.messages import Channel, Message, content_of, id_of, type_of
from ....wire.runtime import Runtime
from .placeholder import Placeholder
from .request_table import RequestTable

_KNOWN_ANSWERS: dict[str, dict[str, Any]] = {
    "history_request": {"status": "ok", "history": []},
    "comm_info_request": {"status": "ok", "comms": {}},
    "inspect_request": {"status": "ok", "found": False, "data": {}, "metadata": {}},
    "is_complete_request": {"status": "unknown"},
}


class UnstartedKernel:
    """`answer` gets every request between `begin` and `end`. Requests that wait are in `table`."""

    def __init__(
        self,
        runtime: Runtime,
        placeholder: Placeholder,
        send: Callable[[Message], None],
        table: RequestTable,
    ) -> None:
        self._placeholder = placeholder
        self.table = table
        self._display = TransientDisplay(runtime, composer(runtime, send))
        self._notes: list[str] = []

    def begin(self) -> None:
        """From now on there is no kernel."""
        self.table.not_started = True
        self._placeholder.show_state("busy" if self.table.waiting_cells else "idle")

    def answer(self, request: Message) -> bool:
        """Answer the request, and return True, if the answer is known for a kernel in which nothing was executed."""
        if type_of(request) == "kernel_info_request":
            self._answer_kernel_info(request)
        elif (answer := known_answer(request)) is not None:
            self._placeholder.reply(request, answer)
        else:
            return False
        return True

    def _answer_kernel_info(self, request: Message) -> None:
        """Answer the request. The kernel gets one of them, too, so that its own reply is known next time."""
        if not any(type_of(one) == "kernel_info_request" for one in self.table.waiting):
            self.table.add_answered(request)
        if not self._placeholder.answer(request):
            self._placeholder.reply(request, plain_kernel_info())

    def show(self, text: str) -> None:
        """Show in the first cell that waits why the cell waits."""
        cells = self.table.waiting_cells
        if cells:
            self._display.show(text, cells[0].parts[0])
        else:
            self.hide()

    def tell(self, text: str) -> None:
        """Show this in the first cell that the kernel runs, to stay there."""
        self._notes.append(text)

    def hide(self) -> None:
        """Remove what `show` has shown."""
        self._display.clear()

    def end(self) -> None:
        """The kernel can be used: requests do not wait for its start any more."""
        if not self.table.not_started:
            return
        self.hide()
        notes, self._notes = self._notes, []
        for cell in self.table.waiting_cells[:1]:
            for text in notes:
                self._placeholder.show_text(cell, text)
        self.table.not_started = False

    def end_cells(self, name: str, reason: str) -> None:
        """No kernel is started for the cells that wait: they end with an error."""
        self._placeholder.end_cells(self._cancel(), name, reason)

    def cancel_cells(self) -> None:
        """The user has interrupted the cells that wait."""
        self.end_cells("KeyboardInterrupt", "the kernel had not started yet; its start was cancelled")

    def discard(self) -> None:
        """The kernel is shut down or restarted: nobody waits for the user's cells any more."""
        for cell in self._cancel():
            self.table.answered(id_of(cell))

    def _cancel(self) -> list[Message]:
        self.hide()
        cells = self.table.cancel_waiting()
        if self.table.not_started:
            self._placeholder.show_state("idle")
        return cells


def known_answer(request: Message) -> dict[str, Any] | None:
    """Return the content of the reply of a kernel in which nothing was executed; None if only the kernel knows it."""
    if request.channel is not Channel.SHELL:
        return None
    if type_of(request) == "complete_request":
        at = content_of(request).get("cursor_pos")
        at = at if isinstance(at, int) else 0
        return {"status": "ok", "matches": [], "cursor_start": at, "cursor_end": at, "metadata": {}}
    return _KNOWN_ANSWERS.get(type_of(request))


def plain_kernel_info() -> dict[str, Any]:
    """Return the reply of an IPython kernel of which nothing else is known yet."""
    mode = {"name": "ipython", "version": 3}
    language = {
        "name": "python",
        "version": "3",
        "mimetype": "text/x-python",
        "codemirror_mode": mode,
        "pygments_lexer": "ipython3",
        "nbconvert_exporter": "python",
        "file_extension": ".py",
    }
    return {
        "status": "ok",
        "protocol_version": "5.3",
        "implementation": "ipython",
        "implementation_version": "",
        "language_info": language,
        "banner": "The kernel starts with the first cell.",
        "help_links": [],
        "debugger": False,
        "supported_features": [],
    }
