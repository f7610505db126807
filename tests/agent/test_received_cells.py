"""Which of the cells that a hub lists its keeper has not received."""

from __future__ import annotations

from typing import Any, Dict, List

import pytest
from runtimes import make

from jupyter_gpu_kernel.agent.relay import received_cells
from jupyter_gpu_kernel.agent.relay.received_cells import ReceivedCells, read_unanswered
from jupyter_gpu_kernel.wire.fields import FieldError
from jupyter_gpu_kernel.wire.messages import Channel, Message, MessageError


def cell(code: str) -> Message:
    return Message(Channel.SHELL, 1, make("execute_request", {"code": code}))


def listed(*cells: Message) -> Dict[str, Any]:
    return {"cells": [{"client": 1, "parts": [part.decode() for part in one.parts]} for one in cells]}


def codes(cells: List[Message]) -> List[str]:
    return [str(one.content()["code"]) for one in cells]


def test_cells_behind_the_last_one_that_came_are_missing() -> None:
    received, cells = ReceivedCells(), [cell(code) for code in "abcde"]
    assert codes(received.missing(read_unanswered(listed(*cells)))) == list("abcde")
    for one in cells[:3]:
        received.add(one)
    received.add(Message(Channel.SHELL, 1, make("complete_request", {})))
    assert codes(received.missing(read_unanswered(listed(*cells)))) == list("de")
    assert received.missing(read_unanswered(listed(*cells[:3]))) == []
    assert received.missing([]) == []


def test_cells_that_came_long_ago_are_not_missing_though_their_ids_are_forgotten() -> None:
    received = ReceivedCells()
    cells = [cell(str(number)) for number in range(received_cells._REMEMBERED + 10)]
    for one in cells:
        received.add(one)
    lost = cell("lost")
    assert codes(received.missing(read_unanswered(listed(*cells, lost)))) == ["lost"]
    assert codes(received.missing(read_unanswered(listed(cells[0], lost)), [cells[0].msg_id])) == ["lost"]


@pytest.mark.parametrize(
    "command",
    [
        {},
        {"cells": 1},
        {"cells": ["a"]},
        {"cells": [{"client": 1, "parts": ["{}"]}]},
        {"cells": [{"client": -1, "parts": ["{}"] * 4}]},
        {"cells": [{"client": 1, "parts": ["{}", "{}", "{}", "["]}]},
    ],
)
def test_a_malformed_list_is_rejected(command: Dict[str, Any]) -> None:
    with pytest.raises((FieldError, MessageError)):
        read_unanswered(command)
