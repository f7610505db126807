"""What cells showed: kept by cell and in order, merged, within its bound, a page at a time."""

from __future__ import annotations

import json
import sys
from typing import Any, Dict, List, Tuple

import pytest
from runtimes import make

from jupyter_gpu_kernel.agent.log import cells
from jupyter_gpu_kernel.agent.log.cells import LoggedCell, LoggedCells
from jupyter_gpu_kernel.wire.messages import Channel, Message
from jupyter_gpu_kernel.wire.stream.frames import MAX_PAYLOAD


def request(code: str, cell_id: str = "") -> Message:
    return Message(Channel.SHELL, 1, make("execute_request", {"code": code}, metadata={"cellId": cell_id}))


def take(past: LoggedCells, to: Message, msg_type: str, **content: Any) -> None:
    channel = Channel.SHELL if msg_type == "execute_reply" else Channel.IOPUB
    past.add_message(Message(channel, 1, make(msg_type, content, to.parts[0])), 0.0)


def prints(past: LoggedCells, cell: Message, text: str) -> None:
    take(past, cell, "stream", name="stdout", text=text)


def shown(cell: LoggedCell) -> List[Dict[str, Any]]:
    return [dict(output["content"], msg_type=output["msg_type"]) for output in cell.page(0)[0]]


def test_outputs_are_kept_by_cell_merged_with_how_it_ended() -> None:
    past, one, two = LoggedCells(), request("one()", "a"), request("two()", "b")
    for cell in (one, two):
        past.add_request(cell)
    take(past, one, "execute_input", code="one()", execution_count=5)
    for n in range(3):
        prints(past, one, str(n))
    take(past, one, "execute_result", data={"text/plain": "3"}, metadata={}, execution_count=5)
    take(past, one, "execute_reply", status="ok", execution_count=5)
    first, second = past.cells.values()
    texts = {"msg_type": "stream", "name": "stdout", "text": "012"}
    assert shown(first)[0] == texts and shown(first)[1]["data"] == {"text/plain": "3"}
    assert (first.code, first.cell_id, first.status, first.count) == ("one()", "a", "ok", 5)
    assert (second.summary()["status"], second.summary()["cell_id"]) == ("waiting", "b")
    assert [cell["code"] for cell in past.summaries(0, "b")["cells"]] == ["two()"]


def test_a_cell_without_an_id_is_asked_for_by_its_request() -> None:
    """As of nbclient, and of servers that execute cells by themselves."""
    past = LoggedCells()
    parts = make("execute_request", {"code": "f()"})
    nameless, other = Message(Channel.SHELL, 1, parts), request("f()", "a")
    for cell in (nameless, other):
        past.add_request(cell)
    (found,) = past.summaries(0, nameless.msg_id)["cells"]
    assert (found["msg_id"], found["cell_id"], found["left"]) == (nameless.msg_id, "", False)
    assert found["session"] == nameless.header()["session"]


def test_what_has_only_the_msg_id_of_a_cell_is_not_of_the_cell() -> None:
    past, cell = LoggedCells(), request("f()")
    past.add_request(cell)
    header = json.dumps(dict(cell.header(), msg_type="comm_msg")).encode()
    prints(past, Message(Channel.CONTROL, 1, (header, *cell.parts[1:])), "of a comm")
    prints(past, cell, "of the cell")
    assert [output["text"] for output in shown(next(iter(past.cells.values())))] == ["of the cell"]


def test_a_progress_bar_is_its_last_state() -> None:
    past, cell = LoggedCells(), request("bar()")
    past.add_request(cell)
    for n in range(100):
        prints(past, cell, f"\r{n:3}%")
    assert [output["text"] for output in shown(next(iter(past.cells.values())))] == ["\r 99%"]


def test_what_a_user_answered_is_kept_but_no_password() -> None:
    past, cell = LoggedCells(), request("login()")
    past.add_request(cell)
    for prompt, password, value in (("name:", False, "alice"), ("word:", True, "secret")):
        prints(past, cell, "?")
        asked = make("input_request", {"prompt": prompt, "password": password}, cell.parts[0])
        past.add_message(Message(Channel.STDIN, 1, asked), 0.0)
        assert past.summaries(0)["cells"][0]["asks"] == prompt
        for _ in range(2):  # the second answers nothing
            past.add_input_reply(Message(Channel.STDIN, 1, make("input_reply", {"value": value})))
        assert past.summaries(0)["cells"][0]["asks"] is None
    outputs = [(output["name"], output["text"]) for output in shown(next(iter(past.cells.values())))]
    assert outputs == [
        ("stdout", "?"),
        ("stdin", "name: alice\n"),
        ("stdout", "?"),
        ("stdin", "word: ········\n"),
    ]


def test_beyond_the_bound_the_oldest_output_goes_and_that_is_reported() -> None:
    past, old, new = LoggedCells(cap=200_000), request("old"), request("new")
    for cell in (old, new):
        past.add_request(cell)
    prints(past, old, "o" * 100_000)
    for n in range(4):
        prints(past, new, str(n) * 70_000)
    first, second = past.cells.values()
    assert first.dropped and not first.shown
    assert second.dropped and shown(second)[-1]["text"].endswith("3" * 1000)
    assert sum(cell.shown.size for cell in past.cells.values()) <= 200_000


def test_pages_are_small_and_complete() -> None:
    past, cell = LoggedCells(), request("much()")
    past.add_request(cell)
    for n in range(30):
        take(past, cell, "display_data", data={"text/plain": f"{n}" + " " * 200_000}, metadata={})
    texts: List[str] = []
    page: Dict[str, Any] = {"last": False}
    while not page["last"]:
        page = past.page(str(cell.header()["msg_id"]), len(texts))
        assert len(page["outputs"]) < 30
        texts += [output["content"]["data"]["text/plain"].strip() for output in page["outputs"]]
    assert texts == [str(n) for n in range(30)]


def test_only_so_many_cells_are_known() -> None:
    past = LoggedCells()
    for n in range(cells.CELLS + 5):
        past.add_request(request(f"{n}"))
    assert len(past.cells) == cells.CELLS and next(iter(past.cells.values())).code == "5"


def test_messages_without_a_users_cell_are_passed_over() -> None:
    past = LoggedCells()
    prints(past, request("nobody asked"), "x")
    assert not past.cells and past.page("unknown", 0) == {}


class Calls:
    """How many Python functions are called: what something costs, on any machine."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> Calls:
        sys.setprofile(self._seen)
        return self

    def __exit__(self, *exception: object) -> None:
        sys.setprofile(None)

    def _seen(self, frame: object, event: str, argument: object) -> None:
        self.count += event == "call"


def reading(count: int, size: int) -> Tuple[int, int]:
    """Calls that it takes to read a cell with so many outputs: for the dearest page, and in all."""
    past, cell = LoggedCells(), request("much()")
    past.add_request(cell)
    for n in range(count):
        take(past, cell, "display_data", data={"text/plain": "x" * size}, metadata={"n": n})
    had, dearest, total, last = 0, 0, 0, False
    while not last:
        with Calls() as calls:
            page = past.page(str(cell.header()["msg_id"]), had)
        had, last = had + len(page["outputs"]), page["last"]
        dearest, total = max(dearest, calls.count), total + calls.count
    assert had == count
    return dearest, total


@pytest.mark.parametrize("size", [10, 40_000])
def test_reading_costs_as_much_as_there_is_to_read(size: int) -> None:
    """Not its square, and no page holds up the kernel for longer because of those before it."""
    few = reading(2 * cells.OUTPUTS if size == 10 else 50, size)
    many = reading(8 * cells.OUTPUTS if size == 10 else 200, size)
    assert many[1] < 4.2 * few[1]
    assert many[0] < 1.2 * few[0]


def test_a_page_is_a_frame_at_most_whatever_is_in_it() -> None:
    """What is not ASCII takes six bytes a character in JSON."""
    past = LoggedCells()
    for n in range(20):
        past.add_request(request("\N{SNOWMAN}" * cells.CODE, f"c{n}"))
    had, last = 0, False
    while not last:
        page = past.summaries(had)
        assert len(json.dumps(page)) < MAX_PAYLOAD
        had, last = had + len(page["cells"]), page["last"]
    assert had == 20


def test_the_last_cell_that_ended_is_known_with_its_error() -> None:
    past, one, two, three = LoggedCells(), request("\nfit(model)\nsave()"), request("two()"), request("3")
    assert past.last_ended() is None
    for cell in (one, two, three):
        past.add_request(cell)
    take(past, one, "execute_input", code="", execution_count=5)
    take(past, one, "execute_reply", status="error", ename="ValueError", evalue="x" * 1000, execution_count=5)
    take(past, two, "execute_reply", status="aborted")
    last = past.last_ended()
    assert last is not None
    brief = last.brief()
    assert (brief["status"], brief["execution_count"], brief["code"]) == ("error", 5, "fit(model)")
    assert brief["error"].startswith("ValueError: xxx") and len(brief["error"]) == 200
