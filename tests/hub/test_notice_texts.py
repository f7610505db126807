"""The notice in a cell that the node cannot be reached: which cell shows it, when, and what it says."""

from __future__ import annotations

from typing import Any

import pytest
from runtimes import RUNTIME, make

from jupyter_gpu_kernel.errors import GpuKernelError, NotAnswered
from jupyter_gpu_kernel.hub.kernel.core.displays import (
    KEEPS_RUNNING,
    NOTICE_DELAY,
    STARTS,
    OfflineNotice,
)
from jupyter_gpu_kernel.hub.kernel.core.request_table import RequestTable
from jupyter_gpu_kernel.hub.kernel_settings import KernelSettings
from jupyter_gpu_kernel.wire.messages import Channel, Message


def cell(code: str = "1") -> Message:
    return Message(Channel.SHELL, 1, make("execute_request", {"code": code}))


class Hub:
    """`received`: what front ends get, as (message type, the request's header)."""

    def __init__(self) -> None:
        self.received: list[tuple[str, bytes]] = []
        self.texts: list[str] = []
        self.table = RequestTable(was_up=True)
        self.notice = OfflineNotice(RUNTIME, "node", KernelSettings(name="gpu2"), self.table)

    def gets(self, messages: list[Message]) -> None:
        for message in messages:
            self.texts.append(str(message.content().get("data", {}).get("text/plain")))
            self.received.append((message.msg_type, message.parts[1]))

    def link_down(self, problem: GpuKernelError | None = None, kernel: str = KEEPS_RUNNING) -> None:
        """The link has been down for so long that the cell shows the notice at once."""
        self.table.link_is_down()
        self.gets(self.notice.link_down(problem, NOTICE_DELAY, "12:34:56", kernel))
        assert self.notice.show_at is not None and self.notice.show_at <= RUNTIME.monotonic()
        self.gets(self.notice.show())


@pytest.fixture
def hub() -> Hub:
    return Hub()


def of_cell(asked: Message, msg_type: str, **content: Any) -> Message:
    return Message(Channel.IOPUB, 0, make(msg_type, content, asked.parts[0]))


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        (KEEPS_RUNNING, "the kernel keeps running. This cell will run"),
        (STARTS, "the kernel starts when it is back. This cell will run"),
    ],
)
def test_the_notice_says_what_becomes_of_the_kernel(hub: Hub, kernel: str, expected: str) -> None:
    hub.table.link_is_down()
    hub.table.add(cell())
    hub.link_down(kernel=kernel)
    assert f"node has been out of reach since 12:34:56; {expected}" in hub.texts[0]


@pytest.mark.parametrize("has_output", [False, True])
@pytest.mark.parametrize(("begun", "expected"), [(True, "keeps running."), (False, "has been sent: it")])
def test_the_notice_in_a_cell_is_removed_without_its_output(
    hub: Hub, has_output: bool, begun: bool, expected: str
) -> None:
    """A cell that was sent right before the drop may not have reached the node."""
    asked = cell()
    hub.table.sent(asked)
    if begun:
        hub.table.received(of_cell(asked, "status", execution_state="busy"))
    if has_output:
        hub.table.received(of_cell(asked, "stream", name="stdout", text="1"))

    hub.link_down()
    hub.gets(hub.notice.link_up())
    removed = "update_display_data" if has_output else "clear_output"
    assert hub.received == [("display_data", asked.parts[0]), (removed, asked.parts[0])]
    assert f"This cell {expected}" in hub.texts[0] and hub.texts[1] == ("" if has_output else "None")


def test_an_interrupt_in_an_outage_changes_what_the_notice_says(hub: Hub) -> None:
    """A cell that waits ends at once, so the notice is in no cell then."""
    runs, waits = cell(), cell()
    hub.table.sent(runs)

    hub.link_down()
    hub.table.add(waits)
    hub.table.cancel_waiting()
    hub.gets(hub.notice.update())
    assert "This cell will be interrupted" in hub.texts[-1]
    hub.table.end_in_flight()
    hub.gets(hub.notice.update())
    assert hub.received[-1] == ("clear_output", runs.parts[0])


def test_only_a_users_cell_shows_the_notice(hub: Hub) -> None:
    asked = cell()

    hub.table.link_is_down()
    hub.table.add(Message(Channel.SHELL, 1, make("complete_request", {})))
    hub.table.add(asked)
    hub.link_down()
    assert [parent for _, parent in hub.received] == [asked.parts[0]]


def test_the_notice_names_the_kernelspec_to_sign_in_to(hub: Hub) -> None:
    hub.table.sent(cell())
    hub.link_down(NotAnswered("it asks for a code", hop="login"))
    assert "jupyter gpu-kernel login gpu2" in hub.texts[0]
