"""Messages that wait in memory: neighbouring stream output is merged, overwritten and cleared output is left out.

What a front end shows in the end stays the same. This module knows Jupyter's messages, but neither disk nor cap.
"""

from __future__ import annotations

import enum
from collections import OrderedDict, deque
from itertools import islice
from typing import Deque, Dict, Iterator, Optional, Tuple

from ...wire.kernel_messages.compose import PIECE, StreamText, read_stream, with_stream
from ...wire.messages import Channel, Message, MessageError, content_of, parent_key_of
from .segments import StoredMessage
from .superseding import Key, Newest, TerminalText, key_of, object_at

_OVERHEAD = 200
"""Bytes of memory for a message besides its parts."""
_MIN_ROOM = 4096
"""Characters of room for which a message is filled up."""


class EntryKind(enum.IntEnum):
    """What may be left out when there is too much: nothing of KEEP, and the others in this order."""

    KEEP = 0
    STREAM = 1
    DISPLAY = 2
    WIDGET = 3


_DISPLAYS = ("display_data", "execute_result", "update_display_data")
_OUTPUTS = ("stream", "display_data", "execute_result", "error")


class CellOutput:
    """The messages that wait with the same parent. `position`: characters of text that the cell printed so far."""

    def __init__(self, number: int, key: str, parent: bytes) -> None:
        self.number = number
        self.key = key
        self.parent = parent
        self.waiting = 0
        self.position = 0
        self.omitted = self.omitted_from = 0
        self.last: Optional[QueueEntry] = None  # the entry that text may be appended to
        self.shown: Deque[int] = deque()  # what a clear_output would clear; nothing before a widget's message
        self.clears: Deque[int] = deque()
        self.clear_next = False


class QueueEntry:
    """One message, or several merged stream messages: then `text` is what they contain."""

    __slots__ = ("cell", "counter", "key", "kind", "message", "name", "position", "serial", "size", "text")

    def __init__(self, serial: int, kind: EntryKind, cell: CellOutput, message: Message) -> None:
        self.serial = serial
        self.kind = kind
        self.cell = cell
        self.position = cell.position
        self.message = message.unparsed()
        self.size = _OVERHEAD + sum(map(len, message.parts))
        self.text: Optional[TerminalText] = None
        self.name = ""
        self.counter = 0
        self.key: Optional[Key] = None

    def whole(self) -> Message:
        """Return the message, with all its text."""
        if self.text is None:
            return self.message.unparsed()
        return with_stream(self.message, self.counter, StreamText(self.name, str(self.text)))

    def stored(self) -> StoredMessage:
        """Return the message as it is written to the disk or sent."""
        end = self.position + (0 if self.text is None else len(str(self.text)))
        return StoredMessage(self.kind, self.cell.number, self.position, end, self.whole().encode())


class WaitingMessages:
    """`put` messages, then `pop` one. `cells`, by number, has also those with messages only on disk."""

    def __init__(self) -> None:
        self.size = 0
        self.cells: Dict[int, CellOutput] = {}
        self._entries: OrderedDict[int, QueueEntry] = OrderedDict()
        self._parents: Dict[str, CellOutput] = {}
        self._newest = Newest()
        self._serial = self._cell_number = 0

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, message: Message) -> None:
        """Add a message."""
        msg_type, parent, parent_key = _identify(message)
        cell = self._cell(parent_key, parent)
        if msg_type in _OUTPUTS and cell.clear_next:
            self._clear(cell)
        elif msg_type == "clear_output":
            return self._put_clear_output(cell, message)
        stream = read_stream(message, msg_type)
        if stream is not None and stream.text:
            return self._put_text(cell, message, stream)
        entry = self._add(EntryKind.DISPLAY if msg_type in _DISPLAYS else EntryKind.KEEP, cell, message)
        key = key_of(message, msg_type)
        if key is not None:
            return self._put_superseding(entry, key)
        cell.last = None
        if entry.kind is EntryKind.DISPLAY:
            cell.shown.append(entry.serial)
        elif msg_type.startswith("comm_"):
            self._put_comm(entry, message, msg_type)

    def pop(self) -> StoredMessage:
        """Remove and return the oldest message."""
        return self._pop().stored()

    def drop(self) -> None:
        """Remove the oldest message."""
        self.release(self._pop().cell)

    def _pop(self) -> QueueEntry:
        entry = self._entries.popitem(last=False)[1]
        self.size -= entry.size
        cell = entry.cell
        for serials in (cell.shown, cell.clears):
            if serials and serials[0] == entry.serial:
                serials.popleft()
        if cell.last is entry:
            cell.last = None
        if entry.key is not None:
            self._newest.remove(entry.key, entry.serial)
        return entry

    def messages(self, first: int = 0) -> Iterator[Message]:
        """Yield the messages from the `first` on, oldest first. They stay; each is put together when it is needed."""
        return (entry.whole() for entry in islice(self._entries.values(), first, None))

    def release(self, cell: CellOutput) -> None:
        """One message of this cell no longer waits, in memory or on disk."""
        cell.waiting -= 1
        if not cell.waiting:
            del self.cells[cell.number]
            del self._parents[cell.key]

    # -------------------------------------------------------------------------------------- entries

    def _cell(self, key: str, parent: bytes) -> CellOutput:
        cell = self._parents.get(key)
        if cell is None:
            self._cell_number += 1
            cell = self._parents[key] = self.cells[self._cell_number] = CellOutput(
                self._cell_number, key, parent
            )
        return cell

    def _add(self, kind: EntryKind, cell: CellOutput, message: Message) -> QueueEntry:
        self._serial += 1
        self.cells[cell.number] = self._parents[cell.key] = cell  # it may just have been emptied
        entry = self._entries[self._serial] = QueueEntry(self._serial, kind, cell, message)
        cell.waiting += 1
        self.size += entry.size
        return entry

    def _remove(self, serial: int) -> None:
        entry = self._entries.pop(serial, None)
        if entry is not None:
            self.size -= entry.size
            self.release(entry.cell)

    # -------------------------------------------------------------------------------------- streams

    def _put_text(self, cell: CellOutput, message: Message, stream: StreamText) -> None:
        """Append the text to the cell's last entry, if it is of this stream, and to as many new entries as needed."""
        at = counter = 0
        while at < len(stream.text):
            entry = cell.last
            if entry is None or entry.text is None or entry.name != stream.name:
                entry = self._new_text(cell, message, stream.name, counter)
            assert entry.text is not None
            size = max(_MIN_ROOM, PIECE - entry.text.size)
            before = entry.text.size
            entry.text.append(stream.text[at : at + size])
            entry.size += entry.text.size - before
            self.size += entry.text.size - before
            cell.position += len(stream.text[at : at + size])
            at += size
            if entry.text.size >= PIECE:
                cell.last = None
                counter += 1

    def _new_text(self, cell: CellOutput, message: Message, name: str, counter: int) -> QueueEntry:
        message = message.replace(parts=(*message.parts[:3], b""))
        entry = cell.last = self._add(EntryKind.STREAM, cell, message)
        entry.text, entry.name, entry.counter = TerminalText(), name, counter
        cell.shown.append(entry.serial)
        return entry

    # -------------------------------------------------------------------------------------- what is superseded

    def _put_clear_output(self, cell: CellOutput, message: Message) -> None:
        cell.clear_next = bool(content_of(message).get("wait"))
        entry = self._add(EntryKind.KEEP, cell, message)
        cell.last = None
        cell.clears.append(entry.serial)
        if not cell.clear_next:
            self._clear(cell)

    def _clear(self, cell: CellOutput) -> None:
        """Remove what the cell showed since its last widget message, and every clear_output but the last."""
        cell.clear_next = False
        cell.last = None
        while len(cell.clears) > 1:
            self._remove(cell.clears.popleft())
        last = cell.clears[-1] if cell.clears else self._serial
        while cell.shown and cell.shown[0] < last:
            self._remove(cell.shown.popleft())

    def _put_superseding(self, entry: QueueEntry, key: Key) -> None:
        if key.is_widget:
            entry.kind = EntryKind.WIDGET
        entry.key = key
        superseded = self._newest.add(key, entry.serial)
        if superseded is not None:
            self._remove(superseded)

    def _put_comm(self, entry: QueueEntry, message: Message, msg_type: str) -> None:
        """A widget's other messages: the output before them must stay before them."""
        content = content_of(message)
        self._newest.remove_widget(str(content.get("comm_id")))
        entry.cell.shown.clear()
        entry.cell.clears.clear()
        if msg_type == "comm_msg" and "state" not in object_at(content, "data"):
            entry.kind = EntryKind.WIDGET


def _identify(message: Message) -> Tuple[str, bytes, str]:
    """Return the message's type, its parent's header, and a key for that parent. A keeper's message has none of them.

    The bytes of the header are no key: kernels write one header differently for a stream and for a display.
    """
    if message.channel is Channel.KEEPER:
        return "", b"", ""
    try:
        msg_type = message.msg_type
    except MessageError:
        return "", b"", ""
    return msg_type, message.parts[1], parent_key_of(message) or repr(message.parts[1])
