"""The line in which requests wait for the kernel, for code and for GPUs: who goes on when, and who ends with whom."""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from moves import lines
from relays import Exchange
from runtimes import make

from jupyter_gpu_kernel.agent.core.cell_texts import GREETING_TIMER
from jupyter_gpu_kernel.agent.core.events import (
    GreetingChanged,
    KernelEnded,
    KernelGone,
    KernelStarting,
    KernelUp,
    TimerDue,
)
from jupyter_gpu_kernel.wire.kernel_messages.compose import error_reply
from jupyter_gpu_kernel.wire.messages import Channel, Message, keeper_message


@pytest.fixture
def exchange(tmp_path: Path) -> Exchange:
    return Exchange(tmp_path)


def cell(exchange: Exchange, code: str = "f()", *, stops: bool = True, by_user: bool = True) -> str:
    """Run a cell; return its msg_id."""
    header = exchange.asks("execute_request", code=code, stop_on_error=stops, store_history=by_user)
    return Message(Channel.SHELL, 1, (header, b"{}", b"{}", b"{}")).msg_id


def line(exchange: Exchange) -> list[tuple[str, str]]:
    """The msg_ids of those that wait, and their reasons."""
    exchange.core.validate()
    return [(one.request.msg_id, one.reason.name) for one in exchange.relay.waiting.line]


def passed(exchange: Exchange) -> list[str]:
    """The cells that the kernel has got, without the keeper's own requests."""
    return [one.msg_id for one in exchange.passed if one.client and one.msg_type == "execute_request"]


def replies(exchange: Exchange) -> dict[str, str]:
    """What each cell was replied: its status, or the name of the error."""
    found = [one for one in exchange.received if one.msg_type == "execute_reply"]
    assert max(Counter(one.parent_id for one in found).values(), default=1) == 1, "replied twice"
    return {one.parent_id: str(one.content().get("ename", one.content()["status"])) for one in found}


def ends(exchange: Exchange, msg_id: str) -> tuple[Callable[[], None], Callable[[], None]]:
    """Functions by which the kernel sends the reply to this cell, and its idle status."""
    header = next(one.parts[0] for one in exchange.passed if one.msg_id == msg_id)
    reply = {"status": "ok", "execution_count": 1}
    return (
        lambda: exchange.sends(Channel.SHELL, "execute_reply", reply, header),
        lambda: exchange.is_("idle", header),
    )


def runs(exchange: Exchange, msg_id: str) -> None:
    for step in ends(exchange, msg_id):
        step()


def test_a_cell_that_comes_while_a_reply_is_held_stays_behind_the_others(exchange: Exchange) -> None:
    """The last cell of the front end that has left has its reply, but its idle status has not come."""
    old = cell(exchange)
    exchange.return_()
    first = cell(exchange)
    reply, idle = ends(exchange, old)
    reply()
    second = cell(exchange)
    assert line(exchange)[1:] == [(first, "FORMER_CELLS"), (second, "FORMER_CELLS")]
    idle()
    assert passed(exchange) == [old, first, second]


def test_where_a_front_end_has_left_the_work_grows_with_the_number_of_cells(tmp_path: Path) -> None:
    """Not with its square: what is counted are calls of functions, and steps of generators."""
    calls = [0, 0]
    for number, (name, cells) in enumerate((("few", 400), ("many", 800))):
        exchange = Exchange(tmp_path / name)
        exchange.return_()
        old = cell(exchange)
        exchange.return_()
        runs(exchange, old)

        def count(frame: object, event: str, argument: object, number: int = number) -> None:
            calls[number] += event == "call"

        sys.setprofile(count)
        try:
            asked = [cell(exchange) for _ in range(cells)]
        finally:
            sys.setprofile(None)
        assert passed(exchange) == [old, *asked]
    assert calls[1] < 2.2 * calls[0]


@pytest.mark.parametrize("stops", [True, False])
def test_a_cell_that_comes_while_the_reply_of_a_failed_one_is_held_does_not_run(
    exchange: Exchange, stops: bool
) -> None:
    """The kernel has aborted what it had; this cell comes between the reply to the failed cell and its idle status."""
    failed = cell(exchange, stops=stops)
    header = next(one.parts[0] for one in exchange.passed if one.msg_id == failed)
    exchange.sends(Channel.SHELL, "execute_reply", error_reply("ValueError", "v", 1), header)
    late = cell(exchange)
    own = Message(Channel.SHELL, 2, make("execute_request", {"code": "f()"}))
    exchange.receive(own)
    assert passed(exchange) == ([failed, own.msg_id] if stops else [failed, late, own.msg_id])
    exchange.is_("idle", header)
    assert replies(exchange) == ({failed: "ValueError", late: "aborted"} if stops else {failed: "ValueError"})


def test_a_cell_that_comes_while_a_greeting_holds_the_reply_of_a_failed_one_does_not_run(
    exchange: Exchange,
) -> None:
    exchange.handle(GreetingChanged("notice", "It has moved."))
    failed = cell(exchange, stops=True)
    header = next(one.parts[0] for one in exchange.passed if one.msg_id == failed)
    exchange.is_("idle", header)
    exchange.sends(Channel.SHELL, "execute_reply", error_reply("ValueError", "v", 1), header)
    assert replies(exchange) == {}, "the greeting is to be read"
    late = cell(exchange)
    assert passed(exchange) == [failed]
    exchange.relay.greeting._until = 0.0
    exchange.handle(TimerDue(GREETING_TIMER))
    assert replies(exchange) == {failed: "ValueError", late: "aborted"}


def test_code_that_a_front_end_runs_for_itself_passes_cells_of_users(exchange: Exchange) -> None:
    exchange.lose_gpus()
    users, own = cell(exchange), cell(exchange, by_user=False)
    assert line(exchange) == [(users, "GPUS"), (own, "REPLY")] and passed(exchange) == [own]


def test_what_waits_for_the_kernel_goes_on_in_order(exchange: Exchange) -> None:
    exchange.handle(KernelGone())
    first = cell(exchange)
    exchange.asks("comm_msg")
    second = cell(exchange)
    assert [reason for _, reason in line(exchange)] == ["KERNEL"] * 3 and not passed(exchange)
    exchange.handle(KernelUp({}))
    assert [one.msg_type for one in exchange.passed] == ["execute_request", "comm_msg", "execute_request"]
    assert passed(exchange) == [first, second]


def test_cells_wait_for_the_code_that_the_first_one_names(exchange: Exchange) -> None:
    """A cell with nothing else in it needs no GPU; the others wait for the GPUs then."""
    exchange.starts()
    exchange.lose_gpus()
    names, other = cell(exchange, "%gpu code v1"), cell(exchange)
    assert line(exchange) == [(names, "CODE"), (other, "CODE")] and exchange.wanted == "v1"
    exchange.pinned()
    assert line(exchange) == [(names, "REPLY"), (other, "GPUS")] and not exchange.wanted
    exchange.get_gpus()
    assert passed(exchange) == [names, other]


@pytest.mark.parametrize("stops", [True, False])
def test_code_that_cannot_be_pinned(exchange: Exchange, stops: bool) -> None:
    """Cells behind the one that has named it are aborted, or the next one is the first and may name code."""
    exchange.starts()
    wrong, right = cell(exchange, "%gpu code v1", stops=stops), cell(exchange, "%gpu code v2")
    other = cell(exchange)
    exchange.pinned("no such commit")
    if stops:
        assert replies(exchange) == {wrong: "CodeError", right: "aborted", other: "aborted"}
    else:
        assert replies(exchange) == {wrong: "CodeError"} and exchange.wanted == "v2"
        assert line(exchange) == [(right, "CODE"), (other, "CODE")]
        exchange.pinned()
        assert passed(exchange) == [right, other]


def test_an_interrupt_cancels_what_is_pinned(exchange: Exchange) -> None:
    exchange.starts()
    first = cell(exchange, "%gpu code v1")
    exchange.interrupt()
    assert replies(exchange) == {first: "KeyboardInterrupt"} and not exchange.wanted


def test_cells_behind_one_that_gives_up_waiting(exchange: Exchange) -> None:
    """One that does not stop others leaves them where they are."""
    exchange.lose_gpus()
    cells = [cell(exchange, stops=stops) for stops in (False, True, True)]
    exchange.interrupt()
    assert line(exchange) == [(one, "GPUS") for one in cells[1:]]
    exchange.asks("interrupt_request", Channel.CONTROL)
    assert replies(exchange) == dict(
        zip(cells, ("KeyboardInterrupt", "KeyboardInterrupt", "aborted"), strict=True)
    )
    assert not line(exchange)


def test_the_end_of_the_kernel_ends_all_but_what_is_for_the_next_process(exchange: Exchange) -> None:
    runs_now, own = cell(exchange), cell(exchange, by_user=False)
    exchange.lose_gpus()
    waits = cell(exchange)
    reply, _ = ends(exchange, runs_now)
    reply()
    exchange.handle(KernelGone())
    late = cell(exchange)
    exchange.handle(KernelEnded("it has crashed", False))
    assert replies(exchange) == {runs_now: "ok", own: "DeadKernelError", waits: "DeadKernelError"}
    assert line(exchange) == [(late, "KERNEL")]


def test_a_line_can_be_read(exchange: Exchange) -> None:
    exchange.lose_gpus()
    users, own = cell(exchange), cell(exchange, by_user=False)
    text = f"<Waiting [user's cell {users} for GPUS, execute_request {own} for REPLY]>"
    assert repr(exchange.relay.waiting) == text


def test_a_cell_costs_the_same_however_many_wait(tmp_path: Path) -> None:
    """When the kernel is up all cells go to it, and then each is replied to."""
    costs = []
    for count in (20, 400):
        (tmp_path / str(count)).mkdir()
        exchange = Exchange(tmp_path / str(count))
        exchange.handle(KernelGone())
        cells = [cell(exchange) for _ in range(count)]
        up = lines(exchange.handle, KernelUp({}))
        steps = [step for one in cells[:5] for step in ends(exchange, one)]
        costs.append((up / count, sum(lines(step) for step in steps)))
        assert list(replies(exchange)) == cells[:5]
    few, many = costs
    assert many[0] < 1.1 * few[0] and many[1] < 1.1 * few[1]


class Life:
    """A kernel and its front ends, which do something at random. `step` checks what must be true at any time."""

    def __init__(self, exchange: Exchange, seed: int) -> None:
        self.exchange = exchange
        self.random = random.Random(seed)
        self.cells: list[str] = []
        self.by_users: list[str] = []
        self.begun: list[Callable[[], None]] = []
        self.ended: set[str] = set()
        self.is_up = True

    def step(self) -> None:
        steps = [
            self.run,
            self.run,
            self.run,
            self.go_on,
            self.go_on,
            self.pin,
            self.lose,
            self.restart,
            self.up,
        ]
        steps += [self.exchange.get_gpus, self.exchange.return_, self.interrupt, self.see_failures]
        steps += [self.read]
        do = self.random.choice(steps)
        do()
        self.check()

    def check(self) -> None:
        self.exchange.core.validate()
        replies(self.exchange)
        got = [one for one in passed(self.exchange) if one in self.by_users]
        assert got == sorted(got, key=self.by_users.index), "a user's cell has passed another one"

    def run(self) -> None:
        by_user = self.random.random() < 0.7
        code = self.random.choice(["f()", "%gpu code v1", "%gpu code v2\ng()"])
        self.cells.append(cell(self.exchange, code, stops=self.random.random() < 0.5, by_user=by_user))
        self.by_users += self.cells[-1:] if by_user else []

    def read(self) -> None:
        """The user has read the greeting."""
        self.exchange.relay.greeting._until = 0.0
        self.exchange.handle(TimerDue(GREETING_TIMER))

    def go_on(self) -> None:
        """The kernel begins with its next cell, or sends the next message about the present one."""
        todo = [one for one in passed(self.exchange) if one not in self.ended]
        if not self.begun and todo and self.is_up:
            self.ended.add(todo[0])
            self.begun = list(ends(self.exchange, todo[0]))
            self.random.shuffle(self.begun)
            self.exchange.is_(
                "busy", next(one.parts[0] for one in self.exchange.passed if one.msg_id == todo[0])
            )
        elif self.begun:
            self.begun.pop()()

    def lose(self) -> None:
        if self.exchange.relay.waiting.first_cell is None:
            self.exchange.lose_gpus()

    def pin(self) -> None:
        if self.exchange.wanted:
            self.exchange.pinned(self.random.choice(["", "no such commit"]))

    def interrupt(self) -> None:
        if not self.exchange.relay._can_be_interrupted:
            self.exchange.asks("interrupt_request", Channel.CONTROL)

    def see_failures(self) -> None:
        for msg_id in replies(self.exchange):
            seen = keeper_message(do="failure_seen", reply=msg_id)
            self.exchange.receive(seen)

    def restart(self) -> None:
        if self.is_up and self.random.random() < 0.3:
            self.is_up, self.begun = False, []
            self.ended.update(passed(self.exchange))
            self.exchange.crashes()
            self.exchange.handle(KernelStarting())

    def up(self) -> None:
        if not self.is_up:
            self.is_up = True
            self.exchange.handle(KernelUp({}))

    def finish(self) -> None:
        """Whatever cells wait for comes."""
        self.up()
        for _ in range(5 * len(self.cells) + 5):
            self.pin()
            self.exchange.get_gpus()
            self.read()
            self.go_on()
            self.check()


@pytest.mark.parametrize("seed", range(150))
def test_every_cell_is_answered_once_and_no_users_cell_passes_another(exchange: Exchange, seed: int) -> None:
    life = Life(exchange, seed)
    for _ in range(60):
        life.step()
    life.finish()
    assert not exchange.relay.waiting.line
    assert not [one for one in exchange.core.log.state.requests.pending.values() if one.is_cell]
