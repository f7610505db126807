"""The last cells in the log with their output, delivered or not, up to a limit.

They are for front ends that return, for pages that are loaded again, and for other front ends. A cell is identified by
the msg_id of its request. Its output is kept merged, as it would be shown in the end. This module knows no sockets.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from itertools import islice
from typing import Any, Collection, Dict, List, Optional, Tuple

from ...wire.fields import number, text
from ...wire.kernel_messages.compose import PASSING, dump, error_content
from ...wire.messages import Channel, Message, MessageError, cell_key
from .waiting import WaitingMessages

CAP = 16 * 1024 * 1024
"""The size of all output in bytes."""
CELLS = 1000
"""The number of cells."""
SHOWN = ("stream", "display_data", "update_display_data", "execute_result", "error", "clear_output")
PAGE = 256 * 1024
"""The approximate size of one page in bytes. The keeper does nothing else while it creates one."""
OUTPUTS = 250
"""The number of outputs in one page."""
LARGEST = 3 * 1024 * 1024
"""The size of one output in a page, in bytes: the wire's frames take 4 MiB."""
CODE = 128 * 1024
"""The length of a cell's code in characters."""
HIDDEN = "········"
"""What is shown in place of an answer that is not kept."""
_ID = 200
_SUMMARY = 800
"""The size of a summary besides the code, in bytes."""
_LINE = 200
"""The length of a text about a cell in characters."""


class LoggedCell:
    """One user cell and its output.

    status: waiting, running, or the status of the cell's reply.
    dropped: Whether a part of the cell's output was dropped.
    front_end_left: Whether the front end that ran the cell has left the kernel.
    missed: Whether a front end that has left did not get everything about the cell.
    session: The Jupyter session of the client that ran the cell.
    """

    def __init__(self, request: Message) -> None:
        self.msg_id, self.key = request.msg_id, request.key
        self.code = str(request.content().get("code", ""))[:CODE]
        self.cell_id = _cell_id(request)
        self.asks: Optional[str] = None
        """The prompt of its input(), as long as that has no answer."""
        self.session = str(request.header().get("session", ""))[:_ID]
        self.front_end_left = self.missed = False
        self.status = "waiting"
        self.error = ""
        """The exception that ended it: "ValueError: no such layer"."""
        self.count: Optional[int] = None
        self.started = self.finished = 0.0
        self.shown = WaitingMessages()
        self.dropped = False

    @property
    def ended(self) -> bool:
        """Whether the cell has its reply."""
        return self.status not in ("waiting", "running")

    def summary(self) -> Dict[str, Any]:
        """Return the cell without its outputs, of which only the number is given, as a JSON object."""
        return {
            "msg_id": self.msg_id,
            "code": self.code,
            "cell_id": self.cell_id,
            "session": self.session,
            "left": self.front_end_left,
            "status": self.status,
            "execution_count": self.count,
            "started": self.started or None,
            "finished": self.finished or None,
            "outputs": len(self.shown),
            "dropped": self.dropped,
            "asks": None if self.ended else self.asks,
        }

    def brief(self) -> Dict[str, Any]:
        """Return how the cell ended, as a JSON object of a bounded size."""
        known = self.summary()
        same = ("msg_id", "status", "execution_count", "started", "finished")
        first_line = (self.code.strip().splitlines() or [""])[0][:_LINE]
        return {**{key: known[key] for key in same}, "code": first_line, "error": self.error}

    def end(self, reply: Dict[str, Any], now: float) -> None:
        """The cell has ended with a reply that has this content."""
        self.status, self.finished = str(reply.get("status")), now
        self.count = reply.get("execution_count") or self.count
        if self.status == "error":
            self.error = f"{reply.get('ename')}: {reply.get('evalue') or ''}".rstrip(": ")[:_LINE]

    def page(self, first: int) -> Tuple[List[Dict[str, Any]], bool]:
        """Return outputs {msg_type, content} from the `first` on, a PAGE or one, and whether they are the last."""
        outputs: List[Dict[str, Any]] = []
        size = 0
        for message in islice(self.shown.messages(first), OUTPUTS):
            content = message.content()
            length = max(len(message.parts[3]), len(json.dumps(content)))
            if length > LARGEST:
                content, self.dropped = _reduced(content, length), True
                length = PAGE
            if outputs and size + length > PAGE:
                break
            outputs.append({"msg_type": message.msg_type, "content": content})
            size += length
        return outputs, first + len(outputs) >= len(self.shown)


class LoggedCells:
    """`add_request` every user cell, `add_message` every message. `cells` has them by their keys, oldest first."""

    def __init__(self, cap: int = CAP) -> None:
        self.cells: OrderedDict[str, LoggedCell] = OrderedDict()
        self._cap = cap
        self._size = 0
        self._question: Optional[Message] = None

    def add_request(self, request: Message) -> None:
        """Add a cell that a user runs."""
        cell = LoggedCell(request)
        self.cells[cell.key] = cell
        if len(self.cells) > CELLS:
            self._size -= self.cells.popitem(last=False)[1].shown.size

    def add_message(self, message: Message, now: float) -> None:
        """Add a message to front ends, at this time in seconds since 1970. A message that belongs to no user's cell is
        passed over."""
        cell = self.cells.get(message.parent_key)
        if cell is None:
            return
        msg_type = message.msg_type
        if len(message.parts[3]) < CODE and PASSING.encode() in message.parts[3]:
            return  # the output is shown only for a while
        if message.channel is Channel.IOPUB and msg_type in SHOWN:
            self._show(cell, message)
        elif message.channel is Channel.IOPUB and msg_type == "execute_input":
            cell.status, cell.started = "running", now
            cell.count = message.content().get("execution_count")
        elif message.channel is Channel.SHELL and msg_type == "execute_reply":
            cell.end(message.content(), now)
        elif message.channel is Channel.STDIN:
            self._question, cell.asks = message, str(message.content().get("prompt", ""))[:_LINE]

    def last_ended(self) -> Optional[LoggedCell]:
        """Return the last cell that has ended; one that was aborted, as a cell before it failed, does not count."""
        ended = (cell for cell in reversed(self.cells.values()) if cell.ended and cell.status != "aborted")
        return next(ended, None)

    def add_input_reply(self, reply: Message) -> None:
        """Add the user's answer to input(), as JupyterLab shows it. Passwords are not kept here, and no answer in the
        log's file: see `without_answer`."""
        question, self._question = self._question, None
        if question is None:
            return
        question_content = question.content()
        value = HIDDEN if question_content.get("password") else reply.content().get("value", "")
        content = {"name": "stdin", "text": f"{question_content.get('prompt', '')} {value}\n"}
        cell = self.cells.get(question.parent_key)
        if cell is not None:
            cell.asks = None
            header = dump({"msg_id": reply.msg_id, "msg_type": "stream"})
            self._show(cell, Message(Channel.IOPUB, 0, (header, question.parts[1], b"{}", dump(content))))

    def leave(self, missed: Collection[str]) -> None:
        """The front end has left the kernel, and has not got everything about the cells with these keys."""
        for key, cell in self.cells.items():
            cell.missed |= key in missed
            cell.front_end_left = True

    def missed_shown(self) -> None:
        """The user has seen what is known of the cells of which the previous front end has missed something."""
        for cell in self.cells.values():
            cell.missed = cell.missed and not cell.ended

    def page_of(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """Return a page of summaries from the number `first` on; with a `msg_id`, a page of that cell's outputs."""
        first = number(request, "first", 0)
        if request.get("msg_id"):
            return {"cell": self.page(text(request, "msg_id"), first)}
        return self.summaries(first, text(request, "cell_id", ""))

    def summaries(self, first: int, cell_id: str = "") -> Dict[str, Any]:
        """Return {"cells": [summary], "last": bool} from the `first` on; with `cell_id`, only those of that cell.

        Some clients send no id of a cell. A cell of theirs is asked for by the msg_id of its request.
        """
        all_cells = self.cells.values()
        cells = [cell for cell in all_cells if not cell_id or cell_id in (cell.cell_id, cell.msg_id)][first:]
        page, size = [], 0
        for cell in cells:
            page.append(cell.summary())
            size += len(json.dumps(cell.code)) + _SUMMARY
            if size > PAGE:
                break
        return {"cells": page, "last": len(page) == len(cells)}

    def page(self, msg_id: str, first: int) -> Dict[str, Any]:
        """Return {…summary, "outputs": [{msg_type, content}], "last": bool}; {} if the cell is unknown."""
        cell = self.cells.get(cell_key(msg_id))
        if cell is None:
            return {}
        outputs, last = cell.page(first)
        return dict(cell.summary(), outputs=outputs, last=last)

    def _show(self, cell: LoggedCell, message: Message) -> None:
        before = cell.shown.size
        cell.shown.put(message)
        self._size += cell.shown.size - before
        if self._size > self._cap:
            self._shrink()

    def _shrink(self) -> None:
        """Drop output, the oldest first: users who return want the newest."""
        for cell in self.cells.values():
            before = cell.shown.size
            while cell.shown and self._size - (before - cell.shown.size) > self._cap:
                cell.shown.drop()
                cell.dropped = True
            self._size -= before - cell.shown.size
            if self._size <= self._cap:
                return


def without_answer(reply: Message) -> Message:
    """Return an input_reply without what the user has answered."""
    return reply.replace(parts=(*reply.parts[:3], dump({"value": HIDDEN})))


def _reduced(content: Dict[str, Any], size: int) -> Dict[str, Any]:
    """Return a content in place of one that is too large for a page."""
    try:
        return as_text(content, 10_000, size, "too large to be shown again")
    except (KeyError, TypeError, ValueError):  # not a display but an error with a long traceback
        return error_content(str(content.get("ename")), "too large to be shown again")


def _cell_id(request: Message) -> str:
    """Return the cell's id if the client sends it, as pages of JupyterLab and VS Code do; else ""."""
    try:
        return str(request.metadata().get("cellId", ""))[:_ID]
    except MessageError:
        return ""


def as_text(content: Dict[str, Any], room: int, size: int, reason: str) -> Dict[str, Any]:
    """Return a display's content with `room` characters of its text and a notice that the rest is left out.

    Raises KeyError, TypeError or ValueError if this is not a display's content.
    """
    data = dict(content["data"])
    omitted = ", ".join(sorted(set(data) - {"text/plain"})) or "text"
    notice = f"[… {format_size(size)} of {omitted} left out here: {reason} …]"
    text = str(data.get("text/plain", ""))[:room]
    return dict(content, data={"text/plain": f"{text}\n{notice}".strip()}, metadata={})


def format_size(size: int) -> str:
    """Return a number of bytes for users: "12 MB"."""
    return f"{size / 1e6:.0f} MB" if size >= 1e6 else f"{max(1, size // 1000)} kB"
