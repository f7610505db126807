"""Which cells are aborted: those of the same front end, until it is known to have the failed one's reply."""

from __future__ import annotations

from typing import Any

from runtimes import make

from jupyter_gpu_kernel.agent.log.requests import MAX_REQUESTS, Aborts, Requests
from jupyter_gpu_kernel.wire.kernel_messages.compose import aborted_reply, error_reply
from jupyter_gpu_kernel.wire.messages import Channel, Message


def request(client: int = 1, **content: Any) -> Message:
    return Message(Channel.SHELL, client, make("execute_request", dict(content, code="c")))


def fails(requests: Requests, cell: Message, content: Any = None) -> str:
    """The cell's msg_id."""
    requests.add(cell)
    parts = make("execute_reply", content or error_reply("E", "v", 1), cell.parts[0])
    requests.observe(Message(Channel.SHELL, cell.client, parts))
    return cell.msg_id


def test_from_the_failure_until_it_is_seen() -> None:
    requests = Requests()
    aborts = requests.aborts
    failed = fails(requests, request())
    assert aborts.should_abort(request()) and not aborts.should_abort(request(client=2))
    aborts.failure_seen(failed)
    assert not aborts.should_abort(request())


def test_to_have_seen_one_does_not_do_for_a_later_one() -> None:
    requests = Requests()
    aborts = requests.aborts
    first = fails(requests, request())
    second = fails(requests, request())
    aborts.failure_seen(first)
    assert aborts.should_abort(request())
    mark = aborts.unseen_failures()
    assert mark is not None and mark.content()["replies"] == [second]
    aborts.failure_seen(second)
    assert not aborts.should_abort(request()) and aborts.unseen_failures() is None


def test_only_failures_that_ask_for_it() -> None:
    requests = Requests()
    aborts = requests.aborts
    fails(requests, request(stop_on_error=False))
    fails(requests, request(silent=True))
    fails(requests, request(), {"status": "ok"})
    fails(requests, request(), aborted_reply())
    assert not aborts.should_abort(request()) and aborts.unseen_failures() is None


def test_another_front_end_begins_anew() -> None:
    requests = Requests()
    aborts = requests.aborts
    fails(requests, request())
    aborts.clear()
    assert not aborts.should_abort(request()) and aborts.unseen_failures() is None


def test_a_cell_that_an_interrupt_overtook_does_not_run() -> None:
    aborts = Aborts()
    before, after = request(), request()
    aborts.cancel([str(before.header()["msg_id"])])
    aborts.cancel([])  # by another hub, or by the panel
    assert aborts.should_abort(before) and not aborts.should_abort(after)
    aborts.cancel(map(str, range(MAX_REQUESTS)))
    assert not aborts.should_abort(before), "as many as may wait are remembered"


def test_an_interrupt_names_cells_that_have_arrived() -> None:
    """They run, or have to wait for the kernel; another client may send a cell with the same msg_id."""
    requests, arrived, on_its_way = Requests(), request(), request()
    requests.add(arrived)
    command = {"do": "cancel", "cells": [arrived.msg_id, on_its_way.msg_id]}
    requests.aborts.handle(command, requests.pending.values())
    assert not requests.aborts.should_abort(arrived) and requests.aborts.should_abort(on_its_way)
