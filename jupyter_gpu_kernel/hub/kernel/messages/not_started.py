"""What front ends get while their kernel has not been started. Such a kernel starts when its user runs the first cell.

A kernel in a scheduler's job is started so late, as opening a notebook submits no job. Until then kernel_info requests,
and requests whose answer is known for a kernel without variables, are answered by the hub. Code that front ends run by
themselves (VS Code does at the start, and waits for its end) is answered by the hub and repeated in the kernel. All
other requests wait, in order.

This module knows neither link nor sockets, and not how the kernel is started: that is the `Starter`'s job.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from ....errors import GpuKernelError
from ....wire.compose import TransientDisplay, composer, is_user_cell
from ....wire.messages import Channel, Message, MessageError, id_of, parent_id_of, type_of
from ....wire.runtime import Runtime
from ...front_end.delivered import Delivered
from ...front_end.requests import EXECUTED, is_own_code
from .placeholder import Placeholder

_MAX_REPEATED = 50
_MAX_REPEATED_BYTES = 1024 * 1024
_ANSWERED, _WAITS = "a", "w"


class Starter(Protocol):
    """Starts one kernel when a cell of the kernel's user waits. All calls return at once."""

    def cell_waits(self) -> None:
        """A cell of the user waits for the kernel."""

    def interrupted(self) -> None:
        """The user has interrupted the kernel, which has not been started: no cell waits any more."""

    def restart(self) -> None:
        """The kernel does not exist any more, and is to be started again with the next cell."""

    def replace(self, kernel_id: str, stop: Callable[[], Awaitable[None]]) -> bool:
        """The front end has replaced the kernel `kernel_id` by the starter's kernel, which starts in the job of the old
        one. `stop` is called when the new kernel has started there, or cannot. Return False if the new kernel has a job
        of its own already; then `stop` is not called."""

    def lost(self, error: GpuKernelError) -> bool:
        """The kernel's keeper does not exist any more, or could not be started. Return whether this is handled, with
        `RemoteKernel.start_failed` or `RemoteKernel.end`, in a moment."""


class UnstartedKernel:
    """`take` gets every request while this object is `active`; `end` returns the requests for the kernel when the
    kernel can be used."""

    def __init__(
        self,
        runtime: Runtime,
        placeholder: Placeholder,
        send: Callable[[Message], None],
        delivered: Delivered | None = None,
    ) -> None:
        """`delivered`: the kernel's files, with the requests that waited when a hub was killed."""
        self.active = False
        self._delivered = delivered
        self._placeholder = placeholder
        self._messages: list[Message] = []
        self._answered: dict[str, int] = {}  # msg_ids of those that were answered, and are repeated: bytes
        self._dropped: set[str] = set()
        self._display = TransientDisplay(runtime, composer(runtime, send))
        self._shown_in = ""
        self._notes: list[str] = []
        self._recall()

    @property
    def messages(self) -> list[Message]:
        """The requests that wait."""
        return self._messages

    @property
    def cells(self) -> list[Message]:
        """The cells of the user among the requests that wait."""
        return [one for one in self._messages if is_user_cell(one)]

    def begin(self) -> None:
        """From now on there is no kernel."""
        self.active = True
        self._dropped.clear()
        self._placeholder.show_state("busy" if self.cells else "idle")

    def take(self, request: Message) -> None:
        """Answer the request, or let it wait."""
        if type_of(request) == "kernel_info_request":
            if not self._placeholder.answer(request):
                self._placeholder.reply(request, plain_kernel_info())
            if not any(type_of(one) == "kernel_info_request" for one in self._messages):
                self._repeat(request)  # so that the next kernel's is known
            return
        answer = known_answer(request)
        if answer is not None:
            return self._placeholder.reply(request, answer)
        if is_own_code(request) and self._repeat(request):
            return self._placeholder.reply(request, EXECUTED)
        self._keep(request)
        if is_user_cell(request):
            self._placeholder.show_state("busy")

    def show(self, text: str) -> None:
        """Show in the first cell that waits why the cell waits."""
        first = next(iter(self.cells), None)
        if first is None:
            return self.hide()
        if id_of(first) != self._shown_in:
            self.hide()
        self._shown_in = id_of(first)
        self._display.show(text, first.parts[0])

    def tell(self, text: str) -> None:
        """Show this in the first cell that the kernel runs, to stay there."""
        self._notes.append(text)

    def hide(self) -> None:
        """Remove what `show` has shown."""
        self._display.clear()
        self._shown_in = ""

    def end(self) -> list[Message]:
        """The kernel can be used: return the requests for the kernel, in order."""
        if not self.active:
            return []
        self.active = False
        self.hide()
        self._dropped, self._answered = set(self._answered), {}
        notes, self._notes = self._notes, []
        for cell in self.cells[:1]:
            for text in notes:
                self._placeholder.show_text(cell, text)
        messages, self._messages = self._messages, []
        self._save()  # before they are sent: none is sent twice
        return messages

    def drops(self, message: Message) -> bool:
        """Whether front ends do not get this message of the kernel, as they have the answer."""
        return bool(self._dropped) and parent_id_of(message) in self._dropped

    def end_cells(self, name: str, reason: str) -> None:
        """No kernel is started for the cells that wait: they end with an error."""
        cells = self.cells
        self._remove(cells)
        self._placeholder.end_cells(cells, name, reason)

    def cancel_cells(self) -> None:
        """The user has interrupted the cells that wait."""
        self.end_cells("KeyboardInterrupt", "the kernel had not started yet; its start was cancelled")

    def discard(self) -> None:
        """The kernel is shut down or restarted: nobody waits for the user's cells any more."""
        self._remove(self.cells)

    def _remove(self, cells: list[Message]) -> None:
        self.hide()
        self._messages = [one for one in self._messages if one not in cells]
        self._save()
        if self.active:
            self._placeholder.show_state("idle")

    def _repeat(self, request: Message) -> bool:
        """Keep a request that the hub answers, so that the kernel executes it later. Return False if there is no
        room."""
        size = sum(map(len, request.parts))
        if len(self._answered) >= _MAX_REPEATED or sum(self._answered.values()) + size > _MAX_REPEATED_BYTES:
            return False
        self._answered[id_of(request)] = size
        self._keep(request)
        return True

    def _keep(self, request: Message) -> None:
        self._messages.append(request.unparsed())
        if self._delivered is not None:
            self._delivered.waiting.add(self._mark(request), request.encode())

    def _mark(self, request: Message) -> str:
        return _ANSWERED if id_of(request) in self._answered else _WAITS

    def _save(self) -> None:
        if self._delivered is not None:
            self._delivered.waiting.replace([(self._mark(one), one.encode()) for one in self._messages])

    def _recall(self) -> None:
        """Take over the requests that wait since another hub, which was killed."""
        for mark, data in self._delivered.waiting.read() if self._delivered is not None else []:
            with contextlib.suppress(MessageError):  # the file was damaged
                request = Message.decode(data)
                self._messages.append(request)
                if mark == _ANSWERED:
                    self._answered[id_of(request)] = len(data)


def known_answer(request: Message) -> dict[str, Any] | None:
    """Return the content of the reply of a kernel in which nothing was executed; None if only the kernel knows it."""
    kind = type_of(request)
    if request.channel is not Channel.SHELL:
        return None
    if kind == "history_request":
        return {"status": "ok", "history": []}
    if kind == "comm_info_request":
        return {"status": "ok", "comms": {}}
    if kind == "inspect_request":
        return {"status": "ok", "found": False, "data": {}, "metadata": {}}
    if kind == "complete_request":
        at = 0
        with contextlib.suppress(MessageError, TypeError, ValueError):
            at = int(request.content().get("cursor_pos") or 0)
        return {"status": "ok", "matches": [], "cursor_start": at, "cursor_end": at, "metadata": {}}
    if kind == "is_complete_request":
        return {"status": "unknown"}
    return None


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
