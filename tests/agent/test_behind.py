"""What a new front end asks while cells of the one before it run: which of it is answered at once."""

from __future__ import annotations

from typing import Any, List, Tuple

import pytest

from jupyter_gpu_kernel.agent.relay.deferred_cells import DeferredCells
from jupyter_gpu_kernel.wire.answers import Answers
from jupyter_gpu_kernel.wire.compose import make
from jupyter_gpu_kernel.wire.messages import Channel, Message


def cell(**content: Any) -> Message:
    return Message(Channel.SHELL, 1, make("execute_request", dict({"code": "1"}, **content)))


def id_of(request: Message) -> str:
    return str(request.header()["msg_id"])


class Keeper:
    """`heard`: what front ends are told, as (message type, content)."""

    def __init__(self) -> None:
        self.heard: List[Tuple[str, Any]] = []
        self.answers = Answers(lambda *said: self.heard.append((said[2], said[3])))
        self.behind = DeferredCells(self.answers)


@pytest.fixture
def keeper() -> Keeper:
    return Keeper()


def test_code_of_a_front_ends_own_is_answered_at_once_and_never_again(keeper: Keeper) -> None:
    before = cell()
    reply = Message(Channel.SHELL, 1, make("execute_reply", {"execution_count": 6}, before.parts[0]))
    keeper.answers.saw(reply)
    own = cell(silent=True)
    keeper.behind.wait(own)
    kinds = [kind for kind, _ in keeper.heard]
    assert kinds == ["status", "execute_reply", "status"]
    content = keeper.heard[1][1]
    assert (content["status"], content["execution_count"]) == ("ok", 6), "the number of the last cell"
    assert keeper.behind.concerns(id_of(own)) and keeper.behind.unanswered == []


def test_a_users_cell_waits_for_its_turn(keeper: Keeper) -> None:
    users, own = cell(), cell(store_history=False)
    for request in (users, own):
        keeper.behind.wait(request)
    assert not keeper.behind.concerns(id_of(users)) and keeper.behind.unanswered == [users]
    assert [kind for kind, _ in keeper.heard].count("execute_reply") == 1


def test_all_that_waits_runs_once_and_what_was_answered_stays_unheard(keeper: Keeper) -> None:
    users, own = cell(), cell(silent=True)
    for request in (own, users):
        keeper.behind.wait(request)
    assert keeper.behind.take() == [own, users]
    assert keeper.behind.take() == [] and keeper.behind.unanswered == []
    assert keeper.behind.concerns(id_of(own))
