"""What a new front end asks while cells of the one who left still run: it waits behind them, here and not in the
kernel's queue, where an interrupt of theirs would take it along.

Code that the front end runs for itself (VS Code at its start) is answered at once all the same: VS Code lets its
user do nothing before that, interrupt included. Nobody hears of it when it runs. No sockets here.
"""

from __future__ import annotations

from typing import List, Set

from ...wire.answers import Answers
from ...wire.compose import user_cell
from ...wire.messages import Message


class DeferredCells:
    """`wait` takes an execute_request, `take` gives back all; `concerns` is asked for what the kernel says."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._waiting: List[Message] = []
        self._answered: Set[str] = set()

    @property
    def unanswered(self) -> List[Message]:
        """Those that somebody waits for."""
        return [
            request for request in self._waiting if not self.concerns(str(request.header().get("msg_id")))
        ]

    def wait(self, request: Message) -> None:
        """It is to run later."""
        self._waiting.append(request.unparsed())
        if not user_cell(request):
            self._answer(request)

    def take(self) -> List[Message]:
        """Their turn has come."""
        waiting, self._waiting = self._waiting, []
        return waiting

    def concerns(self, parent: str) -> bool:
        """Whether a message with this parent says what was said already."""
        return parent in self._answered

    def _answer(self, request: Message) -> None:
        reply = {
            "status": "ok",
            "execution_count": self._answers.count,
            "user_expressions": {},
            "payload": [],
        }
        self._answers.reply(request, reply)
        self._answered.add(str(request.header().get("msg_id")))
