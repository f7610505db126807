"""The greeting: a text about the kernel in a front end's first cell, shown until that cell has output of its own.

The text is for the user who runs the cell, not for the saved notebook. `clear_output` removes it, and would remove real
output as well. Therefore the cell's first output waits until there was time to read the text.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from ...wire.compose import TransientDisplay, make
from ...wire.messages import Channel, Lane, Message
from ...wire.runtime import Runtime
from ..loop import Timer
from ..paths import is_kernel_id
from .reattach import Reattach, describe

READING_TIME = 2.0
"""Seconds that the text is shown at least after a front end has returned to a kernel with all its variables."""
MAX_WAITING = 256 * 1024
"""Bytes of output that wait. With more, the text is removed at once."""
ToHub = Callable[[Lane, Message], None]
Later = Callable[[float, Callable[[], None]], Timer]


class GreetingText:
    """What the next user cell shows, once, after a front end has returned or a kernel was replaced."""

    def __init__(self, reattach: Reattach) -> None:
        self._reattach = reattach
        self._returned = False
        self._other_kernels: Sequence[str] = ()
        self._previous_kernel = ""

    def front_end_returned(self, other_kernels: Sequence[str]) -> None:
        """Another front end attaches. `other_kernels`: ids of older kernels that its notebook has left."""
        self._returned, self._previous_kernel = True, ""
        self._other_kernels = list(filter(is_kernel_id, other_kernels))

    def kernel_replaced(self, previous_kernel: str) -> None:
        """This is a new kernel: its notebook was restarted, and `previous_kernel` has ended."""
        self._previous_kernel = previous_kernel

    def take(self, get_facts: Callable[[], Dict[str, Any]]) -> Tuple[str, float]:
        """Return the text and how many seconds it should be shown; ("", 0.0) if there is none.

        get_facts: Return the kernel's status, and "program": how the user runs our commands.
        """
        if not self._previous_kernel and not self._returned:
            return "", 0.0
        facts = get_facts()
        if self._previous_kernel:
            seconds, lines = 0.0, [self._about_new_kernel(facts)]
        else:
            seconds, lines = READING_TIME, self._about_return(facts)
        self._returned, self._other_kernels, self._previous_kernel = False, (), ""
        return "\n".join(lines), seconds

    def _about_new_kernel(self, facts: Dict[str, Any]) -> str:
        gpus = f" with {', '.join(facts['gpu_names'])}" if facts["gpu_names"] else ""
        before = self._previous_kernel
        return f"This is a new kernel on {facts['node']}{gpus}; the previous one, {before}, has ended."

    def _about_return(self, facts: Dict[str, Any]) -> List[str]:
        lines = [f"Back on kernel {facts['id']} on {facts['node']}; its variables are as you left them."]
        for other in self._other_kernels:
            stop = f"{facts['program']} stop {other}"
            lines.append(f"Another kernel of this notebook is still running: {other}. To end it, run: {stop}")
        cells = self._reattach.missed
        lines += map(describe, cells)
        if any(not (self._reattach.page_fills_cells and cell.cell_id) for cell in cells):
            lines.append("Run %gpu missed to see their output.")
        return lines


class Greeting:
    """Shows the text in a cell, and holds messages to the hub back meanwhile."""

    def __init__(self, runtime: Runtime, to_hub: ToHub, later: Later) -> None:
        self._runtime = runtime
        self._to_hub = to_hub
        self._later = later
        self._display = TransientDisplay(runtime, self._send)
        self._cell = ""  # the msg_id of the cell with the text
        self._until = 0.0
        self._waiting: List[Tuple[Lane, Message]] = []
        self._size = 0
        self._timer: Optional[Timer] = None

    def show(self, request: Message, text: str, seconds: float) -> None:
        """Show the text in the cell of this request, for so many seconds at least."""
        self.end()
        self._cell = request.msg_id
        self._until = self._runtime.monotonic() + seconds
        self._display.show(text, request.parts[0])

    def passes(self, lane: Lane, message: Message) -> bool:
        """Return whether this message may be sent to the hub now; if not, it is sent later."""
        if not self._cell or (lane is not Lane.ORDERED and message.channel is not Channel.STDIN):
            return True
        if not self._waiting and not (message.parent_id == self._cell and _ends_greeting(message)):
            return True
        self._waiting.append((lane, message.unparsed()))
        self._size += sum(map(len, message.parts))
        left = self._until - self._runtime.monotonic()
        if left <= 0 or self._size > MAX_WAITING or message.channel is Channel.STDIN:  # input() must not wait
            self.end()
        elif self._timer is None:
            self._timer = self._later(left, self.end)
        return False

    def end(self) -> None:
        """Remove the text, and send what waits."""
        self._display.clear()
        for lane, message in self.withdraw():
            self._to_hub(lane, message)

    def withdraw(self) -> List[Tuple[Lane, Message]]:
        """Return what waits, which is no longer kept: the front end that shows the text has left."""
        waiting, self._waiting = self._waiting, []
        self._cell, self._size = "", 0
        self._display.forget()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        return waiting

    def _send(
        self, channel: Channel, client: int, msg_type: str, content: Dict[str, Any], parent: bytes
    ) -> None:
        self._to_hub(Lane.ORDERED, Message(channel, client, make(self._runtime, msg_type, content, parent)))


def _ends_greeting(message: Message) -> bool:
    """Return whether this is a cell's output, its question to the user, or its end."""
    if message.msg_type == "status":
        return message.content().get("execution_state") == "idle"
    return message.msg_type != "execute_input"
