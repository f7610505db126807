"""Cells without a reply: what a killed keeper's successor is told of them, and what another kernel is asked."""

from __future__ import annotations

from typing import Any

from runtimes import make

from jupyter_gpu_kernel.hub.kernel.messages.pending_requests import InFlightCells
from jupyter_gpu_kernel.wire.messages import Channel, Message, keeper_message


def cell(**content: Any) -> Message:
    return Message(Channel.SHELL, 3, make("execute_request", {"code": "1", **content}))


def answer_to(asked: Message, msg_type: str, **content: Any) -> Message:
    channel = Channel.SHELL if msg_type.endswith("_reply") else Channel.IOPUB
    return Message(channel, 0, make(msg_type, content, asked.parts[0]))


def known(*cells: Message) -> InFlightCells:
    in_flight = InFlightCells()
    for one in cells:
        in_flight.sent(one)
    return in_flight


def test_a_cell_is_unanswered_until_its_reply() -> None:
    first, second = cell(), cell()
    in_flight = known(first, second)
    in_flight.sent(Message(Channel.SHELL, 3, make("complete_request", {})))
    in_flight.received(answer_to(first, "complete_reply"))
    assert in_flight.ids == [first.header()["msg_id"], second.header()["msg_id"]]
    assert in_flight.size == sum(len(part) for one in (first, second) for part in one.parts)
    in_flight.received(answer_to(first, "execute_reply", status="ok"))
    assert in_flight.ids == [second.header()["msg_id"]]


def test_a_successor_is_told_their_very_text_and_what_front_ends_have_heard() -> None:
    """Also text that is not UTF-8; without buffers, which no kernel reads of a cell."""
    asked = cell().replace(
        parts=(*cell().parts[:3], b'{"code": "\xff"}', b"a buffer" * 1000),
    )
    in_flight = known(asked)
    states = []
    for state in ("busy", "idle", "starting"):
        states.append(in_flight.describe()[0]["state"])
        in_flight.received(answer_to(asked, "status", execution_state=state))
    (one,) = in_flight.describe()
    assert states == ["", "busy", "idle"] and one["state"] == "idle", "a start is said of no cell"
    assert one["client"] == 3
    assert [part.encode("utf-8", "surrogateescape") for part in one["parts"]] == list(asked.parts[:4])


def test_what_was_said_of_a_cell_goes_with_it() -> None:
    """A front end may use its msg_id again."""
    asked = cell()
    in_flight = known(asked)
    in_flight.received(answer_to(asked, "status", execution_state="busy"))
    in_flight.received(answer_to(asked, "execute_reply", status="ok"))
    in_flight.sent(asked)
    assert in_flight.describe()[0]["state"] == ""
    in_flight.received(answer_to(asked, "status", execution_state="busy"))
    assert in_flight.clear() == [asked] and in_flight.describe() == []
    in_flight.sent(asked)
    assert in_flight.describe()[0]["state"] == ""


def test_what_a_killed_hub_had_passed_on_of_a_cell_is_not_known() -> None:
    asked = cell()
    in_flight = InFlightCells()
    in_flight.recall([asked])
    assert in_flight.describe()[0]["state"] == "?"
    in_flight.received(answer_to(asked, "status", execution_state="busy"))
    assert in_flight.describe()[0]["state"] == "busy"


def test_of_very_many_the_newest_are_named() -> None:
    """Those that an interrupt is for: an older one may run, but none waits that long."""
    cells = [cell() for _ in range(1001)]
    assert known(*cells).ids == [one.header()["msg_id"] for one in cells[1:]]


def test_a_cell_is_silent_until_it_shows_something() -> None:
    """Its input is shown by the front end that asked for it."""
    asked, behind = cell(), cell()
    in_flight = known(asked, behind)
    in_flight.received(answer_to(asked, "status", execution_state="busy"))
    in_flight.received(answer_to(asked, "execute_input", code="1"))
    assert in_flight.oldest == (asked, True) and not in_flight.has_output(asked)
    in_flight.received(answer_to(asked, "stream", name="stdout", text="1"))
    assert in_flight.oldest == (asked, True) and in_flight.has_output(asked)
    in_flight.received(answer_to(asked, "execute_reply", status="ok"))
    assert in_flight.oldest == (behind, False), "it may not have reached the node"
    own = cell(store_history=False)
    assert known(own, behind).oldest == (None, False), "users do not see the one that runs"
    assert known().oldest == (None, False) and not known().has_output(behind)


def test_another_kernel_is_asked_each_cell_once_and_no_words() -> None:
    sent, queued = cell(), cell()
    other = Message(Channel.SHELL, 3, make("complete_request", {}))
    again = known(sent, queued).with_queued([keeper_message(do="interrupt"), queued, other])
    assert again == [sent, queued, other]
