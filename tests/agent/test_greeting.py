"""The text in a front end's first cell: removed before the cell's own output, which waits until it could be read."""

from __future__ import annotations

import json
from typing import Callable, List, Tuple

from jupyter_gpu_kernel.agent.loop import Timer
from jupyter_gpu_kernel.agent.relay.greeting import MOST, Greeting
from jupyter_gpu_kernel.agent.relay.reattach import READING
from jupyter_gpu_kernel.wire.compose import make
from jupyter_gpu_kernel.wire.messages import Channel, Lane, Message

HEADER = json.dumps({"msg_id": "cell", "msg_type": "execute_request"}).encode()
REQUEST = Message(Channel.SHELL, 1, (HEADER, b"{}", b"{}", b"{}"))


class Hub:
    """What the hub gets of a cell that is greeted; timers are run by the test."""

    def __init__(self, seconds: float) -> None:
        self.sent: List[str] = []
        self.timers: List[Timer] = []
        self.greeting = Greeting(self._send, self._later)
        self.greeting.show(REQUEST, "Back.", seconds)

    def _send(self, lane: Lane, message: Message) -> None:
        self.sent.append(str(message.header()["msg_type"]))

    def _later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        self.timers.append(Timer(seconds, callback))
        return self.timers[-1]

    def says(self, msg_type: str, channel: Channel = Channel.IOPUB, text: str = "x") -> None:
        message = Message(channel, 0, make(msg_type, {"text": text}, HEADER))
        lane = Lane.URGENT if channel is Channel.STDIN else Lane.ORDERED
        if self.greeting.passes(lane, message, "cell"):
            self._send(lane, message)


def test_output_waits_until_the_text_could_be_read() -> None:
    assert READING >= 2.0, "nobody reads faster"
    hub = Hub(READING)
    for msg_type in ("execute_input", "stream", "execute_result"):
        hub.says(msg_type)
    assert hub.sent == ["display_data", "execute_input"]
    (timer,) = hub.timers
    timer.callback()
    assert hub.sent[2:] == ["clear_output", "stream", "execute_result"]
    hub.says("stream")
    assert hub.sent[5:] == ["stream"]


def test_what_needs_no_reading_a_question_and_much_output_do_not_wait() -> None:
    hub = Hub(0.0)
    hub.says("stream")
    assert hub.sent == ["display_data", "clear_output", "stream"]
    hub = Hub(READING)
    hub.says("input_request", Channel.STDIN)
    assert hub.sent == ["display_data", "clear_output", "input_request"]
    hub = Hub(READING)
    hub.says("stream", text="x" * MOST)
    assert hub.sent == ["display_data", "clear_output", "stream"]


def test_what_waits_is_not_lost_with_the_front_end() -> None:
    hub = Hub(READING)
    hub.says("stream")
    taken: List[Tuple[Lane, Message]] = hub.greeting.withdraw()
    assert [message.header()["msg_type"] for _, message in taken] == ["stream"]
    assert hub.timers[0].cancelled
