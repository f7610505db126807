"""Which states front ends hear: each request's busy and idle, and what the kernel does all the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from relays import Exchange
from runtimes import make

from jupyter_gpu_kernel.agent.core.events import GpusChanged, KernelUp
from jupyter_gpu_kernel.agent.core.waiting import Reason
from jupyter_gpu_kernel.agent.log import requests as log_requests
from jupyter_gpu_kernel.wire.messages import Channel, Message


@pytest.fixture
def exchange(tmp_path: Path) -> Exchange:
    return Exchange(tmp_path)


def runs(exchange: Exchange, code: str = "f()") -> bytes:
    cell = exchange.asks("execute_request", code=code)
    exchange.is_("busy", cell)
    return cell


def ends(exchange: Exchange, cell: bytes) -> None:
    exchange.sends(Channel.SHELL, "execute_reply", {"status": "ok", "execution_count": 1}, cell)
    exchange.is_("idle", cell)


def headers(exchange: Exchange, reason: Reason) -> list[bytes]:
    """The headers of the requests that wait for this."""
    exchange.core.validate()
    return [one.request.parts[0] for one in exchange.relay.waiting.all(reason)]


def test_a_request_on_the_control_channel_does_not_say_that_the_cell_has_ended(exchange: Exchange) -> None:
    """A page of JupyterLab creates a subshell when it is loaded, and takes that idle for the kernel's."""
    cell = runs(exchange)
    subshell = exchange.asks("create_subshell_request", Channel.CONTROL)
    exchange.is_("busy", subshell)
    exchange.is_("idle", subshell)
    of_subshell = [(state, "create_subshell_request") for state in ("busy", "idle")]
    assert exchange.states() == [("busy", "execute_request"), *of_subshell, ("busy", "")]
    ends(exchange, cell)
    assert exchange.states() == [("idle", "execute_request")]


def test_requests_that_are_answered_here_wait_no_longer(
    exchange: Exchange, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel that is busy for long gets its last request as well as its first."""
    monkeypatch.setattr(log_requests, "MAX_REQUESTS", 3)
    runs(exchange)
    for _ in range(9):
        request = Message(Channel.SHELL, 1, make("kernel_info_request", {}))
        exchange.receive(request)
    assert not [one for one in exchange.received if one.content().get("ename") == "QueueFull"]


def test_cells_one_after_the_other_have_no_other_states(exchange: Exchange) -> None:
    first = runs(exchange)
    second = exchange.asks("execute_request", code="g()")
    ends(exchange, first)
    exchange.is_("busy", second)
    ends(exchange, second)
    assert exchange.states() == [(state, "execute_request") for state in ("busy", "idle") * 2]


def test_who_returns_hears_when_the_cells_of_the_one_who_left_have_ended(exchange: Exchange) -> None:
    """These cells' own states are kept from it; what it received of the kernel is that it is busy."""
    first = runs(exchange)
    second = exchange.asks("execute_request", code="g()")
    exchange.return_()
    exchange.states()
    exchange.asks("kernel_info_request")
    assert exchange.states()[-1] == ("busy", "")
    exchange.is_("idle", first)  # ahead of its reply
    assert exchange.states() == [("busy", "")], "another one is next"
    exchange.sends(Channel.SHELL, "execute_reply", {"status": "ok", "execution_count": 1}, first)
    exchange.is_("busy", second)
    ends(exchange, second)
    assert exchange.states() == [("idle", "")]


def test_code_that_was_answered_ahead_leaves_nobody_busy(exchange: Exchange) -> None:
    """It waited behind the cell of somebody who left; nobody hears of it when it runs."""
    cell = runs(exchange)
    exchange.return_()
    own = exchange.asks("execute_request", code="f()", silent=True, store_history=False)
    ends(exchange, cell)
    exchange.states()
    exchange.is_("busy", own)
    exchange.asks("kernel_info_request")
    assert exchange.states()[-1] == ("busy", "")
    ends(exchange, own)
    assert exchange.states() == [("idle", "")]


def test_who_returns_while_a_cell_waits_for_gpus_hears_so_at_once(exchange: Exchange) -> None:
    """Its own cell comes next, and does not end with the one that waits. A front end's own code needs no GPU."""
    exchange.lose_gpus()
    before = [exchange.asks("execute_request", code=code) for code in ("old()", "older()")]
    exchange.handle(GpusChanged(False, [], "Waiting for 1 GPU on node."))
    exchange.return_()
    exchange.received.clear()
    cell = exchange.asks("execute_request", code="new()")
    shown = [str(one.content()) for one in exchange.received if one.msg_type == "display_data"]
    assert len(shown) == 1 and all(text in shown[0] for text in ("still waiting: old()", "Waiting for 1 GPU"))
    own = exchange.asks("execute_request", code="1", store_history=False)
    assert [one.parts[0] for one in exchange.passed if one.msg_type == "execute_request"] == [own]
    assert headers(exchange, Reason.GPUS) == before and headers(exchange, Reason.FORMER_CELLS) == [cell]
    exchange.interrupt()
    assert headers(exchange, Reason.GPUS) == [cell]
    assert not any(one.msg_type == "execute_reply" and one.parts[1] == cell for one in exchange.received)


def test_a_successor_does_not_take_an_idle_kernel_for_busy(tmp_path: Path) -> None:
    """The kernel repeats a busy status that front ends had from the keeper, as the cell waited for GPUs."""
    killed = Exchange(tmp_path)
    killed.lose_gpus()
    cell = killed.asks("execute_request", code="f()")
    killed.get_gpus()
    said = [
        Message(channel, 1, make(msg_type, content, cell))
        for channel, msg_type, content in [
            (Channel.IOPUB, "status", {"execution_state": "busy"}),
            (Channel.SHELL, "execute_reply", {"status": "ok", "execution_count": 1}),
            (Channel.IOPUB, "status", {"execution_state": "idle"}),
        ]
    ]
    for one in said:
        killed.kernel_sends(one)
    killed.runner.log_file.flush()
    successor = Exchange(tmp_path, taken_over=True)
    for one in said:
        successor.kernel_sends(one)
    successor.handle(KernelUp({"status": "ok"}))
    assert successor.states() == [] and not successor.relay.busy


def test_a_successor_without_a_log_passes_on_a_reply_that_comes_behind_its_idle_status(
    tmp_path: Path,
) -> None:
    successor = Exchange(tmp_path, taken_over=True)
    successor.handle(KernelUp({"status": "ok"}))
    asked = successor.asks("complete_request")
    for state in ("busy", "idle"):
        successor.is_(state, asked)
    for _ in range(2):  # the kernel may repeat it
        successor.sends(Channel.SHELL, "complete_reply", {"status": "ok"}, asked)
    assert [one.msg_type for one in successor.received if one.channel is Channel.SHELL] == ["complete_reply"]


@pytest.mark.parametrize("taken_over", [False, True])
def test_clients_of_one_manager_get_their_replies(tmp_path: Path, taken_over: bool) -> None:
    """Both use the same msg_ids. The second reply comes before the idle status of the first cell."""
    exchange = Exchange(tmp_path)
    if taken_over:
        exchange.runner.log_file.flush()
        exchange = Exchange(tmp_path, taken_over=True)
        exchange.handle(KernelUp({"status": "ok"}))
    first = make("execute_request", {"code": "f()"})
    second = (first[0].replace(b'"date": "2', b'"date": "3'), *first[1:])
    third = (first[0].replace(b'"date": "2', b'"date": "4'), *first[1:])

    def replies(client: int, parts: tuple[bytes, ...]) -> None:
        reply = make("execute_reply", {"status": "ok", "execution_count": client}, parts[0])
        exchange.kernel_sends(Message(Channel.SHELL, client, reply))

    for client, parts in ((1, first), (2, second)):
        exchange.receive(Message(Channel.SHELL, client, parts))
    for client, parts in ((1, first), (2, second)):
        replies(client, parts)
    for parts in (first, second):
        exchange.is_("busy", parts[0])
        exchange.is_("idle", parts[0])
    exchange.receive(Message(Channel.SHELL, 3, third))  # a client that begins to count later
    exchange.is_("busy", third[0])
    replies(3, third)
    exchange.is_("idle", third[0])
    sent = [one.client for one in exchange.received if one.msg_type == "execute_reply"]
    assert sent == [1, 2, 3] and not exchange.relay.busy


def interrupts(exchange: Exchange) -> int:
    """How many interrupts the kernel has received."""
    exchange.core.validate()
    return sum(one.msg_type == "interrupt_request" for one in exchange.passed)


def has_input(exchange: Exchange, cell: bytes) -> None:
    exchange.sends(Channel.IOPUB, "execute_input", {"code": "f()", "execution_count": 1}, cell)


@pytest.mark.parametrize("by_request", [True, False])
def test_an_interrupt_reaches_the_kernel_when_the_cell_has_begun(
    exchange: Exchange, by_request: bool
) -> None:
    """Between cells ipykernel ignores interrupts, and after a stall a cell and its interrupt arrive together."""
    cell = exchange.asks("execute_request", code="f()")
    exchange.asks("interrupt_request", Channel.CONTROL) if by_request else exchange.interrupt()
    exchange.is_("busy", cell)
    assert interrupts(exchange) == 0
    has_input(exchange, cell)
    assert interrupts(exchange) == 1
    replies = [one for one in exchange.received if one.msg_type == "interrupt_reply"]
    assert len(replies) == by_request
    ends(exchange, cell)
    following = exchange.asks("execute_request", code="g()")
    exchange.is_("busy", following)
    has_input(exchange, following)
    assert interrupts(exchange) == 1
    exchange.interrupt()
    assert interrupts(exchange) == 2


def test_an_interrupt_is_for_the_message_of_a_widget_that_the_kernel_handles(exchange: Exchange) -> None:
    """The handler is user code, which may run for long; a cell waits behind it."""
    widget = exchange.asks("comm_msg", comm_id="c", data={})
    exchange.is_("busy", widget)
    exchange.asks("execute_request", code="f()")
    exchange.interrupt()
    assert interrupts(exchange) == 1


def test_an_interrupt_that_waits_for_its_cell_outlives_the_keeper(tmp_path: Path) -> None:
    killed = Exchange(tmp_path)
    cell = killed.asks("execute_request", code="f()")
    killed.interrupt()
    killed.runner.log_file.flush()
    successor = Exchange(tmp_path, taken_over=True)
    successor.handle(KernelUp({"status": "ok"}))
    successor.is_("busy", cell)
    has_input(successor, cell)
    assert interrupts(successor) == 1


def test_an_interrupt_that_waits_for_a_cell_that_had_waited_for_gpus_outlives_the_keeper(
    tmp_path: Path,
) -> None:
    """Front ends had the busy status of that cell from the keeper, before the kernel has begun it."""
    killed = Exchange(tmp_path)
    killed.lose_gpus()
    cell = killed.asks("execute_request", code="f()")
    killed.get_gpus()
    killed.interrupt()
    killed.runner.log_file.flush()
    successor = Exchange(tmp_path, taken_over=True)
    successor.handle(KernelUp({"status": "ok"}))
    has_input(successor, cell)
    assert interrupts(successor) == 1


def test_without_a_log_an_interrupt_goes_to_the_kernel_at_once(tmp_path: Path) -> None:
    """Nobody knows whether the kernel has begun the cells that it had from a killed keeper."""
    successor = Exchange(tmp_path, taken_over=True)
    successor.handle(KernelUp({"status": "ok"}))
    successor.asks("execute_request", code="f()")
    successor.interrupt()
    assert interrupts(successor) == 1


def test_an_interrupt_while_a_kernel_is_taken_over_reaches_the_running_cell(tmp_path: Path) -> None:
    killed = Exchange(tmp_path)
    has_input(killed, runs(killed))
    killed.runner.log_file.flush()
    successor = Exchange(tmp_path, taken_over=True)
    successor.asks("interrupt_request", Channel.CONTROL)
    assert interrupts(successor) == 0
    successor.handle(KernelUp({"status": "ok"}))
    assert interrupts(successor) == 1


def test_an_interrupt_is_for_the_users_cell_of_those_that_the_kernel_has_not_begun(
    exchange: Exchange,
) -> None:
    own = exchange.asks("execute_request", code="1", store_history=False)
    cell = exchange.asks("execute_request", code="f()")
    exchange.interrupt()
    exchange.is_("busy", own)
    ends(exchange, own)
    assert interrupts(exchange) == 0
    exchange.is_("busy", cell)
    has_input(exchange, cell)
    assert interrupts(exchange) == 1


def test_an_interrupt_does_not_hit_the_cell_after_the_one_that_it_was_for(exchange: Exchange) -> None:
    """The reply comes on another socket, and may overtake the cell's input."""
    cell = exchange.asks("execute_request", code="f()")
    exchange.interrupt()
    exchange.sends(Channel.SHELL, "execute_reply", {"status": "ok", "execution_count": 1}, cell)
    exchange.is_("busy", cell)
    has_input(exchange, cell)
    assert interrupts(exchange) == 0
