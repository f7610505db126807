"""Which cells are aborted: those of the same front end, until it is known to have the failed one's reply."""

from __future__ import annotations

from typing import Any

from jupyter_gpu_kernel.agent.relay.aborts import Aborts
from jupyter_gpu_kernel.wire.compose import aborted_reply, error_reply, make
from jupyter_gpu_kernel.wire.messages import Channel, Message


def request(client: int = 1, **content: Any) -> Message:
    return Message(Channel.SHELL, client, make("execute_request", dict(content, code="c")))


def fails(aborts: Aborts, cell: Message, content: Any = None) -> str:
    """The cell's msg_id."""
    aborts.asked(cell)
    parts = make("execute_reply", content or error_reply("E", "v", 1), cell.parts[0])
    aborts.replied(str(cell.header()["msg_id"]), Message(Channel.SHELL, cell.client, parts))
    return str(cell.header()["msg_id"])


def test_from_the_failure_until_it_is_heard_of() -> None:
    aborts = Aborts()
    failed = fails(aborts, request())
    assert aborts.aborts(request()) and not aborts.aborts(request(client=2))
    aborts.heard(failed)
    assert not aborts.aborts(request())


def test_to_have_heard_of_one_does_not_do_for_a_later_one() -> None:
    aborts = Aborts()
    first = fails(aborts, request())
    second = fails(aborts, request())
    aborts.heard(first)
    assert aborts.aborts(request())
    mark = aborts.mark()
    assert mark is not None and mark.content()["replies"] == [second]
    aborts.heard(second)
    assert not aborts.aborts(request()) and aborts.mark() is None


def test_only_failures_that_ask_for_it() -> None:
    aborts = Aborts()
    fails(aborts, request(stop_on_error=False))
    fails(aborts, request(silent=True))
    fails(aborts, request(), {"status": "ok"})
    fails(aborts, request(), aborted_reply())
    assert not aborts.aborts(request()) and aborts.mark() is None


def test_another_front_end_begins_anew() -> None:
    aborts = Aborts()
    fails(aborts, request())
    aborts.forget()
    assert not aborts.aborts(request()) and aborts.mark() is None


def test_a_cell_that_an_interrupt_overtook_does_not_run() -> None:
    aborts = Aborts()
    before, after = request(), request()
    aborts.interrupted([str(before.header()["msg_id"])])
    assert aborts.aborts(before) and not aborts.aborts(after)
