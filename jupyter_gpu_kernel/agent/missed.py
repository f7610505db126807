"""What cells said while nobody was there to hear it: kept by cell, within a bound, to be shown to whoever returns.

A cell is known by the msg_id of its request. Messages are kept as they were; showing them again gives them another
parent. No sockets here.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import Any, Dict, Iterable, List, Optional

from ..wire.jupyter import Parts
from ..wire.messages import Channel, Message, MessageError

CAP = 32 * 1024 * 1024
_SHOWN = ("stream", "display_data", "update_display_data", "execute_result", "error", "clear_output")


class Cell:
    """One cell's outputs, in order; `status` "" as long as it runs."""

    def __init__(self) -> None:
        self.code = ""
        self.cell_id = ""
        self.status = ""
        self.count: Optional[int] = None
        self.finished = 0.0
        self.outputs: List[Parts] = []
        self.size = 0
        self.dropped = False

    def summary(self) -> Dict[str, Any]:
        """{code, cell_id, status, execution_count, finished, outputs, dropped}: JSON."""
        return {
            "code": self.code,
            "cell_id": self.cell_id,
            "status": self.status or "running",
            "execution_count": self.count,
            "finished": self.finished or None,
            "outputs": len(self.outputs),
            "dropped": self.dropped,
        }


class Missed:
    """`take` what was meant for somebody who left; `cells` what there is."""

    def __init__(self, cap: int = CAP) -> None:
        self._cap = cap
        self._cells: OrderedDict[str, Cell] = OrderedDict()

    @property
    def cells(self) -> List[Cell]:
        """The cells that said or finished something, oldest first."""
        return [cell for cell in self._cells.values() if cell.outputs or cell.status]

    def clear(self) -> None:
        """All of it was seen."""
        self._cells = OrderedDict((key, cell) for key, cell in self._cells.items() if not cell.status)
        for cell in self._cells.values():
            cell.outputs, cell.size = [], 0

    def knows(self, parent: str) -> bool:
        """Whether this cell belongs to somebody who left."""
        return parent in self._cells

    def expect(self, request: Message) -> None:
        """A cell that still runs, or waits, while its front end has gone."""
        cell = self._cells.setdefault(str(request.header().get("msg_id")), Cell())
        cell.code = str(request.content().get("code", ""))
        cell.cell_id = _cell_id(request)

    def recognise(self, requests: Iterable[Message]) -> None:
        """The requests of cells that are kept, where their code is not known yet."""
        for request in requests:
            cell = self._cells.get(str(request.header().get("msg_id")))
            if cell is not None:
                cell.code = cell.code or str(request.content().get("code", ""))
                cell.cell_id = cell.cell_id or _cell_id(request)

    def take(self, message: Message) -> None:
        """A message of a cell, in order. What belongs to no cell is of no use to anybody later."""
        try:
            parent = str(message.parent().get("msg_id", ""))
            msg_type = str(message.header().get("msg_type"))
        except MessageError:
            return
        if message.channel is Channel.IOPUB and msg_type == "execute_input":
            self._cells.setdefault(parent, Cell()).code = str(message.content().get("code", ""))
        elif message.channel is Channel.IOPUB and msg_type in _SHOWN:
            self._add(self._cells.setdefault(parent, Cell()), message.parts)
        elif message.channel is Channel.SHELL and msg_type == "execute_reply":
            cell = self._cells.setdefault(parent, Cell())
            cell.status = str(message.content().get("status"))
            cell.count = message.content().get("execution_count")
            cell.finished = time.time()

    def _add(self, cell: Cell, parts: Parts) -> None:
        cell.outputs.append(parts)
        cell.size += sum(map(len, parts))
        for old in self._cells.values():  # the oldest first: the newest are what one comes back for
            if sum(one.size for one in self._cells.values()) <= self._cap:
                return
            old.outputs, old.size, old.dropped = [], 0, True


def _cell_id(request: Message) -> str:
    """The cell's id, where the front end sends it along, as JupyterLab and VS Code do."""
    try:
        return str(request.metadata().get("cellId", ""))
    except MessageError:
        return ""
