"""The last cells: what was asked, and all that came of it, heard by somebody or not, within a bound.

For whoever returns, loads the page again or comes with another front end. A cell is known by the msg_id of its
request; what it shows is kept merged, as it would be shown at the end. No sockets here.
"""

from __future__ import annotations

import json
import time
from collections import OrderedDict
from itertools import islice
from typing import Any, Dict, List, Optional, Tuple

from ....wire.compose import error_content, make
from ....wire.fields import number, text
from ....wire.messages import Channel, Message, MessageError
from .backlog import in_words
from .memory_queue import MemoryQueue

CAP = 16 * 1024 * 1024
CELLS = 1000
SHOWN = ("stream", "display_data", "update_display_data", "execute_result", "error", "clear_output")
PAGE = 256 * 1024
"""Bytes in one answer, about; at least one output or cell. The keeper does nothing else while it makes one."""
OUTPUTS = 250
"""Outputs in one answer."""
LARGEST = 3 * 1024 * 1024
"""Bytes of one output in an answer: the wire's frames take 4 MiB."""
CODE = 128 * 1024
"""Characters of a cell's code."""
_ID = 200
_SUMMARY = 800
"""Bytes of a summary besides the code."""


class PastCell:
    """One cell: `status` is waiting, running, or what its reply said. `dropped`: some of its output was too much."""

    def __init__(self, request: Message) -> None:
        self.msg_id = request.msg_id
        self.code = str(request.content().get("code", ""))[:CODE]
        self.cell_id = _cell_id(request)
        self.status = "waiting"
        self.count: Optional[int] = None
        self.started = self.finished = 0.0
        self.shown = MemoryQueue()
        self.dropped = False

    @property
    def ended(self) -> bool:
        """Whether it was answered."""
        return self.status not in ("waiting", "running")

    def summary(self) -> Dict[str, Any]:
        """{msg_id, code, cell_id, status, execution_count, started, finished, outputs (how many), dropped}: JSON."""
        return {
            "msg_id": self.msg_id,
            "code": self.code,
            "cell_id": self.cell_id,
            "status": self.status,
            "execution_count": self.count,
            "started": self.started or None,
            "finished": self.finished or None,
            "outputs": len(self.shown),
            "dropped": self.dropped,
        }

    def page(self, first: int) -> Tuple[List[Dict[str, Any]], bool]:
        """Outputs {msg_type, content} from the `first` on, a PAGE or one, and whether these are the last."""
        outputs: List[Dict[str, Any]] = []
        size = 0
        for message in islice(self.shown.messages(first), OUTPUTS):
            content = message.content()
            length = max(len(message.parts[3]), len(json.dumps(content)))
            if length > LARGEST:
                content, self.dropped = _less(content, length), True
                length = PAGE
            if outputs and size + length > PAGE:
                break
            outputs.append({"msg_type": message.msg_type, "content": content})
            size += length
        return outputs, first + len(outputs) >= len(self.shown)


class History:
    """`asked` for every request, `take` for every message; `cells`, oldest first, by msg_id."""

    def __init__(self, cap: int = CAP) -> None:
        self.cells: OrderedDict[str, PastCell] = OrderedDict()
        self._cap = cap
        self._size = 0
        self._question: Optional[Message] = None

    def add_request(self, request: Message) -> None:
        """A user asks for a cell."""
        cell = PastCell(request)
        self.cells[cell.msg_id] = cell
        if len(self.cells) > CELLS:
            self._size -= self.cells.popitem(last=False)[1].shown.size

    def add_message(self, message: Message) -> None:
        """Add a message to front ends. One that belongs to no user's cell is passed over."""
        cell = self.cells.get(message.parent_id)
        if cell is None:
            return
        msg_type = message.msg_type
        if message.channel is Channel.IOPUB and msg_type in SHOWN:
            self._show(cell, message)
        elif message.channel is Channel.IOPUB and msg_type == "execute_input":
            cell.status, cell.started = "running", time.time()
            cell.count = message.content().get("execution_count")
        elif message.channel is Channel.SHELL and msg_type == "execute_reply":
            cell.status, cell.finished = str(message.content().get("status")), time.time()
            cell.count = message.content().get("execution_count") or cell.count
        elif message.channel is Channel.STDIN:
            self._question = message

    def add_input_reply(self, reply: Message) -> None:
        """A user's answer to input(), kept as JupyterLab shows it by itself. Passwords are not kept."""
        question, self._question = self._question, None
        if question is None:
            return
        asked = question.content()
        said = "········" if asked.get("password") else reply.content().get("value", "")
        content = {"name": "stdin", "text": f"{asked.get('prompt', '')} {said}\n"}
        cell = self.cells.get(question.parent_id)
        if cell is not None:
            self._show(cell, Message(Channel.IOPUB, 0, make("stream", content, question.parts[1])))

    def page_of(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """A page of the cells' summaries, from the number `first` on; with a `msg_id` of that cell's outputs."""
        first = number(request, "first", 0)
        if request.get("msg_id"):
            return {"cell": self.page(text(request, "msg_id"), first)}
        return self.summaries(first, text(request, "cell_id", ""))

    def summaries(self, first: int, cell_id: str = "") -> Dict[str, Any]:
        """{"cells": [summary], "last": bool}: from the `first` on, about a PAGE; with `cell_id` only that cell's."""
        cells = [cell for cell in self.cells.values() if not cell_id or cell.cell_id == cell_id][first:]
        page, size = [], 0
        for cell in cells:
            page.append(cell.summary())
            size += len(json.dumps(cell.code)) + _SUMMARY
            if size > PAGE:
                break
        return {"cells": page, "last": len(page) == len(cells)}

    def page(self, msg_id: str, first: int) -> Dict[str, Any]:
        """{…the cell's summary, "outputs": [{msg_type, content}], "last": bool}; {} if it is not there (any more)."""
        cell = self.cells.get(msg_id)
        if cell is None:
            return {}
        outputs, last = cell.page(first)
        return dict(cell.summary(), outputs=outputs, last=last)

    def _show(self, cell: PastCell, message: Message) -> None:
        before = cell.shown.size
        cell.shown.put(message)
        self._size += cell.shown.size - before
        if self._size > self._cap:
            self._relieve()

    def _relieve(self) -> None:
        """The oldest output goes first: the newest is what one comes back for."""
        for cell in self.cells.values():
            before = cell.shown.size
            while cell.shown and self._size - (before - cell.shown.size) > self._cap:
                cell.shown.drop()
                cell.dropped = True
            self._size -= before - cell.shown.size
            if self._size <= self._cap:
                return


def _less(content: Dict[str, Any], size: int) -> Dict[str, Any]:
    """In place of what no answer can hold."""
    try:
        return in_words(content, 10_000, size, "too much to show it again")
    except (KeyError, TypeError, ValueError):  # no display: the traceback of an error
        return error_content(str(content.get("ename")), "too much to show it again")


def _cell_id(request: Message) -> str:
    """The cell's id, where the front end sends it along, as JupyterLab and VS Code do."""
    try:
        return str(request.metadata().get("cellId", ""))[:_ID]
    except MessageError:
        return ""
