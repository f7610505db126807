"""The notice in a cell that the node cannot be reached: since when, why, and what becomes of the cell.

This module knows neither link nor sockets.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from ....errors import GpuKernelError
from ....wire.kernel_messages.compose import TransientDisplay, composer
from ....wire.messages import Message
from ....wire.runtime import Runtime
from ....wire.texts import with_program
from ...kernel_settings import KernelSettings
from .pending_request import PendingRequest
from .request_table import RequestTable

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


class OfflineNotice:
    """The notice of one kernel, in the user's cell that `RequestTable.first_cell` names."""

    def __init__(
        self,
        runtime: Runtime,
        send: Callable[[Message], None],
        node: str,
        settings: KernelSettings,
        table: RequestTable,
    ) -> None:
        """`send(message)` sends a message to front ends. `settings`: the settings of the kernel."""
        self._runtime = runtime
        self._program = settings.program
        self._name = settings.name
        self._table = table
        self._node = node
        self.since = 0.0
        """Since when the link is down, in seconds since 1970; 0 if it is not."""
        self._problem: GpuKernelError | None = None
        self._kernel = KEEPS_RUNNING
        self._cell: PendingRequest | None = None  # which shows the notice, or is about to show it
        self._timer: asyncio.TimerHandle | None = None
        self._display = TransientDisplay(runtime, composer(runtime, send), _OFFLINE)

    def set_node(self, node: str) -> None:
        """The kernel is on another node now."""
        self._node = node

    def link_down(
        self, problem: GpuKernelError | None, silence: float = 0.0, kernel: str = KEEPS_RUNNING
    ) -> None:
        """The link is (still) down; the node has been silent for `silence` seconds.

        problem: Why the link cannot reconnect, if that is known.
        kernel: What the kernel does: KEEPS_RUNNING or STARTS.
        """
        self._problem = problem
        self._kernel = kernel
        self.since = self.since or self._runtime.time() - silence
        self.update(silence)

    def link_up(self) -> None:
        """The link is up, or nobody waits for the link any more: remove the notice."""
        self.since = 0.0
        self.update()

    def update(self, silence: float = 0.0) -> None:
        """The table may have changed. A cell shows the notice when it has waited for NOTICE_DELAY, less `silence`."""
        cell = self._table.first_cell if self.since else None
        if cell is self._cell:
            return self._show(cell) if self._display.is_shown else None
        if self._timer is not None:  # of another cell, or of an earlier outage
            self._timer.cancel()
        self._display.clear(has_output=self._cell is not None and self._cell.has_output)
        self._cell = cell
        if cell is not None:
            delay = max(0.0, NOTICE_DELAY - silence)
            self._timer = asyncio.get_running_loop().call_later(delay, self._show, cell)

    def for_user(self, text: str) -> str:
        """Return the text with our commands as this user can run them."""
        text = text.replace(" login NAME", f" login {self._name}") if self._name else text
        return with_program(text, self._program)

    def _show(self, cell: PendingRequest | None) -> None:
        if cell is not None:
            self._display.show(self._text(cell), cell.message.parts[0])

    def _text(self, cell: PendingRequest) -> str:
        since = time.strftime("%H:%M:%S", time.localtime(self.since))
        kernel = self._kernel.format(cell=self._cell_text(cell))
        text = f"{self._node} has been out of reach since {since}; {kernel}"
        return self.for_user(f"{text}\n{self._problem}") if self._problem is not None else text

    def _cell_text(self, cell: PendingRequest) -> str:
        if cell.waits:
            return _WAITS
        if self._table.interrupted:
            return _INTERRUPTED
        return _RUNS if cell.state == "busy" else _SENT
