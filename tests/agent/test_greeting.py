"""The text in a front end's first cell: removed before the cell's own output, which waits until it could be read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import List

import pytest
from logs import FiledLog
from runtimes import make

from jupyter_gpu_kernel.agent.core.cell_texts import MAX_WAITING, READING_TIME, Greeting, GreetingText, Words
from jupyter_gpu_kernel.agent.core.effects import SetTimer
from jupyter_gpu_kernel.agent.core.events import GreetingChanged
from jupyter_gpu_kernel.agent.core.log import Log
from jupyter_gpu_kernel.agent.core.reattach import Reattach
from jupyter_gpu_kernel.agent.kernel_settings import KernelSettings
from jupyter_gpu_kernel.agent.log.state import LogState
from jupyter_gpu_kernel.wire.messages import Channel, Lane, Message
from jupyter_gpu_kernel.wire.runtime import EventRuntime

HINT = "%gpu missed"
HEADER = json.dumps({"msg_id": "cell", "msg_type": "execute_request"}).encode()
REQUEST = Message(Channel.SHELL, 1, (HEADER, b"{}", b"{}", b"{}"))


class Hub:
    """What the hub gets of a cell that is greeted."""

    def __init__(self, seconds: float, stays: str = "") -> None:
        self.sent: List[str] = []
        self.log = Log(EventRuntime("test"), LogState(), False)
        self.greeting = Greeting(self.log)
        self._gets(self.greeting.show(REQUEST, Words("Back.", seconds, stays)))

    def _gets(self, messages: List[Message]) -> None:
        self.sent += [message.msg_type for message in messages]

    def sends(
        self, msg_type: str, channel: Channel = Channel.IOPUB, text: str = "x", of: bytes = HEADER
    ) -> None:
        self._gets(self.greeting.pass_on(Message(channel, 0, make(msg_type, {"text": text}, of))))

    def wait(self) -> None:
        """The time comes for which a timer was set."""
        (timer,) = self.log.effects
        assert isinstance(timer, SetTimer)
        self.log.runtime.clocks = (timer.at, timer.at)
        self._gets(self.greeting.end_when_read())


def test_output_waits_until_the_text_could_be_read() -> None:
    assert READING_TIME >= 2.0, "nobody reads faster"
    hub = Hub(READING_TIME)
    for msg_type in ("execute_input", "stream", "execute_result"):
        hub.sends(msg_type)
    assert hub.sent == ["display_data", "execute_input"]
    hub.wait()
    assert hub.sent[2:] == ["clear_output", "stream", "execute_result"]
    hub.sends("stream")
    assert hub.sent[5:] == ["stream"]


def test_that_output_is_missing_stays_in_the_cell() -> None:
    """Who looked away for a moment would not know."""
    hub = Hub(READING_TIME, stays=HINT)
    hub.sends("stream")
    hub.wait()
    assert hub.sent == ["display_data", "update_display_data", "stream"]
    assert hub.greeting.end() == []


def test_what_needs_no_reading_a_question_and_much_output_do_not_wait() -> None:
    hub = Hub(0.0)
    hub.sends("stream")
    assert hub.sent == ["display_data", "clear_output", "stream"]
    hub = Hub(READING_TIME)
    hub.sends("input_request", Channel.STDIN)
    assert hub.sent == ["display_data", "clear_output", "input_request"]
    hub = Hub(READING_TIME)
    hub.sends("stream", text="x" * MAX_WAITING)
    assert hub.sent == ["display_data", "clear_output", "stream"]


def test_states_of_requests_that_are_no_cells_do_not_wait() -> None:
    """The keeper may have made them, and its successor would not know them."""
    hub = Hub(READING_TIME)
    for msg_type in ("stream", "status"):
        hub.sends(msg_type)
    for msg_type in ("status", "comm_msg"):
        hub.sends(msg_type, of=b'{"msg_id": "info", "msg_type": "kernel_info_request"}')
    assert hub.sent == ["display_data", "status"]
    hub.wait()
    assert hub.sent[2:] == ["clear_output", "stream", "status", "comm_msg"]


@pytest.mark.parametrize("waits", [True, False])
def test_a_busy_state_without_a_request_stays_behind_the_idle_state_that_it_corrects(waits: bool) -> None:
    hub = Hub(READING_TIME)
    hub.sends("stream")
    idle = make(
        "status", {"execution_state": "idle"}, HEADER if waits else b'{"msg_type": "kernel_info_request"}'
    )
    busy = make("status", {"execution_state": "busy"})
    states = [Message(Channel.IOPUB, 0, parts) for parts in (idle, busy)]
    assert [one for state in states for one in hub.greeting.pass_on(state)] == ([] if waits else states)
    assert hub.greeting.end()[2:] == (states if waits else [])


def test_what_waits_is_not_lost_with_the_front_end() -> None:
    hub = Hub(READING_TIME)
    hub.sends("stream")
    assert [message.msg_type for message in hub.greeting.withdraw()] == ["stream"]
    hub.wait()
    assert hub.sent == ["display_data"]


class Kernel:
    """A kernel to which somebody returns."""

    def __init__(self, folder: Path) -> None:
        self.log = FiledLog(folder, KernelSettings())
        self.reattach = Reattach(self.log)
        self.text = GreetingText(KernelSettings(id="k1", program="gpu-kernel"), "node", self.reattach)

    def add_cell(self, cell_id: str) -> Message:
        parts = make("execute_request", {"code": "f()"}, metadata={"cellId": cell_id})
        self.log.receive([0, 0, 0], Message(Channel.SHELL, 1, parts))
        return Message(Channel.SHELL, 1, parts)

    def return_(self) -> None:
        self.log.leaves()
        self.reattach.begin([], 3600)
        self.text.front_end_returned([])

    def greeting(self) -> str:
        return self.text.take([])[0]


@pytest.mark.parametrize(
    "cell_id, reads_journal, helps", [("c1", True, False), ("c1", False, True), ("", True, True)]
)
def test_the_magic_is_named_where_the_page_does_not_fill_the_cells(
    tmp_path: Path, cell_id: str, reads_journal: bool, helps: bool
) -> None:
    kernel = Kernel(tmp_path)
    kernel.add_cell(cell_id)
    kernel.return_()
    if reads_journal:
        kernel.reattach.history_read()
    words = kernel.text.take([])
    assert (HINT in words.text) == (HINT in words.stays) == helps


def test_a_cell_that_asked_the_one_who_left_is_named_until_it_has_the_answer(tmp_path: Path) -> None:
    """The cells of the new front end wait for it, and nobody is asked again."""
    kernel = Kernel(tmp_path)
    cell = kernel.add_cell("c1")
    asked = Message(Channel.STDIN, 1, make("input_request", {"prompt": "?"}, cell.parts[0]))
    kernel.log.send(Lane.URGENT, asked)
    kernel.return_()
    greeting = kernel.greeting()
    assert "waiting for input: f()" in greeting and "interrupt the kernel" in greeting
    kernel.log.receive([0, 0, 0], Message(Channel.STDIN, 1, make("input_reply", {"value": "1"})))
    kernel.return_()
    assert "input" not in kernel.greeting()


def test_cells_know_that_their_front_end_has_left(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path)
    kernel.add_cell("c1")
    kernel.return_()
    kernel.add_cell("c2")
    assert [cell.front_end_left for cell in kernel.log.state.cells.cells.values()] == [True, False]


def test_only_a_text_that_the_user_must_know_delays_the_output(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path)
    kernel.text.front_end_returned([])
    text, seconds, _ = kernel.text.take([])
    assert "Back on kernel k1" in text and seconds == 0.0
    for tell in (
        lambda: kernel.text.front_end_returned(["0123456789ab"]),
        lambda: (kernel.add_cell("c1"), kernel.return_()),
        lambda: kernel.text.change(*GreetingChanged("notice", "It has moved.")),
        lambda: kernel.text.change(*GreetingChanged("warning", "It ends soon.")),
    ):
        tell()
        assert kernel.text.take([])[1] == READING_TIME


def test_a_missed_cell_is_named_until_it_was_named_as_ended(tmp_path: Path) -> None:
    """Else each return to this kernel delays the first cell, until the user runs the magic."""
    kernel = Kernel(tmp_path)
    cell = kernel.add_cell("c1")
    kernel.return_()
    assert "still waiting: f()" in kernel.greeting()
    reply = make("execute_reply", {"status": "ok", "execution_count": 1}, cell.parts[0])
    kernel.log.add("keep", Message(Channel.SHELL, 1, reply))
    kernel.return_()
    text, seconds, _ = kernel.text.take([])
    assert "ok at 01:00:00: [1] f()" in text and seconds == READING_TIME, "by local time"
    kernel.text.front_end_returned([])
    text, seconds, _ = kernel.text.take([])
    assert "f()" not in text and HINT not in text and seconds == 0.0
    assert [one.code for one in kernel.reattach.missed] == ["f()"], "the magic has it still"


def test_what_was_read_before_the_return_fills_nothing(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path)
    kernel.add_cell("c1")
    kernel.reattach.history_read()
    kernel.return_()
    assert HINT in kernel.greeting()


def test_a_fresh_kernels_gpus_have_the_names_that_users_know(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path)
    kernel.text.change(*GreetingChanged("replaced", "k0"))
    names = ["GPU 0 (NVIDIA A100)", "GPU 3 (NVIDIA A100)"]
    text, *_ = kernel.text.take(names)
    assert f" with {', '.join(names)}; the previous one, k0, has ended" in text
