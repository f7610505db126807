"""Messages that wait in memory: neighbouring stream output merged, what is overwritten or cleared left out.

What a front end shows at the end is the same. This file knows Jupyter's messages; it knows no disk and no cap.
"""

from __future__ import annotations

import enum
import json
from collections import OrderedDict, deque
from itertools import islice
from typing import Any, Deque, Dict, Iterator, List, Optional, Tuple

from ....wire.messages import Channel, Message, MessageError
from ....wire.streams import PIECE, Stream, read_stream, with_stream
from .spill import Record
from .terminal_text import TerminalText

_OVERHEAD = 200
_LEAST = 4096
"""Characters of room that are worth filling."""


class Kind(enum.IntEnum):
    """What may be left out when there is too much: nothing of KEEP, of the others in this order."""

    KEEP = 0
    STREAM = 1
    DISPLAY = 2
    WIDGET = 3


_DISPLAYS = ("display_data", "execute_result", "update_display_data")
_OUTPUTS = ("stream", "display_data", "execute_result", "error")


class Cell:
    """All that waits with one parent. `position`: characters of text that it printed so far."""

    def __init__(self, number: int, key: str, parent: bytes) -> None:
        self.number = number
        self.key = key
        self.parent = parent
        self.waiting = 0
        self.position = 0
        self.left_out = self.left_out_at = 0
        self.last: Optional[Entry] = None  # what may still grow
        self.shown: Deque[int] = deque()  # what a clear_output would clear; nothing before a widget's message
        self.clears: Deque[int] = deque()
        self.clear_next = False

    def forget_entries(self) -> None:
        """They left the memory."""
        self.last = None
        self.shown.clear()
        self.clears.clear()


class Entry:
    """One message, or merged ones (then `text` is what they say)."""

    __slots__ = ("cell", "counter", "key", "kind", "message", "name", "position", "serial", "size", "text")

    def __init__(self, serial: int, kind: Kind, cell: Cell, message: Message) -> None:
        self.serial = serial
        self.kind = kind
        self.cell = cell
        self.position = cell.position
        self.message = message.unparsed()
        self.size = _OVERHEAD + sum(map(len, message.parts))
        self.text: Optional[TerminalText] = None
        self.name = ""
        self.counter = 0
        self.key: Optional[Tuple[Any, Any]] = None

    def whole(self) -> Message:
        """The message, with all its text."""
        if self.text is None:
            return self.message.unparsed()
        return with_stream(self.message, self.counter, Stream(self.name, str(self.text)))

    def record(self) -> Record:
        """As it goes to the disk, or out."""
        end = self.position + (0 if self.text is None else len(str(self.text)))
        return Record(self.kind, self.cell.number, self.position, end, self.whole().encode())


class MemoryQueue:
    """`put`, then `pop` or `pop_all`. `cells`: by number, also those of which only the disk has something."""

    def __init__(self) -> None:
        self.size = 0
        self.cells: Dict[int, Cell] = {}
        self._entries: OrderedDict[int, Entry] = OrderedDict()
        self._parents: Dict[str, Cell] = {}
        self._newest: Dict[Any, Dict[Any, int]] = {}  # what a later message of the same key supersedes
        self._serial = self._cell_number = 0

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, message: Message) -> None:
        """One more message."""
        msg_type, parent, key = _identify(message)
        cell = self._cell(key, parent)
        if msg_type in _OUTPUTS and cell.clear_next:
            self._clear(cell)
        elif msg_type == "clear_output":
            return self._clear_output(cell, message)
        stream = read_stream(message, msg_type)
        if stream is not None and stream.text:
            return self._put_text(cell, message, stream)
        entry = self._add(Kind.DISPLAY if msg_type in _DISPLAYS else Kind.KEEP, cell, message)
        sets = self._key(message, msg_type)
        if sets is not None:
            if sets[0] != Kind.DISPLAY:
                entry.kind = Kind.WIDGET
            return self._supersede(entry, sets)
        cell.last = None
        if entry.kind is Kind.DISPLAY:
            cell.shown.append(entry.serial)
        elif msg_type.startswith("comm_"):
            self._comm(entry, message, msg_type)

    def pop(self) -> Record:
        """The oldest."""
        entry = self._entries.popitem(last=False)[1]
        self.size -= entry.size
        cell = entry.cell
        for serials in (cell.shown, cell.clears):
            if serials and serials[0] == entry.serial:
                serials.popleft()
        if cell.last is entry:
            cell.last = None
        self._forget_key(entry)
        return entry.record()

    def drop(self) -> None:
        """The oldest goes, unheard."""
        self.gone(self.cells[self.pop().cell])

    def messages(self, first: int = 0) -> Iterator[Message]:
        """The messages from the `first` on, oldest first; they stay. None is put together before it is asked for."""
        return (entry.whole() for entry in islice(self._entries.values(), first, None))

    def pop_all(self) -> List[Record]:
        """All of it, oldest first."""
        records = [entry.record() for entry in self._entries.values()]
        for entry in self._entries.values():
            entry.cell.forget_entries()
        self._entries.clear()
        self._newest.clear()
        self.size = 0
        return records

    def gone(self, cell: Cell) -> None:
        """One message of the cell waits no longer, here or on disk."""
        cell.waiting -= 1
        if not cell.waiting:
            del self.cells[cell.number]
            del self._parents[cell.key]

    # -------------------------------------------------------------------------------------- entries

    def _cell(self, key: str, parent: bytes) -> Cell:
        cell = self._parents.get(key)
        if cell is None:
            self._cell_number += 1
            cell = self._parents[key] = self.cells[self._cell_number] = Cell(self._cell_number, key, parent)
        return cell

    def _add(self, kind: Kind, cell: Cell, message: Message) -> Entry:
        self._serial += 1
        self.cells[cell.number] = self._parents[cell.key] = cell  # it may just have been emptied
        entry = self._entries[self._serial] = Entry(self._serial, kind, cell, message)
        cell.waiting += 1
        self.size += entry.size
        return entry

    def _remove(self, serial: int) -> None:
        entry = self._entries.pop(serial, None)
        if entry is not None:
            self.size -= entry.size
            self.gone(entry.cell)

    # -------------------------------------------------------------------------------------- streams

    def _put_text(self, cell: Cell, message: Message, stream: Stream) -> None:
        """Into the cell's last message if that is of the same stream, and into as many more as it takes."""
        at = counter = 0
        while at < len(stream.text):
            entry, text = cell.last, stream.text
            if entry is None or entry.text is None or entry.name != stream.name:
                entry = self._new_text(cell, message, stream.name, counter)
            assert entry.text is not None
            size = max(_LEAST, PIECE - entry.text.size)
            before = entry.text.size
            entry.text.append(text[at : at + size])
            entry.size += entry.text.size - before
            self.size += entry.text.size - before
            cell.position += len(text[at : at + size])
            at += size
            if entry.text.size >= PIECE:
                cell.last = None
                counter += 1

    def _new_text(self, cell: Cell, message: Message, name: str, counter: int) -> Entry:
        message = message.replace(parts=(*message.parts[:3], b""))
        entry = cell.last = self._add(Kind.STREAM, cell, message)
        entry.text, entry.name, entry.counter = TerminalText(), name, counter
        cell.shown.append(entry.serial)
        return entry

    # -------------------------------------------------------------------------------------- what is overtaken

    def _clear_output(self, cell: Cell, message: Message) -> None:
        cell.clear_next = bool(_content(message).get("wait"))
        entry = self._add(Kind.KEEP, cell, message)
        cell.last = None
        cell.clears.append(entry.serial)
        if not cell.clear_next:
            self._clear(cell)

    def _clear(self, cell: Cell) -> None:
        """What the cell showed since its last widget message; of the clears only the last is left."""
        cell.clear_next = False
        cell.last = None
        while len(cell.clears) > 1:
            self._remove(cell.clears.popleft())
        last = cell.clears[-1] if cell.clears else self._serial
        while cell.shown and cell.shown[0] < last:
            self._remove(cell.shown.popleft())

    def _key(self, message: Message, msg_type: str) -> Optional[Tuple[Any, Any]]:
        """Of what is shown: what this message sets, so that one like it makes it needless. Such messages can
        change places with the cell's text."""
        if msg_type not in ("update_display_data", "comm_msg"):
            return None
        content = _content(message)
        if msg_type == "update_display_data":
            return Kind.DISPLAY, str(_object(content, "transient").get("display_id"))
        data = _object(content, "data")
        state = data.get("state")
        if data.get("method") != "update" or not isinstance(state, dict) or "msg_id" in state:
            return None  # with msg_id a widget begins and ends to capture the cell's output
        return str(content.get("comm_id")), (tuple(sorted(state)), json.dumps(data.get("buffer_paths")))

    def _comm(self, entry: Entry, message: Message, msg_type: str) -> None:
        """A widget's other messages: what is before them stays before them."""
        content = _content(message)
        self._newest.pop(str(content.get("comm_id")), None)
        entry.cell.shown.clear()
        entry.cell.clears.clear()
        if msg_type == "comm_msg" and "state" not in _object(content, "data"):
            entry.kind = Kind.WIDGET

    def _supersede(self, entry: Entry, key: Tuple[Any, Any]) -> None:
        newest = self._newest.setdefault(key[0], {})
        if key[1] in newest:
            self._remove(newest[key[1]])
        newest[key[1]] = entry.serial
        entry.key = key

    def _forget_key(self, entry: Entry) -> None:
        if entry.key is not None:
            family, key = entry.key
            newest = self._newest.get(family, {})
            if newest.get(key) == entry.serial:
                del newest[key]
                if not newest:
                    del self._newest[family]


def _content(message: Message) -> Dict[str, Any]:
    try:
        return message.content()
    except MessageError:
        return {}  # what a kernel says wrongly is passed on all the same


def _object(content: Dict[str, Any], key: str) -> Dict[str, Any]:
    value = content.get(key)
    return value if isinstance(value, dict) else {}


def _identify(message: Message) -> Tuple[str, bytes, str]:
    """Return the message's type, its parent's header, and a key for that parent: "" for a word, and without JSON.

    The header itself is no key: kernels write the same one differently for a stream and for a display.
    """
    if message.channel is Channel.KEEPER:
        return "", b"", ""
    try:
        msg_type = message.msg_type
    except MessageError:
        return "", b"", ""
    header = message.parts[1]
    try:
        parent = message.parent()
    except MessageError:
        parent = {}
    return msg_type, header, str(parent["msg_id"]) if "msg_id" in parent else repr(header)
