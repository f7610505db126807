"""Who comes back to a kernel is told what was missed, and how to see it where nothing else shows it."""

from __future__ import annotations

from typing import Any, Dict

import pytest

from jupyter_gpu_kernel.agent.relay.output.history import History
from jupyter_gpu_kernel.agent.relay.reattach import Reattach
from jupyter_gpu_kernel.wire.compose import make
from jupyter_gpu_kernel.wire.messages import Channel, Message

FACTS: Dict[str, Any] = {"id": "k1", "node": "gpu2", "gpu_names": [], "program": "jupyter gpu-kernel"}
HINT = "%gpu missed"


def greeting(cell_id: str, reads_journal: bool) -> str:
    """For somebody whose cell, with this id, prints while nobody is there."""
    history = History()
    absence = Reattach(history, lambda *message: None)
    cell = Message(Channel.SHELL, 1, make("execute_request", {"code": "f()"}, metadata={"cellId": cell_id}))
    history.asked(cell)
    absence.begin([], [str(cell.header()["msg_id"])])
    if reads_journal:
        assert [one["cell_id"] for one in absence.journal({"do": "journal"})["cells"]] == [cell_id]
    return absence.greeting(lambda: FACTS)[0]


@pytest.mark.parametrize(
    "cell_id, reads_journal, helps", [("c1", True, False), ("c1", False, True), ("", True, True)]
)
def test_the_magic_is_named_where_the_page_does_not_fill_the_cells(
    cell_id: str, reads_journal: bool, helps: bool
) -> None:
    assert (HINT in greeting(cell_id, reads_journal)) == helps


def test_what_was_read_before_the_return_fills_nothing() -> None:
    history = History()
    absence = Reattach(history, lambda *message: None)
    cell = Message(Channel.SHELL, 1, make("execute_request", {"code": "f()"}, metadata={"cellId": "c1"}))
    history.asked(cell)
    absence.journal({"do": "journal"})
    absence.begin([], [str(cell.header()["msg_id"])])
    assert HINT in absence.greeting(lambda: FACTS)[0]


def test_a_fresh_kernels_gpus_have_the_names_that_users_know() -> None:
    absence = Reattach(History(), lambda *message: None)
    absence.replaces("k0")
    names = ["GPU 0 (NVIDIA A100)", "GPU 3 (NVIDIA A100)"]
    text, _ = absence.greeting(lambda: {**FACTS, "gpu_names": names})
    assert f"on gpu2 with {', '.join(names)}; the one before, k0, has ended" in text
