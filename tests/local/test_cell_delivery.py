"""Which messages of its last cell a page has not confirmed, without any socket."""

from __future__ import annotations

from jupyter_gpu_kernel.server.serve.delivery import CellDelivery, PageMessage

REPLY: PageMessage = ("shell", [b"reply"])
IDLE: PageMessage = ("iopub", [b"idle"])


def output(text: str) -> PageMessage:
    return ("iopub", [text.encode()])


def begun() -> CellDelivery:
    delivery = CellDelivery()
    delivery.begin({"msg_id": "cell"}, "session")
    return delivery


def test_no_cell_is_finished() -> None:
    assert CellDelivery().is_finished and not begun().is_finished


def test_the_reply_comes_last_whichever_comes_first() -> None:
    early, late = begun(), begun()
    for message in (output("1"), REPLY, output("2"), IDLE):
        early.add(message, message is IDLE)
    for message in (output("1"), output("2"), IDLE, REPLY):
        late.add(message, message is IDLE)
    assert list(early.unconfirmed) == list(late.unconfirmed) == [output("1"), output("2"), IDLE, REPLY]


def test_a_cell_is_finished_when_the_page_has_confirmed_its_last_message() -> None:
    delivery = begun()
    delivery.add(IDLE, True)
    delivery.unconfirmed.popleft()
    assert not delivery.is_finished, "the reply is to come"
    delivery.add(REPLY, False)
    assert not delivery.is_finished
    delivery.unconfirmed.popleft()
    assert delivery.is_finished


def test_the_next_cell_replaces_the_last_one_and_the_page_gets_what_is_left_of_that() -> None:
    delivery = begun()
    delivery.add(REPLY, False)
    delivery.add(output("late"), False)
    assert delivery.begin({"msg_id": "next"}, "session") == [output("late"), REPLY]
    delivery.add(IDLE, True)
    assert list(delivery.unconfirmed) == [IDLE] and not delivery.is_finished


def test_a_reply_that_was_read_before_the_cell_began_comes_last() -> None:
    delivery = CellDelivery()
    delivery.sent_cells["cell"] = REPLY
    assert delivery.begin({"msg_id": "cell"}, "session") == [] and not delivery.sent_cells
    delivery.add(output("1"), False)
    delivery.add(IDLE, True)
    assert list(delivery.unconfirmed) == [output("1"), IDLE, REPLY]
