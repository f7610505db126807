"""What a new front end asks while cells of the one before it run: which of it is answered at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from logs import FiledLog
from relays import Exchange
from runtimes import make

from jupyter_gpu_kernel.agent.core.reattach import Reattach
from jupyter_gpu_kernel.agent.kernel_settings import KernelSettings
from jupyter_gpu_kernel.wire.messages import Channel, Lane, Message


def cell(**content: Any) -> Message:
    return Message(Channel.SHELL, 1, make("execute_request", dict({"code": "1"}, **content)))


class Keeper:
    """`unfinished`: the keys of the cells that the kernel has or will get."""

    def __init__(self, folder: Path) -> None:
        self.unfinished: list[str] = []
        self.log = FiledLog(folder, KernelSettings())
        self.reattach = Reattach(self.log)

    def leave(self) -> None:
        """The front end leaves, and another one attaches."""
        self.log.leaves()
        self.reattach.begin(self.unfinished, 0)


@pytest.fixture
def keeper(tmp_path: Path) -> Keeper:
    return Keeper(tmp_path)


@pytest.fixture
def exchange(tmp_path: Path) -> Exchange:
    """A kernel that runs a cell of a front end that has left."""
    exchange = Exchange(tmp_path)
    before = exchange.asks("execute_request", code="f()")
    exchange.sends(Channel.SHELL, "execute_reply", {"status": "ok", "execution_count": 6}, before)
    exchange.is_("idle", before)
    exchange.asks("execute_request", code="g()")
    exchange.return_()
    exchange.received.clear()
    return exchange


def test_code_of_a_front_ends_own_is_answered_at_once_and_never_again(exchange: Exchange) -> None:
    own = exchange.asks("execute_request", code="1", silent=True)
    assert [one.msg_type for one in exchange.received] == ["status", "execute_reply", "status"]
    content = exchange.received[1].content()
    assert (content["status"], content["execution_count"]) == ("ok", 6), "the number of the last cell"
    exchange.received.clear()
    exchange.sends(Channel.SHELL, "execute_reply", {"status": "ok", "execution_count": 6}, own)
    assert not exchange.received


def test_a_users_cell_waits_for_its_turn(exchange: Exchange) -> None:
    users = exchange.asks("execute_request", code="1")
    own = exchange.asks("execute_request", code="1", store_history=False)
    assert [one.parts[1] for one in exchange.received if one.msg_type == "execute_reply"] == [own] != [users]


def test_what_is_remembered_of_former_front_ends_does_not_grow(keeper: Keeper) -> None:
    """Only of cells that still have no reply, or whose outputs are known."""
    runs, other = cell(), cell(silent=True)
    for request in (runs, other):
        keeper.log.receive([0, 0, 0], request)
    for _ in range(20):
        own, gone = cell(silent=True), cell()
        keeper.reattach.answered.add(own.key)
        keeper.log.send(Lane.ORDERED, Message(Channel.IOPUB, 0, make("stream", {}, gone.parts[0])))
        keeper.leave()
        assert own.key not in keeper.reattach.answered
    assert keeper.reattach.is_orphaned(other.key)
    keeper.log.add("keep", Message(Channel.SHELL, 1, make("execute_reply", {}, other.parts[0])))
    keeper.reattach.answered.add(own.key)
    keeper.unfinished = [own.key]
    keeper.leave()
    assert keeper.reattach.is_orphaned(runs.key) and own.key in keeper.reattach.answered
    assert not keeper.reattach.is_orphaned(other.key)
    assert [one.msg_id for one in keeper.reattach.missed] == [runs.msg_id]
