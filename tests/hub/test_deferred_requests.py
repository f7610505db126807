"""Requests that wait at the hub: which of them, until when, and what an interrupt makes of them."""

from __future__ import annotations

import asyncio
import json

import pytest
from runtimes import RUNTIME, make

from jupyter_gpu_kernel.errors import NotAnswered
from jupyter_gpu_kernel.hub.kernel.messages.offline_notice import (
    KEEPS_RUNNING,
    NOTICE_DELAY,
    STARTS,
    WAITS_FOR_HOST,
    OfflineNotice,
)
from jupyter_gpu_kernel.hub.kernel.messages.pending_requests import (
    _MAX_INTERRUPTS,
    DeferredRequests,
    InFlightCells,
)
from jupyter_gpu_kernel.hub.kernel.messages.placeholder import Placeholder
from jupyter_gpu_kernel.hub.kernel_settings import KernelSettings
from jupyter_gpu_kernel.wire.messages import Channel, Message


def request(msg_type: str, channel: Channel = Channel.SHELL, **content: object) -> Message:
    return Message(channel, 1, make(msg_type, content))


def cell(code: str = "1", **content: object) -> Message:
    return request("execute_request", code=code, **content)


def interrupt() -> Message:
    return request("interrupt_request", Channel.CONTROL)


class Hub:
    """`received`: what front ends received, as (message type, the request's header)."""

    def __init__(self) -> None:
        self.received: list[tuple[str, bytes]] = []
        self.texts: list[str] = []
        self.shown: list[Message] = []  # the cells that have output
        self.notice = OfflineNotice(
            RUNTIME, self._say, "node", KernelSettings(name="gpu2"), lambda cell: cell in self.shown
        )
        self.deferred = DeferredRequests(
            Placeholder(RUNTIME, self._say, None, lambda info: None), self.notice
        )

    def _say(self, message: Message) -> None:
        self.texts.append(str(message.content().get("data", {}).get("text/plain")))
        self.received.append((message.header()["msg_type"], message.parts[1]))

    def replies(self, asked: Message) -> list[str]:
        return [
            printed
            for printed, parent in self.received
            if parent == asked.parts[0] and printed.endswith("_reply")
        ]


@pytest.fixture
def hub() -> Hub:
    return Hub()


def test_while_the_link_is_down_all_but_urgent_requests_wait(hub: Hub) -> None:
    deferred = hub.deferred
    waits, urgent = [cell(), request("complete_request"), cell()], request("input_reply", Channel.STDIN)
    assert not any(map(deferred.defer_if_needed, waits)) and not deferred.active
    deferred.link_down()
    assert (
        all(map(deferred.defer_if_needed, waits)) and not deferred.defer_if_needed(urgent) and deferred.active
    )
    assert deferred.link_up() == waits and deferred.messages == [] and not deferred.active


def test_for_a_kernel_that_is_not_known_all_requests_wait(hub: Hub) -> None:
    """An answer on stdin would reach the wrong kernel."""
    deferred = hub.deferred
    asked = [cell(), request("input_reply", Channel.STDIN)]
    deferred.hold()
    deferred.link_down()
    assert all(map(deferred.defer_if_needed, asked))
    assert deferred.link_up() == [], "the link alone is not enough"
    assert deferred.held and deferred.resume() == asked


def test_when_the_kernel_is_known_and_the_link_is_down_only_urgent_requests_go(hub: Hub) -> None:
    deferred = hub.deferred
    bulk, urgent = cell(), request("input_reply", Channel.STDIN)
    deferred.link_down()
    deferred.hold()
    assert deferred.defer_if_needed(bulk) and deferred.defer_if_needed(urgent)
    assert deferred.resume() == [urgent] and deferred.messages == [bulk]
    assert deferred.link_up() == [bulk]


def test_an_interrupt_cancels_users_cells_and_nothing_else(hub: Hub) -> None:
    """Code that a front end runs for itself is no cell that a user would see end."""
    deferred = hub.deferred
    deferred.hold()
    users, internal = cell(), cell(silent=True)
    others = [internal, cell(store_history=False), request("complete_request")]
    for message in (users, *others):
        deferred.defer_if_needed(message)
    deferred.cancel_cells()
    assert hub.replies(users) == ["execute_reply"] and hub.replies(internal) == []
    assert deferred.resume() == others


def test_of_a_kernel_that_is_gone_every_request_is_answered(hub: Hub) -> None:
    deferred = hub.deferred
    deferred.hold()
    requests = [cell(), cell(silent=True), request("complete_request")]
    for message in (*requests, request("comm_msg")):
        deferred.defer_if_needed(message)
    assert deferred.clear() == requests and deferred.messages == []


def test_only_a_users_cell_shows_that_it_waits(hub: Hub) -> None:
    async def main() -> None:
        hub.notice.link_down(None)
        hub.deferred.link_down()
        hub.deferred.defer_if_needed(request("complete_request"))
        hub.deferred.defer_if_needed(cell(silent=True))
        assert hub.notice._timer is None
        hub.deferred.defer_if_needed(cell())
        assert hub.notice._timer is not None
        hub.notice.link_up()

    asyncio.run(main())


def own_code() -> Message:
    return cell(store_history=False)


def test_own_code_is_answered_until_the_kernel_was_connected_once(hub: Hub) -> None:
    """VS Code waits for the reply without a limit. Later, code may want the kernel's variables."""
    deferred, sent, waits, later = hub.deferred, own_code(), own_code(), own_code()
    deferred.link_down([sent])
    deferred.link_down([sent])
    assert deferred.defer_if_needed(waits)
    assert hub.replies(sent) == hub.replies(waits) == ["execute_reply"]
    assert deferred.link_up() == [waits], "the kernel runs it, too"
    reply = Message(Channel.SHELL, 1, make("execute_reply", {"status": "ok"}, waits.parts[0]))
    assert deferred.answered_here(reply)
    deferred.link_down([later])
    assert deferred.defer_if_needed(later) and hub.replies(later) == []


@pytest.mark.parametrize(
    ("kernel", "printed"),
    [
        (KEEPS_RUNNING, "the kernel keeps running. This cell will run"),
        (WAITS_FOR_HOST, "waits for GPUs on its other hosts"),
        (STARTS, "the kernel starts when it is back. This cell will run"),
    ],
)
def test_the_notice_says_what_becomes_of_the_kernel(hub: Hub, kernel: str, printed: str) -> None:
    hub.notice.link_down(None, kernel=kernel)
    assert printed in hub.notice._text()


@pytest.mark.parametrize("has_output", [False, True])
@pytest.mark.parametrize(("begun", "printed"), [(True, "keeps running."), (False, "has been sent: it")])
def test_the_notice_in_a_cell_is_removed_without_its_output(
    hub: Hub, has_output: bool, begun: bool, printed: str
) -> None:
    """A cell that was sent right before the drop may not have reached the node."""
    asked = cell()
    hub.shown = [asked] * has_output

    async def main() -> None:
        hub.notice.link_down(None, NOTICE_DELAY, asked, begun)
        while not hub.received:  # the notice is due at once
            await asyncio.sleep(0)
        hub.notice.link_up()

    asyncio.run(main())
    removed = "update_display_data" if has_output else "clear_output"
    assert hub.received == [("display_data", asked.parts[0]), (removed, asked.parts[0])]
    assert f"This cell {printed}" in hub.texts[0] and hub.texts[1] == ("" if has_output else "None")


def test_the_notice_names_the_kernelspec_to_sign_in_to(hub: Hub) -> None:
    hub.notice.link_down(NotAnswered("it asks for a code", hop="login"))
    assert "jupyter gpu-kernel login gpu2" in hub.notice._text()


def test_an_interrupt_that_was_answered_is_not_answered_again(hub: Hub) -> None:
    """Of two the kernel answered one before the link went down."""
    deferred = hub.deferred
    first, second = interrupt(), interrupt()

    def reply(asked: Message) -> Message:
        return Message(Channel.CONTROL, 1, make("interrupt_reply", {"status": "ok"}, asked.parts[0]))

    for message in (first, second):
        deferred.sent(message, InFlightCells())
    assert not deferred.answered_here(reply(first))
    deferred.link_down()
    assert hub.replies(first) == [] and hub.replies(second) == ["interrupt_reply"]
    assert not deferred.answered_here(reply(first)) and deferred.answered_here(reply(second))
    deferred.link_up()
    deferred.link_down()
    assert hub.replies(second) == ["interrupt_reply"], "once"


def test_interrupts_without_end_fill_no_memory(hub: Hub) -> None:
    deferred = hub.deferred
    for _ in range(2):
        for _ in range(_MAX_INTERRUPTS + 1):
            deferred.sent(interrupt(), InFlightCells())
        assert len(deferred._interrupts) == _MAX_INTERRUPTS
        deferred.link_down()
    assert len(deferred._answered) == _MAX_INTERRUPTS
    last = json.loads(hub.received[-1][1])["msg_id"]
    assert last in deferred._answered
