"""Which messages of its last cell a page has not confirmed, without any socket."""

from __future__ import annotations

from jupyter_gpu_kernel.server.serve.delivery import CellDelivery, PageMessage

REPLY: PageMessage = ("shell", [b"reply"])
IDLE: PageMessage = ("iopub", [b"idle"])
CLEAR: PageMessage = ("iopub", [b"clear_output"])


def output(text: str) -> PageMessage:
    return ("iopub", [text.encode()])


def begun() -> CellDelivery:
    delivery = CellDelivery()
    delivery.begin({"msg_id": "cell"}, "session", CLEAR)
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
    delivery.confirm(1)
    assert not delivery.is_finished, "the reply is to come"
    delivery.add(REPLY, False)
    assert not delivery.is_finished
    delivery.confirm(1)
    assert delivery.is_finished


def test_the_next_cell_replaces_the_last_one_and_the_page_gets_what_is_left_of_that() -> None:
    delivery = begun()
    delivery.add(REPLY, False)
    delivery.add(output("late"), False)
    assert delivery.begin({"msg_id": "next"}, "session", CLEAR) == [output("late"), REPLY]
    delivery.add(IDLE, True)
    assert list(delivery.unconfirmed) == [IDLE] and not delivery.is_finished


def test_a_reply_that_was_read_before_the_cell_began_comes_last() -> None:
    delivery = CellDelivery()
    delivery.sent_cells["cell"] = REPLY
    assert delivery.begin({"msg_id": "cell"}, "session", CLEAR) == [] and not delivery.sent_cells
    delivery.add(output("1"), False)
    delivery.add(IDLE, True)
    assert list(delivery.unconfirmed) == [output("1"), IDLE, REPLY]


def test_another_page_gets_the_whole_cell_again_until_the_page_before_had_all_of_it() -> None:
    delivery = CellDelivery()
    delivery.continue_at("first")
    delivery.begin({"msg_id": "cell"}, "session", CLEAR)
    for number in range(3):
        delivery.add(output(str(number)), False)
    delivery.confirm(2)
    delivery.continue_at("first")
    assert delivery.unconfirmed == [output("2")]
    delivery.continue_at("second")
    assert delivery.unconfirmed == [CLEAR, *(output(str(number)) for number in range(3))]
    delivery.add(IDLE, True)
    delivery.add(REPLY, False)
    delivery.confirm(6)
    delivery.continue_at("third")
    assert delivery.is_finished and delivery.unconfirmed == []


def test_of_a_large_cell_another_page_gets_only_what_was_not_confirmed() -> None:
    delivery = begun()
    for _ in range(17):
        delivery.add(output("x" * 1024 * 1024), False)
    delivery.confirm(17)
    delivery.add(output("new"), False)
    delivery.continue_at("second")
    assert delivery.unconfirmed == [output("new")]
