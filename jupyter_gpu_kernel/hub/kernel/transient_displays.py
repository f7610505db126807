"""Displays that a cell shows for a while and that are removed again, so that they are not saved with the notebook.

`OfflineNotice` is our own: the node cannot be reached. `TransientDisplays` are those of the keeper, such as why a cell
waits. The keeper removes them, but not from the notebooks of front ends that have left before. This module knows
neither link nor sockets.
"""

from __future__ import annotations

import asyncio
import enum
import time
from collections.abc import Callable
from typing import Any

from ...errors import GpuKernelError
from ...wire.compose import PASSING, TransientDisplay, make
from ...wire.messages import Channel, Message, MessageError
from ...wire.runtime import Runtime
from ...wire.texts import with_program

NOTICE_DELAY = 3.0
"""Seconds a cell waits until it shows the notice: most interruptions are shorter."""
_MAX_CELLS = 100
"""Cells with displays that are remembered, so that a kernel cannot fill our memory."""
_TAIL = 200
"""Bytes at the end of a display that contain its id, as keepers write it."""
_OFFLINE = "offline-"
"""In the display ids of the offline notice. Our extension of JupyterLab shows a notice of its own in its place."""
_MARK = f'"{PASSING}'.encode()


class _CellState(enum.Enum):
    """What becomes of the cell that shows the notice, as the notice says it."""

    DEFERRED = "This cell will run when the node is back."
    RUNNING = "This cell keeps running."
    INTERRUPTED = "This cell will be interrupted when the node is back."


class OfflineNotice:
    """The notice that the node cannot be reached: since when, why, and what can be done.

    It is shown in the cell that is running, if that has no output (the notice could not be removed from other output),
    or else in the first cell that waits.
    """

    def __init__(
        self, runtime: Runtime, send: Callable[[Message], None], node: str, program: str = ""
    ) -> None:
        """`program`: how the user runs our commands, if that is known."""
        self._runtime = runtime
        self._program = program
        self._send = send
        self._node = node
        self._since = 0.0
        self._problem: GpuKernelError | None = None
        self._waits_for_host = False
        self._cell: bytes | None = None  # the header of the cell that shows the notice
        self._cell_state = _CellState.DEFERRED
        self._display = TransientDisplay(runtime, self._send_message, _OFFLINE)
        self._timer: asyncio.TimerHandle | None = None

    @property
    def since(self) -> float:
        """Since when the link is down, in seconds since 1970; 0 if it is not."""
        return self._since

    def set_node(self, node: str) -> None:
        """The kernel is on another node now."""
        self._node = node

    def link_down(
        self,
        problem: GpuKernelError | None,
        silence: float = 0.0,
        running: Message | None = None,
        *,
        waits_for_host: bool = False,
    ) -> None:
        """The link is (still) down; the node has been silent for `silence` seconds.

        problem: Why it cannot reconnect, if that is known.
        running: The cell that is running, if it has no output.
        waits_for_host: Whether the kernel waits for GPUs on several hosts.
        """
        self._problem = problem
        self._waits_for_host = waits_for_host
        if not self._since:
            self._since = self._runtime.time() - silence
            if running is not None:
                self._schedule(running, _CellState.RUNNING, max(0.0, NOTICE_DELAY - silence))
        elif self._display.is_shown:
            self._show()

    def link_up(self) -> None:
        """The link is up, or is not waited for any more: remove the notice."""
        self._remove()
        self._since = 0.0

    def cell_deferred(self, cell: Message) -> None:
        """A user's cell has to wait if the link is down."""
        if self._since and self._cell is None:
            self._schedule(cell, _CellState.DEFERRED, NOTICE_DELAY)

    def interrupted(self, canceled: list[Message]) -> None:
        """The user has interrupted the kernel, which canceled these deferred cells. A running cell is interrupted when
        the link is up."""
        if any(cell.parts[0] == self._cell for cell in canceled):
            self._remove()
        elif self._cell_state is not _CellState.DEFERRED:
            self._cell_state = _CellState.INTERRUPTED
            if self._display.is_shown:
                self._show()

    def for_user(self, text: str) -> str:
        """Return the text with our commands as this user can run them."""
        return with_program(text, self._program)

    def _schedule(self, cell: Message, state: _CellState, delay: float) -> None:
        self._cell, self._cell_state = cell.parts[0], state
        self._timer = asyncio.get_running_loop().call_later(delay, self._show)

    def _remove(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._display.clear()
        self._cell, self._cell_state, self._timer = None, _CellState.DEFERRED, None

    def _show(self) -> None:
        self._display.show(self._text(), self._cell or b"{}")

    def _send_message(
        self, channel: Channel, client: int, msg_type: str, content: dict[str, Any], parent: bytes
    ) -> None:
        self._send(Message(channel, client, make(self._runtime, msg_type, content, parent)))

    def _text(self) -> str:
        since = time.strftime("%H:%M:%S", time.localtime(self._since))
        cell = self._cell_state.value
        kernel = f"the kernel keeps running. {cell}"
        if self._waits_for_host:
            kernel = "the kernel waits for GPUs on its other hosts, and there again when it is back."
        text = f"{self._node} has been out of reach since {since}; {kernel}"
        return self.for_user(f"{text}\n{self._problem}") if self._problem is not None else text


class TransientDisplays:
    """The keeper's displays for the moment: `clear` removes them before the front ends leave."""

    def __init__(self, runtime: Runtime, send: Callable[[Message], None]) -> None:
        self._runtime = runtime
        self._send = send
        self._cells: dict[str, bytes] = {}  # msg_id and header of the cells that show one

    def observe(self, message: Message) -> None:
        """Take note of a message of the kernel to a front end."""
        if message.channel is not Channel.IOPUB:
            return
        header = message.parts[0]
        try:
            if b'"display_data"' in header and _MARK in message.parts[3][-_TAIL:]:
                self._cells[message.parent_id] = message.parts[1]
                if len(self._cells) > _MAX_CELLS:
                    self._cells.pop(next(iter(self._cells)))
            elif self._cells and (b'"clear_output"' in header or b'"idle"' in message.parts[3][:_TAIL]):
                self._cells.pop(message.parent_id, None)
        except MessageError:
            pass  # front ends cannot read it either

    def clear(self) -> None:
        """Remove all of them."""
        cells, self._cells = self._cells, {}
        for header in cells.values():
            parts = make(self._runtime, "clear_output", {"wait": False}, header)
            self._send(Message(Channel.IOPUB, 0, parts))
