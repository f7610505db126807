"""Displays that a cell shows for a while and that are removed again, so that they are not saved with the notebook.

`OfflineNotice` is our own: the node cannot be reached. `TransientDisplays` are all that are shown: those of the keeper,
too, such as why a cell waits. The keeper removes them, but not from the notebooks of front ends that have left before.
This module knows neither link nor sockets.
"""

from __future__ import annotations

import asyncio
import enum
import re
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ...errors import GpuKernelError
from ...wire.compose import PASSING, TransientDisplay, is_user_cell, make
from ...wire.messages import Channel, Message, MessageError
from ...wire.runtime import Runtime
from ...wire.texts import with_program
from ..kernel_settings import KernelSettings

NOTICE_DELAY = 3.0
"""Seconds a cell waits until it shows the notice: most interruptions are shorter."""
_MAX_SHOWN = 100
"""Displays that are remembered, so that a kernel cannot fill our memory."""
_TAIL = 200
"""Bytes at the end of a display that contain its id, as keepers write it."""
_OFFLINE = "offline-"
"""In the display ids of the offline notice. Our extension of JupyterLab shows a notice of its own in its place."""
KEEPS_RUNNING = "the kernel keeps running. {cell}"
WAITS_FOR_HOST = "the kernel waits for GPUs on its other hosts, and there again when it is back."
STARTS = "the kernel starts when it is back. {cell}"
_ID = re.compile(f'"({PASSING}[^"]*)"'.encode())
_EMPTY = b'"text/plain": ""'


class _CellState(enum.Enum):
    """What becomes of the cell that shows the notice, as the notice says it."""

    DEFERRED = "This cell will run when the node is back."
    SENT = "This cell has been sent: it runs, or it will run when the node is back."
    RUNNING = "This cell keeps running."
    INTERRUPTED = "This cell will be interrupted when the node is back."


class OfflineNotice:
    """The notice that the node cannot be reached: since when, why, and what can be done.

    It is shown in the cell that was sent first and has not ended, or else in the first cell that waits.
    """

    def __init__(
        self,
        runtime: Runtime,
        send: Callable[[Message], None],
        node: str,
        settings: KernelSettings,
        has_output: Callable[[Message], bool],
    ) -> None:
        """`settings`: the kernel's; "program" is how the user runs our commands. `has_output(cell)`: whether the cell
        shows something besides the notice."""
        self._runtime = runtime
        self._program = settings.program
        self._name = settings.name
        self._has_output = has_output
        self._send = send
        self._node = node
        self._since = 0.0
        self._problem: GpuKernelError | None = None
        self._kernel = KEEPS_RUNNING
        self._cell: Message | None = None  # which shows the notice
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
        sent: Message | None = None,
        begun: bool = False,
        *,
        kernel: str = KEEPS_RUNNING,
    ) -> None:
        """The link is (still) down; the node has been silent for `silence` seconds.

        problem: Why it cannot reconnect, if that is known.
        sent: The user's cell that was sent first and has not ended.
        begun: Whether it is known to run.
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
        self._display.clear(beside_output=self._cell is not None and self._has_output(self._cell))
        self._cell, self._cell_state, self._timer = None, _CellState.DEFERRED, None

    def _show(self) -> None:
        if self._cell is not None:
            self._display.show(self._text(), self._cell.parts[0])

    def _send_message(
        self, channel: Channel, client: int, msg_type: str, content: dict[str, Any], parent: bytes
    ) -> None:
        self._send(Message(channel, client, make(self._runtime, msg_type, content, parent)))

    def _text(self) -> str:
        since = time.strftime("%H:%M:%S", time.localtime(self._since))
        kernel = self._kernel.format(cell=self._cell_state.value)
        text = f"{self._node} has been out of reach since {since}; {kernel}"
        return self.for_user(f"{text}\n{self._problem}") if self._problem is not None else text


class _Shown(NamedTuple):
    cell: str
    header: bytes
    of_keeper: bool


class TransientDisplays:
    """All transient displays that front ends show. `clear` removes the keeper's before the front ends leave."""

    def __init__(self, runtime: Runtime, send: Callable[[Message], None]) -> None:
        self._runtime = runtime
        self._send = send
        self._shown: dict[str, _Shown] = {}  # by display id
        self._inherited: list[str] = []

    @property
    def ids(self) -> list[str]:
        """The display ids of those that are shown."""
        return list(self._shown)

    def send(self, message: Message) -> None:
        """Send a message that the hub made."""
        self.observe(message, of_keeper=False)
        self._send(message)

    def observe(self, message: Message, of_keeper: bool = True) -> None:
        """Take note of a message to front ends."""
        if message.channel is not Channel.IOPUB:
            return
        header, content = message.parts[0], message.parts[3]
        try:
            found = _ID.search(content[-_TAIL:]) if b'display_data"' in header else None
            if found is not None:
                self._note(found[1].decode(), _Shown(message.parent_id, message.parts[1], of_keeper), content)
            elif self._shown and (b'"clear_output"' in header or b'"idle"' in content[:_TAIL]):
                ended = message.parent_id
                self._shown = {name: one for name, one in self._shown.items() if one.cell != ended}
        except MessageError:
            pass  # front ends cannot read it either

    def _note(self, display_id: str, shown: _Shown, content: bytes) -> None:
        self._shown.pop(display_id, None)
        if _EMPTY not in content:
            self._shown[display_id] = shown
        if len(self._shown) > _MAX_SHOWN:
            del self._shown[next(iter(self._shown))]

    def clear(self) -> None:
        """Remove those of the keeper."""
        for header in {one.cell: one.header for one in self._shown.values() if one.of_keeper}.values():
            self.send(Message(Channel.IOPUB, 0, make(self._runtime, "clear_output", {"wait": False}, header)))

    def inherit(self, ids: Sequence[str]) -> None:
        """VS Code shows these of a kernel that this one replaces, whose messages it does not receive any more."""
        self._inherited = list(ids)

    def cell_sent(self, cell: Message) -> None:
        """A front end has sent a request: if it is a cell of the user, the inherited displays become empty by its
        output, as VS Code finds them by their ids."""
        if not self._inherited or not is_user_cell(cell):
            return
        ids, self._inherited = self._inherited, []
        for one in ids:
            content = {"data": {"text/plain": ""}, "metadata": {}, "transient": {"display_id": one}}
            parts = make(self._runtime, "update_display_data", content, cell.parts[0])
            self.send(Message(Channel.IOPUB, 0, parts))
