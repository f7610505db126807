"""Displays that a cell shows for a while, such as why the cell waits, and that notebooks are not to keep; and one of
them, the notice that the node cannot be reached: since when, why, and what becomes of the cell.

The keeper removes its displays, but not from the notebooks of front ends that have left before. This module knows
neither link nor sockets.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from ....errors import GpuKernelError
from ....wire.kernel_messages.compose import PASSING, TransientDisplay, is_user_cell, on_iopub
from ....wire.messages import Channel, Message, MessageError
from ....wire.runtime import Runtime
from ....wire.texts import with_program
from ...kernel_settings import KernelSettings
from .pending_request import PendingRequest
from .request_table import RequestTable

_MAX_SHOWN = 100
"""Displays that are remembered, so that a kernel cannot fill our memory."""
_TAIL = 200
"""Bytes at the end of a display that contain its id, as keepers write it."""
_ID = re.compile(f'"({PASSING}[^"]*)"'.encode())
_EMPTY = b'"text/plain": ""'
NOTICE_DELAY = 3.0
"""Seconds a cell waits until it shows the notice: most interruptions are shorter."""
_OFFLINE = "offline-"
"""Part of the display ids of the notice. Our extension of JupyterLab replaces these displays by a notice of its own."""
KEEPS_RUNNING = "the kernel keeps running. {cell}"
STARTS = "the kernel starts when it is back. {cell}"
_WAITS = "This cell will run when the node is back."
_SENT = "This cell has been sent: it runs, or it will run when the node is back."
_RUNS = "This cell keeps running."
_INTERRUPTED = "This cell will be interrupted when the node is back."


class _ShownDisplay(NamedTuple):
    """A display that front ends show. `cell`: the key of the request; `header`: the header of that request;
    `of_keeper`: whether the keeper has sent the display, and not the hub."""

    cell: str
    header: bytes
    of_keeper: bool


class TransientDisplays:
    """All transient displays that front ends show: `observe` gets the messages of the keeper, and those by which the
    hub shows or removes a display."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._shown: dict[str, _ShownDisplay] = {}  # by display id
        self._inherited: list[str] = []

    def __repr__(self) -> str:
        return f"<TransientDisplays {self.ids}>"

    @property
    def ids(self) -> list[str]:
        """The ids of the displays that are shown."""
        return list(self._shown)

    def observe(self, message: Message, *, of_keeper: bool = True) -> None:
        """Take note of a message to front ends. `of_keeper`: whether the keeper has sent the message."""
        if message.channel is not Channel.IOPUB:
            return
        header, content = message.parts[0], message.parts[3]
        try:
            found = _ID.search(content[-_TAIL:]) if b'display_data"' in header else None
            if found is not None:
                self._note(
                    found[1].decode(), _ShownDisplay(message.parent_key, message.parts[1], of_keeper), content
                )
            elif self._shown and (b'"clear_output"' in header or b'"idle"' in content[:_TAIL]):
                ended = message.parent_key
                self._shown = {name: one for name, one in self._shown.items() if one.cell != ended}
        except MessageError:
            pass  # front ends cannot read it either

    def _note(self, display_id: str, shown: _ShownDisplay, content: bytes) -> None:
        self._shown.pop(display_id, None)
        if _EMPTY not in content:
            self._shown[display_id] = shown
        if len(self._shown) > _MAX_SHOWN:
            del self._shown[next(iter(self._shown))]

    def clear(self) -> list[Message]:
        """Remove the displays of the keeper from the notebooks, before the front ends leave."""
        headers = {one.cell: one.header for one in self._shown.values() if one.of_keeper}.values()
        return [on_iopub(self._runtime, "clear_output", {"wait": False}, header) for header in headers]

    def inherit(self, ids: Sequence[str]) -> None:
        """The notebook may still show these displays, from the session before. VS Code does not receive messages for
        that session any more."""
        self._inherited = list(ids)

    def cell_sent(self, cell: Message) -> list[Message]:
        """A front end has sent a request. If the request is a cell of the user, make the inherited displays empty by
        output of this cell: VS Code finds displays by their ids."""
        if not self._inherited or not is_user_cell(cell):
            return []
        ids, self._inherited = self._inherited, []
        empty: dict[str, Any] = {"data": {"text/plain": ""}, "metadata": {}}
        contents = [{**empty, "transient": {"display_id": one}} for one in ids]
        return [on_iopub(self._runtime, "update_display_data", one, cell.parts[0]) for one in contents]


class OfflineNotice:
    """The notice of one kernel, in the user's cell that `RequestTable.first_cell` names. The methods return the
    messages by which front ends show or remove the notice."""

    def __init__(self, runtime: Runtime, node: str, settings: KernelSettings, table: RequestTable) -> None:
        """`settings`: the settings of the kernel."""
        self._runtime = runtime
        self._program = settings.program
        self._name = settings.name
        self._table = table
        self._node = node
        self.since = 0.0
        """Since when the link is down, in seconds since 1970; 0 if it is not."""
        self._since_text = ""
        self._problem: GpuKernelError | None = None
        self._kernel = KEEPS_RUNNING
        self._cell: PendingRequest | None = None  # which shows the notice, or is about to show it
        self.show_at: float | None = None
        """When `show` is to be called, by `Runtime.monotonic`."""
        self._display = TransientDisplay(runtime, _OFFLINE)

    def __repr__(self) -> str:
        return f"<OfflineNotice since={self.since} in={self._cell and self._cell.key!r}>"

    def set_node(self, node: str) -> None:
        """The kernel is on another node now."""
        self._node = node

    def link_down(
        self, problem: GpuKernelError | None, silence: float, since: str, kernel: str
    ) -> list[Message]:
        """The link is (still) down: see `Detached`. `kernel`: what the kernel does, KEEPS_RUNNING or STARTS."""
        self._problem, self._kernel = problem, kernel
        if not self.since:
            self.since, self._since_text = self._runtime.time() - silence, since
        return self.update(silence)

    def link_up(self) -> list[Message]:
        """The link is up, or nobody waits for the link any more: remove the notice."""
        self.since = 0.0
        return self.update()

    def update(self, silence: float = 0.0) -> list[Message]:
        """The table may have changed. A cell shows the notice when it has waited for NOTICE_DELAY, less `silence`."""
        cell = self._table.first_cell if self.since else None
        if cell is self._cell:
            return self.show() if self._display.is_shown else []
        messages = self._display.clear(has_output=self._cell is not None and self._cell.has_output)
        self._cell = cell
        delay = max(0.0, NOTICE_DELAY - silence)
        self.show_at = None if cell is None else self._runtime.monotonic() + delay
        return messages

    def show(self) -> list[Message]:
        """Show the notice, or what has changed of it, as the cell has waited long enough."""
        self.show_at, cell = None, self._cell
        return [] if cell is None else self._display.show(self._text(cell), cell.message.parts[0])

    def for_user(self, text: str) -> str:
        """Return the text with our commands as this user can run them."""
        text = text.replace(" login NAME", f" login {self._name}") if self._name else text
        return with_program(text, self._program)

    def _text(self, cell: PendingRequest) -> str:
        kernel = self._kernel.format(cell=self._cell_text(cell))
        text = f"{self._node} has been out of reach since {self._since_text}; {kernel}"
        return self.for_user(f"{text}\n{self._problem}") if self._problem is not None else text

    def _cell_text(self, cell: PendingRequest) -> str:
        if cell.waits:
            return _WAITS
        if self._table.interrupted:
            return _INTERRUPTED
        return _RUNS if cell.state == "busy" else _SENT
