"""What a new front end asks while cells of the one before it run: which of it is answered at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any, List, Tuple

import pytest
from logs import FiledLog
from runtimes import make

from jupyter_gpu_kernel.agent.core.reattach import Reattach
from jupyter_gpu_kernel.agent.kernel_settings import KernelSettings
from jupyter_gpu_kernel.wire.kernel_messages.answers import Answers
from jupyter_gpu_kernel.wire.messages import Channel, Lane, Message


def cell(**content: Any) -> Message:
    return Message(Channel.SHELL, 1, make("execute_request", dict({"code": "1"}, **content)))


def id_of(request: Message) -> str:
    return str(request.header()["msg_id"])


class Keeper:
    """`received`: what front ends are told, as (message type, content)."""

    def __init__(self, folder: Path) -> None:
        self.received: List[Tuple[str, Any]] = []
        self.unfinished: List[str] = []
        self.answers = Answers(self._send)
        self.log = FiledLog(folder, KernelSettings())
        self.reattach = Reattach(self.log, self.answers, self._send)

    def leave(self) -> None:
        """The front end leaves, and another one attaches."""
        self.log.leaves()
        self.reattach.begin(self.unfinished)

    def _send(self, channel: Channel, client: int, msg_type: str, content: Any, parent: bytes) -> None:
        self.received.append((msg_type, content))


@pytest.fixture
def keeper(tmp_path: Path) -> Keeper:
    return Keeper(tmp_path)


def test_code_of_a_front_ends_own_is_answered_at_once_and_never_again(keeper: Keeper) -> None:
    before = cell()
    reply = Message(Channel.SHELL, 1, make("execute_reply", {"execution_count": 6}, before.parts[0]))
    keeper.answers.observe(reply)
    own = cell(silent=True)
    keeper.reattach.answer_ahead(own)
    kinds = [kind for kind, _ in keeper.received]
    assert kinds == ["status", "execute_reply", "status"]
    content = keeper.received[1][1]
    assert (content["status"], content["execution_count"]) == ("ok", 6), "the number of the last cell"
    assert keeper.reattach.is_answered(own.key)


def test_a_users_cell_waits_for_its_turn(keeper: Keeper) -> None:
    users, own = cell(), cell(store_history=False)
    for request in (users, own):
        keeper.reattach.answer_ahead(request)
    assert not keeper.reattach.is_answered(users.key)
    assert [kind for kind, _ in keeper.received].count("execute_reply") == 1


def test_what_is_remembered_of_former_front_ends_does_not_grow(keeper: Keeper) -> None:
    """Only of cells that still have no reply, or whose outputs are known."""
    runs, other = cell(), cell(silent=True)
    for request in (runs, other):
        keeper.log.receive([0, 0, 0], request)
    for _ in range(20):
        own, gone = cell(silent=True), cell()
        keeper.reattach.answer_ahead(own)
        keeper.log.send(Lane.ORDERED, Message(Channel.IOPUB, 0, make("stream", {}, gone.parts[0])))
        keeper.leave()
        assert not keeper.reattach.is_answered(own.key)
    assert keeper.reattach.is_orphaned(other.key)
    keeper.log.add("keep", Message(Channel.SHELL, 1, make("execute_reply", {}, other.parts[0])))
    keeper.reattach.answer_ahead(own)
    keeper.unfinished = [own.key]
    keeper.leave()
    assert keeper.reattach.is_orphaned(runs.key) and keeper.reattach.is_answered(own.key)
    assert not keeper.reattach.is_orphaned(other.key)
    assert [one.msg_id for one in keeper.reattach.missed] == [runs.msg_id]
