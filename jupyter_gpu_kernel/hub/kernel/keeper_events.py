"""What a keeper says of its kernel, besides the kernel's messages; and what it is told in return."""

from __future__ import annotations

from typing import Any

from ...wire.messages import Message, word
from .. import validate
from .in_flight import InFlightCells


def read(message: Message) -> dict[str, Any]:
    """The word, with its `event`, "" if this hub does not know it. What it says of an end is attributed to the node.
    Malformed, MessageError."""
    said = {"event": "", **validate.word(message.content())}
    if said.get("cause"):
        said["cause"] = f"the node says: {said['cause']}"
    return said


def answers(said: dict[str, Any], unanswered: InFlightCells, count: int) -> list[Message]:
    """What the keeper has to know. `count`: the number of the last cell."""
    if said["event"] == "mark":  # these came before it, to us or to a hub that was killed
        return [word(do="heard", reply=reply) for reply in said["replies"]]
    if said["event"] == "successor":  # which knows nothing of what its killed predecessor was asked
        return [word(do="unanswered", cells=unanswered.cells, count=count)]
    return []
