"""Jupyter messages that we create ourselves: what a keeper or a hub sends in the kernel's place.

The parts of a message are (header, parent, metadata, content) as bytes, unsigned. A parent is given as the header's
bytes, unchanged.

Stream output is read as text: what a stream message contains, and smaller messages with the same text. A kernel may
print megabytes in one message; pacing, merging and dropping output need smaller ones.
"""

from __future__ import annotations

import json
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from ..messages import Channel, Message, MessageError
from ..runtime import Runtime
from ..texts import wrapped

Parts = Tuple[bytes, ...]
KERNEL_PROTOCOL = "5.3"
PASSING = "jupyter-gpu-kernel-passing-"
"""The prefix of the display ids of transient displays. They are also removed when the front end leaves."""
PIECE = 512 * 1024
"""Characters of text in one message that we create."""


def make(
    runtime: Runtime,
    msg_type: str,
    content: Dict[str, Any],
    parent: bytes = b"{}",
    metadata: Optional[Dict[str, Any]] = None,
    session: str = "jupyter-gpu-kernel",
) -> Parts:
    """Return a new message's parts. The hub gives all messages to a front end the same session: see `Edge`."""
    header = {
        "msg_id": runtime.new_id(),
        "msg_type": msg_type,
        "username": "kernel",
        "session": session,
        "date": runtime.now(),
        "version": KERNEL_PROTOCOL,
    }
    return (
        json.dumps(header).encode(),
        parent,
        json.dumps(metadata or {}).encode(),
        json.dumps(content).encode(),
    )


def on_iopub(runtime: Runtime, msg_type: str, content: Dict[str, Any], parent: bytes = b"{}") -> Message:
    """Return a message to all front ends, about the request with the header `parent`."""
    return Message(Channel.IOPUB, 0, make(runtime, msg_type, content, parent))


def status(runtime: Runtime, state: str, parent: bytes = b"{}") -> Message:
    """Return a status of the kernel, such as busy."""
    return on_iopub(runtime, "status", {"execution_state": state}, parent)


class TransientDisplay:
    """A text in a cell that is removed when it is no longer true, so that it is in no saved notebook. The methods
    return the messages by which front ends show or remove the text."""

    def __init__(self, runtime: Runtime, kind: str = "") -> None:
        """`kind`: part of the display id, for front ends that show it in another way."""
        self._runtime = runtime
        self._prefix = PASSING + kind
        self._id = self._text = ""
        self._parent = b""

    @property
    def is_shown(self) -> bool:
        """Whether a text is shown."""
        return bool(self._id)

    def show(self, text: str, parent: bytes) -> List[Message]:
        """Show the text in the cell with this header; a text that is shown already is replaced, or removed from
        another cell."""
        cleared = self.clear() if parent != self._parent else []
        if self._id and text == self._text:
            return []
        msg_type = "update_display_data" if self._id else "display_data"
        self._text = text
        self._id = self._id or self._prefix + self._runtime.new_id()
        self._parent = parent
        transient = {"display_id": self._id}
        content = {"data": {"text/plain": wrapped(text)}, "metadata": {}, "transient": transient}
        return [*cleared, on_iopub(self._runtime, msg_type, content, parent)]

    def clear(self, has_output: bool = False) -> List[Message]:
        """Remove the text, if one is shown. Beside output, which clearing would remove as well, it becomes empty."""
        messages: List[Message] = []
        if self._id and has_output:
            messages = self.show("", self._parent)
        elif self._id:
            messages = [on_iopub(self._runtime, "clear_output", {"wait": False}, self._parent)]
        self.forget()
        return messages

    def keep(self, text: str) -> List[Message]:
        """Leave this text, in place of the one that is shown, in the cell and in the saved notebook."""
        messages = self.show(text, self._parent)
        self.forget()
        return messages

    def forget(self) -> None:
        """Nothing is shown any more."""
        self._id = ""


def is_user_cell(request: Message) -> bool:
    """Return whether this is a cell that a user ran, not a front end's own code or another request."""
    try:
        if request.msg_type != "execute_request":
            return False
        content = request.content()
    except MessageError:
        return False
    silent = bool(content.get("silent", False))
    return not silent and bool(content.get("store_history", not silent))


def error_content(name: str, value: str) -> Dict[str, Any]:
    """Return the content of an `error` message; with a status it is that of an error reply."""
    shown = wrapped(f"{name}: {value}")
    return {"ename": name, "evalue": value, "traceback": [f"\x1b[31m{name}\x1b[0m{shown[len(name) :]}"]}


def error_reply(name: str, value: str, count: int) -> Dict[str, Any]:
    """Return the content of an execute_reply for the cell of this number, which failed."""
    return dict(
        error_content(name, value), status="error", execution_count=count, user_expressions={}, payload=[]
    )


def aborted_reply() -> Dict[str, Any]:
    """Return the content of an execute_reply for a cell behind a failed one. As in ipykernel, it has no number."""
    return {"status": "aborted"}


class StreamText(NamedTuple):
    """A stream message's content. `name` is stdout or stderr."""

    name: str
    text: str


def read_stream(message: Message, msg_type: str) -> Optional[StreamText]:
    """Return the content of a stream message; None for any other message, and for a malformed one."""
    if msg_type != "stream" or message.channel is not Channel.IOPUB or len(message.parts) != 4:
        return None
    try:
        content = message.content()
    except MessageError:
        return None
    name, text = content.get("name"), content.get("text")
    if not isinstance(name, str) or not isinstance(text, str):
        return None
    return StreamText(name, text)


def with_stream(message: Message, number: int, stream: StreamText) -> Message:
    """Return the message with this content.

    Every `number` except 0 makes a msg_id of its own, because receivers may ignore a message that comes twice.
    """
    header = message.parts[0]
    if number:
        header = dump(dict(message.header(), msg_id=f"{message.header().get('msg_id')}.{number}"))
    return message.replace(parts=(header, *message.parts[1:3], dump(stream._asdict())))


def split(message: Message, msg_type: str) -> List[Message]:
    """Return messages of at most PIECE characters with the text of a long stream message; else the message itself."""
    if len(message.parts[-1]) <= PIECE:
        return [message]
    whole = read_stream(message, msg_type)
    if whole is None:
        return [message]
    pieces = [whole.text[at : at + PIECE] for at in range(0, len(whole.text), PIECE)]
    return [with_stream(message, number, StreamText(whole.name, text)) for number, text in enumerate(pieces)]


def dump(value: Any) -> bytes:
    """Return JSON as kernels write it: UTF-8, with escapes only for what UTF-8 cannot represent."""
    try:
        return json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return json.dumps(value).encode()
