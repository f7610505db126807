"""The notice in a cell that the node cannot be reached: since when, why, and what becomes of the cell.

This module knows neither link nor sockets.
"""

from __future__ import annotations

import asyncio
import enum
import time
from collections.abc import Callable

from ....errors import GpuKernelError
from ....wire.compose import TransientDisplay, composer
from ....wire.messages import Message
from ....wire.runtime import Runtime
from ....wire.texts import with_program
from ...kernel_settings import KernelSettings

NOTICE_DELAY = 3.0
"""Seconds a cell waits until it shows the notice: most interruptions are shorter."""
_OFFLINE = "offline-"
"""Part of the display ids of the notice. Our extension of JupyterLab replaces these displays by a notice of its own."""
KEEPS_RUNNING = "the kernel keeps running. {cell}"
WAITS_FOR_HOST = "the kernel waits for GPUs on its other hosts, and there again when it is back."
STARTS = "the kernel starts when it is back. {cell}"


class _CellState(enum.Enum):
    """What becomes of the cell that shows the notice, in the words of the notice."""

    DEFERRED = "This cell will run when the node is back."
    SENT = "This cell has been sent: it runs, or it will run when the node is back."
    RUNNING = "This cell keeps running."
    INTERRUPTED = "This cell will be interrupted when the node is back."


class OfflineNotice:
    """The notice of one kernel. Of the cells that were sent and have not ended, the first one shows the notice; if
    there is none, the first cell that waits."""

    def __init__(
        self,
        runtime: Runtime,
        send: Callable[[Message], None],
        node: str,
        settings: KernelSettings,
        has_output: Callable[[Message], bool],
    ) -> None:
        """`send(message)` sends a message to front ends. `settings`: the settings of the kernel. `has_output(cell)`:
        whether the cell shows something besides the notice."""
        self._runtime = runtime
        self._program = settings.program
        self._name = settings.name
        self._has_output = has_output
        self._node = node
        self._since = 0.0
        self._problem: GpuKernelError | None = None
        self._kernel = KEEPS_RUNNING
        self._cell: Message | None = None  # which shows the notice
        self._cell_state = _CellState.DEFERRED
        self._display = TransientDisplay(runtime, composer(runtime, send), _OFFLINE)
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
        sent: Message | None = None,
        begun: bool = False,
        *,
        kernel: str = KEEPS_RUNNING,
    ) -> None:
        """The link is (still) down; the node has been silent for `silence` seconds.

        problem: Why the link cannot reconnect, if that is known.
        sent: The user's cell that was sent first and has not ended.
        begun: Whether that cell is known to run.
        kernel: What the kernel does: KEEPS_RUNNING, WAITS_FOR_HOST or STARTS.
        """
        self._problem = problem
        self._kernel = kernel
        if not self._since:
            self._since = self._runtime.time() - silence
            if sent is not None:
                state = _CellState.RUNNING if begun else _CellState.SENT
                self._schedule(sent, state, max(0.0, NOTICE_DELAY - silence))
        elif self._display.is_shown:
            self._show()

    def link_up(self) -> None:
        """The link is up, or nobody waits for the link any more: remove the notice."""
        self._remove()
        self._since = 0.0

    def cell_deferred(self, cell: Message) -> None:
        """A cell of the user waits at the hub. If the link is down, this cell may show the notice."""
        if self._since and self._cell is None:
            self._schedule(cell, _CellState.DEFERRED, NOTICE_DELAY)

    def interrupted(self, canceled: list[Message]) -> None:
        """The user has interrupted the kernel, which canceled these deferred cells. A running cell is interrupted when
        the link is up."""
        if self._cell in canceled:
            self._remove()
        elif self._cell_state is not _CellState.DEFERRED:
            self._cell_state = _CellState.INTERRUPTED
            if self._display.is_shown:
                self._show()

    def for_user(self, text: str) -> str:
        """Return the text with our commands as this user can run them."""
        text = text.replace(" login NAME", f" login {self._name}") if self._name else text
        return with_program(text, self._program)

    def _schedule(self, cell: Message, state: _CellState, delay: float) -> None:
        self._cell, self._cell_state = cell.unparsed(), state
        self._timer = asyncio.get_running_loop().call_later(delay, self._show)

    def _remove(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._display.clear(has_output=self._cell is not None and self._has_output(self._cell))
        self._cell, self._cell_state, self._timer = None, _CellState.DEFERRED, None

    def _show(self) -> None:
        if self._cell is not None:
            self._display.show(self._text(), self._cell.parts[0])

    def _text(self) -> str:
        since = time.strftime("%H:%M:%S", time.localtime(self._since))
        kernel = self._kernel.format(cell=self._cell_state.value)
        text = f"{self._node} has been out of reach since {since}; {kernel}"
        return self.for_user(f"{text}\n{self._problem}") if self._problem is not None else text
