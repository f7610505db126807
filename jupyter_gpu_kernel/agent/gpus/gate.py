"""The gate: user cells wait here, in line, until the kernel has its GPUs. Everything else passes.

The first held cell shows what it waits for. This file makes messages; it knows neither sockets nor GPUs.
"""

from __future__ import annotations

from collections import deque
from typing import Callable, Deque, List

from ...wire.answers import Answers
from ...wire.compose import Send, TransientDisplay, is_user_cell
from ...wire.messages import Message


class Gate:
    """`passes` is asked for every execute_request; `open` once, `give_up` at an interrupt."""

    def __init__(
        self, send: Send, answers: Answers, release: Callable[[Message], None], *, is_open: bool
    ) -> None:
        self.is_open = is_open
        self._answers = answers
        self._release = release
        self._held: Deque[Message] = deque()
        self._display = TransientDisplay(send)
        self._text = ""
        self._shown = False

    @property
    def holding(self) -> bool:
        """Whether a cell waits."""
        return bool(self._held)

    @property
    def held(self) -> List[Message]:
        """The cells that wait."""
        return list(self._held)

    def close(self) -> None:
        """The GPUs went back: the next user cell waits again."""
        self.is_open = False

    def passes(self, message: Message) -> bool:
        """False: the gate keeps the message. A user cell opens nothing by itself: who asked looks at
        `holding`."""
        if self.is_open or not is_user_cell(message):
            return True
        self._held.append(message.unparsed())
        if len(self._held) == 1:
            self._answers.begin(message)
        return False

    def show(self, text: str) -> None:
        """What the first held cell waits for; displayed once it has waited long enough: see `reveal`."""
        if text != self._text:
            self._text = text
            if self._shown:
                self._display_text()

    def reveal(self) -> None:
        """The first held cell has waited so long that its user should see why."""
        if self._held and not self._shown:
            self._shown = True
            self._display_text()

    def open(self) -> None:
        """The kernel has its GPUs: held cells go, in order."""
        self.is_open = True
        if self._held:
            self._hide()
        self._text = ""
        while self._held:
            self._release(self._held.popleft())

    def give_up(self, name: str, reason: str) -> None:
        """The first held cell ends with an error; those behind it are aborted if it asked for that."""
        if not self._held:
            return
        first = self._held.popleft()
        self._hide()
        self._answers.fail(first, name, reason)
        if first.content().get("stop_on_error", True):
            while self._held:
                self._answers.abort(self._held.popleft())
        if self._held:
            self._answers.begin(self._held[0])
            self.reveal()

    def _display_text(self) -> None:
        if self._text:
            self._display.show(self._text, self._held[0].parts[0])

    def _hide(self) -> None:
        self._shown = False
        self._display.clear()
