"""What front ends get of a kernel that starts with its user's first cell."""

from __future__ import annotations

from pathlib import Path

import pytest
from runtimes import RUNTIME, make

from jupyter_gpu_kernel.hub.front_end.delivered import Delivered
from jupyter_gpu_kernel.hub.kernel.messages.not_started import UnstartedKernel, plain_kernel_info
from jupyter_gpu_kernel.hub.kernel.messages.placeholder import Placeholder
from jupyter_gpu_kernel.wire.messages import Channel, Message


def request(msg_type: str, channel: Channel = Channel.SHELL, **content: object) -> Message:
    return Message(channel, 1, make(msg_type, content))


def cell(code: str = "1", **content: object) -> Message:
    return request("execute_request", code=code, silent=False, store_history=True, **content)


def own_code(**content: object) -> Message:
    """What VS Code runs at the start."""
    return request("execute_request", code="import os", silent=False, store_history=False, **content)


class Hub:
    """`received`: the messages that front ends received."""

    def __init__(self, delivered: Delivered | None = None) -> None:
        self.received: list[Message] = []
        placeholder = Placeholder(RUNTIME, self.received.append, None, lambda info: None)
        self.kernel = UnstartedKernel(RUNTIME, placeholder, self.received.append, delivered)
        self.kernel.begin()

    def reported(self, asked: Message) -> list[str]:
        """The types of what came for this request, on any channel."""
        return [one.header()["msg_type"] for one in self.received if one.parts[1] == asked.parts[0]]

    def reply(self, asked: Message) -> dict[str, object]:
        """The content of its reply."""
        replies = [
            one for one in self.received if one.parts[1] == asked.parts[0] and one.channel is asked.channel
        ]
        assert len(replies) == 1
        return replies[0].content()


@pytest.fixture
def hub() -> Hub:
    return Hub()


def test_kernel_info_is_answered_also_where_none_is_known(hub: Hub) -> None:
    first, second = request("kernel_info_request"), request("kernel_info_request", Channel.CONTROL)
    for asked in (first, second):
        hub.kernel.take(asked)
        assert hub.reported(asked) == ["status", "kernel_info_reply", "status"]
        assert hub.reply(asked) == plain_kernel_info()
    assert hub.kernel.end() == [first], "one of them learns the kernel's own answer"
    assert hub.kernel.drops(Message(Channel.SHELL, 1, make("kernel_info_reply", {}, first.parts[0])))


@pytest.mark.parametrize(
    ("msg_type", "content", "answer"),
    [
        ("history_request", {}, {"status": "ok", "history": []}),
        ("comm_info_request", {}, {"status": "ok", "comms": {}}),
        ("inspect_request", {"code": "a"}, {"status": "ok", "found": False, "data": {}, "metadata": {}}),
        ("is_complete_request", {"code": "a"}, {"status": "unknown"}),
        (
            "complete_request",
            {"code": "ab", "cursor_pos": 2},
            {"status": "ok", "matches": [], "cursor_start": 2, "cursor_end": 2, "metadata": {}},
        ),
    ],
)
def test_what_is_known_of_a_kernel_without_variables_is_answered(
    hub: Hub, msg_type: str, content: dict[str, object], answer: dict[str, object]
) -> None:
    asked = request(msg_type, **content)
    hub.kernel.take(asked)
    assert hub.reply(asked) == answer
    assert hub.kernel.end() == []


def test_code_of_front_ends_is_answered_at_once_and_run_later_in_order(hub: Hub) -> None:
    start_up, comm, work = own_code(), request("comm_open"), cell()
    for asked in (start_up, comm, work):
        hub.kernel.take(asked)
    assert hub.reported(start_up) == ["status", "execute_reply", "status"]
    assert hub.reported(comm) == hub.reported(work) == []
    assert [one.parts for one in hub.kernel.end()] == [one.parts for one in (start_up, comm, work)]
    again = Message(Channel.IOPUB, 0, make("status", {"execution_state": "busy"}, start_up.parts[0]))
    assert hub.kernel.drops(again)
    assert not hub.kernel.drops(Message(Channel.IOPUB, 0, make("status", {}, work.parts[0])))


def test_code_whose_values_a_front_end_wants_waits(hub: Hub) -> None:
    asked = own_code(user_expressions={"a": "1"})
    hub.kernel.take(asked)
    assert hub.reported(asked) == [] and hub.kernel.cells == []


def test_code_of_front_ends_is_repeated_within_bounds(hub: Hub) -> None:
    for _ in range(60):
        hub.kernel.take(own_code())
    late = own_code()
    hub.kernel.take(late)
    assert hub.reported(late) == []


def test_the_first_cell_shows_why_it_waits_and_nothing_is_left_of_that(hub: Hub) -> None:
    first, second = cell(), cell()
    hub.kernel.show("nobody waits")
    assert not [one for one in hub.received if one.header()["msg_type"] != "status"]
    hub.kernel.take(first)
    hub.kernel.take(second)
    hub.kernel.show("place 3")
    hub.kernel.show("place 2")
    assert hub.reported(first) == ["display_data", "update_display_data"] and hub.reported(second) == []
    hub.kernel.end()
    assert hub.reported(first)[-1] == "clear_output"


def test_an_interrupt_ends_the_cells_like_a_kernel(hub: Hub) -> None:
    start_up, first, second = own_code(), cell(), cell()
    for asked in (start_up, first, second):
        hub.kernel.take(asked)
    hub.kernel.cancel_cells()
    assert hub.reported(first) == ["status", "execute_input", "error", "execute_reply", "status"]
    assert hub.reply(first)["ename"] == "KeyboardInterrupt" and hub.reply(second)["status"] == "aborted"
    assert hub.kernel.cells == []
    assert [one.parts for one in hub.kernel.end()] == [start_up.parts]


def test_cells_for_which_no_kernel_starts_end_with_the_reason(hub: Hub) -> None:
    work = cell()
    hub.kernel.take(work)
    hub.kernel.end_cells("SettingsError", "sbatch refused the job")
    assert hub.reply(work)["evalue"] == "sbatch refused the job"
    assert hub.kernel.active and hub.kernel.cells == []


def test_what_waits_survives_a_killed_hub_and_is_sent_once(tmp_path: Path) -> None:
    first = Hub(Delivered(tmp_path / "k1"))
    start_up, ended, work = own_code(), cell(), cell("2")
    first.kernel.take(start_up)
    first.kernel.take(ended)
    first.kernel.end_cells("SettingsError", "refused")
    first.kernel.take(work)

    second = Hub(Delivered(tmp_path / "k1"))
    assert [one.parts for one in second.kernel.cells] == [work.parts]
    assert [one.parts for one in second.kernel.end()] == [start_up.parts, work.parts]
    assert second.kernel.drops(Message(Channel.SHELL, 1, make("execute_reply", {}, start_up.parts[0])))
    assert not second.kernel.drops(Message(Channel.SHELL, 1, make("execute_reply", {}, work.parts[0])))

    third = Hub(Delivered(tmp_path / "k1"))
    assert third.kernel.end() == []


def test_a_damaged_file_of_waiting_requests_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "k1.waiting").write_text("w00\nno hex\n")
    assert Hub(Delivered(tmp_path / "k1")).kernel.end() == []


def test_what_stays_in_the_first_cell_follows_what_is_removed(hub: Hub) -> None:
    work = cell()
    hub.kernel.tell("The kernel had ended.")
    hub.kernel.take(work)
    hub.kernel.show("place 3")
    hub.kernel.end()
    assert hub.reported(work) == ["display_data", "clear_output", "display_data"]
    assert hub.received[-1].content()["data"] == {"text/plain": "The kernel had ended."}


def test_a_kernel_whose_cell_waits_is_busy(hub: Hub) -> None:
    hub.kernel.take(cell())
    assert hub.received[-1].content() == {"execution_state": "busy"}
