"""Which messages make earlier ones needless: updates of the same display, and of the same state of a widget."""

from __future__ import annotations

import json
from typing import Any, Dict, NamedTuple, Optional

from ....wire.messages import Message, MessageError


class Key(NamedTuple):
    """What a message sets. A later message with the same key supersedes it.

    `owner` is the id of a widget's comm, or of a display; `is_widget` says which.
    """

    is_widget: bool
    owner: str
    properties: Any = None


class Newest:
    """The newest message of each key, by its serial number."""

    def __init__(self) -> None:
        self._serials: Dict[Any, Dict[Key, int]] = {}

    def add(self, key: Key, serial: int) -> Optional[int]:
        """Add a message; return the serial number of the one that it supersedes."""
        serials = self._serials.setdefault(key[:2], {})
        superseded = serials.get(key)
        serials[key] = serial
        return superseded

    def remove(self, key: Key, serial: int) -> None:
        """This message no longer waits."""
        serials = self._serials.get(key[:2], {})
        if serials.get(key) == serial:
            del serials[key]
            if not serials:
                del self._serials[key[:2]]

    def remove_widget(self, comm_id: str) -> None:
        """Later messages of this widget supersede none of those before."""
        self._serials.pop((True, comm_id), None)

    def clear(self) -> None:
        """No message waits."""
        self._serials.clear()


def key_of(message: Message, msg_type: str) -> Optional[Key]:
    """Return what this message sets, if it can be superseded; it can change places with the cell's text then."""
    if msg_type == "update_display_data":
        return Key(False, str(object_at(content_of(message), "transient").get("display_id")))
    if msg_type != "comm_msg":
        return None
    content = content_of(message)
    data = object_at(content, "data")
    state = data.get("state")
    if data.get("method") != "update" or not isinstance(state, dict) or "msg_id" in state:
        return None  # with msg_id a widget begins or ends to capture the cell's output
    return Key(
        True, str(content.get("comm_id")), (tuple(sorted(state)), json.dumps(data.get("buffer_paths")))
    )


def content_of(message: Message) -> Dict[str, Any]:
    """Return the message's content; {} if it is malformed, as such messages are passed on all the same."""
    try:
        return message.content()
    except MessageError:
        return {}


def object_at(content: Dict[str, Any], key: str) -> Dict[str, Any]:
    """Return the JSON object at this key; {} if there is none."""
    value = content.get(key)
    return value if isinstance(value, dict) else {}
