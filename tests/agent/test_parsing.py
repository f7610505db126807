"""A message is parsed once on its way through the keeper, and what waits is kept as bytes."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any, Callable, List

import pytest
from relays import Exchange
from runtimes import make

from jupyter_gpu_kernel.agent.core.events import HubDetached
from jupyter_gpu_kernel.agent.log.cells import LoggedCells
from jupyter_gpu_kernel.wire.fields import load_object
from jupyter_gpu_kernel.wire.messages import Channel, Message


def parsed(run: Callable[[], object]) -> List[bytes]:
    """Return the JSON texts that are parsed while `run()` runs."""
    texts: List[bytes] = []

    def profile(frame: FrameType, event: str, arg: Any) -> None:
        if event == "call" and frame.f_code is load_object.__code__:
            texts.append(frame.f_locals["data"])

    sys.setprofile(profile)
    try:
        run()
    finally:
        sys.setprofile(None)
    return texts


def message(channel: Channel, msg_type: str, content: Any, parent: bytes = b"{}") -> Message:
    """Return a message as it is read from a socket: no two parts are the same object."""
    parts = make(msg_type, content, parent, metadata={"cellId": "c1"})
    return Message(channel, 1, tuple(bytes(bytearray(part)) for part in parts))


@pytest.mark.parametrize("attached", [True, False])
def test_a_cell_that_runs(tmp_path: Path, attached: bool) -> None:
    exchange = Exchange(tmp_path)
    if not attached:
        exchange.handle(HubDetached())
    request = message(Channel.SHELL, "execute_request", {"code": "print(1)"})
    answers = [
        message(channel, msg_type, content, request.parts[0])
        for channel, msg_type, content in [
            (Channel.IOPUB, "status", {"execution_state": "busy"}),
            (Channel.IOPUB, "execute_input", {"code": "print(1)", "execution_count": 1}),
            (Channel.IOPUB, "stream", {"name": "stdout", "text": "1\n"}),
            (Channel.IOPUB, "display_data", {"data": {"text/plain": "2"}, "metadata": {}}),
            (Channel.SHELL, "execute_reply", {"status": "ok", "execution_count": 1}),
            (Channel.IOPUB, "status", {"execution_state": "idle"}),
        ]
    ]

    def run() -> None:
        exchange.receive(request)
        for answer in answers:
            exchange.kernel_sends(answer)

    texts = parsed(run)
    types = sorted(one.msg_type for one in answers) if attached else []
    assert sorted(one.msg_type for one in exchange.received) == types
    for one in (request, *answers):
        counts = [sum(text is part for text in texts) for part in one.parts]
        assert max(counts) == 1, (one.msg_type, counts)
    assert len(texts) <= 3 * len(answers) + 4, "something else is parsed as well"


def test_messages_that_wait_are_kept_as_bytes() -> None:
    cells = LoggedCells()
    request = message(Channel.SHELL, "execute_request", {"code": "f()"})
    cells.add_request(request)
    shown = message(Channel.IOPUB, "display_data", {"data": {"text/plain": "x" * 100}}, request.parts[0])
    cells.add_message(shown, 0.0)
    for _ in range(2):
        assert parsed(lambda: cells.page(request.msg_id, 0)), "the parsed content was kept"


def test_a_copy_shares_what_is_the_same() -> None:
    first = message(Channel.SHELL, "execute_request", {"code": "f()"})
    first.header(), first.content()
    copy = first.replace(client=2)
    assert parsed(copy.header) == [] and parsed(copy.content) == [] and copy.client == 2
    other = first.replace(parts=(*first.parts[:3], b'{"code": "g()"}'))
    assert other.content() == {"code": "g()"} and first.content() == {"code": "f()"}
    assert first != copy and first != other and first == first.unparsed()
