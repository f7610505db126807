"""What front ends get of a kernel that starts with its user's first cell."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from edges import KEY
from runtimes import RUNTIME, make
from streams import log

from jupyter_gpu_kernel.errors import SettingsError
from jupyter_gpu_kernel.hub.front_end.front_ends import FrontEndSpec
from jupyter_gpu_kernel.hub.kernel.core.events import StartFailed, WaitExplained
from jupyter_gpu_kernel.hub.kernel.core.pending_request import Decision
from jupyter_gpu_kernel.hub.kernel.core.placeholder import plain_kernel_info
from jupyter_gpu_kernel.hub.kernel.core.request_table import _MAX_ANSWERED
from jupyter_gpu_kernel.hub.kernel.kernel_state import HubContext
from jupyter_gpu_kernel.hub.kernel.remote_kernel import RemoteKernel
from jupyter_gpu_kernel.hub.kernel_settings import KernelSettings
from jupyter_gpu_kernel.hub.node.node_link import NoLink
from jupyter_gpu_kernel.wire.messages import Channel, Message

CHANNELS = {channel.name.lower(): channel for channel in Channel}


def request(msg_type: str, channel: Channel = Channel.SHELL, **content: object) -> Message:
    return Message(channel, 1, make(msg_type, content))


def cell(code: str = "1", **content: object) -> Message:
    return request("execute_request", code=code, silent=False, store_history=True, **content)


def own_code(**content: object) -> Message:
    """What VS Code runs at the start."""
    return request("execute_request", code="import os", silent=False, store_history=False, **content)


class PlayedSockets:
    """In place of a front end's sockets. `received`: the messages that front ends received."""

    def __init__(self, connection: dict[str, Any], *_: Any) -> None:
        self.connection = connection
        self.received: list[Message] = []

    def has_room(self, channel: str) -> bool:
        return True

    def send(self, channel: str, envelope: list[bytes], parts: tuple[bytes, ...], client: int) -> None:
        self.received.append(Message(CHANNELS[channel], client, parts))

    def close(self) -> None:
        """There is nothing to close."""


class Hub:
    """A kernel that has not been started. `received`: the messages that its front end received."""

    def __init__(self) -> None:
        context = HubContext(RUNTIME, log, bind=PlayedSockets)  # type: ignore[arg-type]
        settings = KernelSettings(("login",), slurm=True)
        self.remote = RemoteKernel(context, "k1", settings, FrontEndSpec(dict(KEY)), NoLink("login"))
        self.table = self.remote.core.relay.table
        (self.front,) = self.remote.front_ends
        self.front.edge._number(b"a client")
        self.received: list[Message] = self.front.edge._sockets.received  # type: ignore[attr-defined]

    def start(self) -> list[Message]:
        """The kernel can be used: return what is sent to it."""
        self.remote.attached()
        sent = map(Message.decode, self.remote.endpoint.outbox.withdraw())
        return [one.replace(client=1) for one in sent if one.channel is not Channel.KEEPER]

    def take(self, asked: Message) -> None:
        self.front.edge._on_message(asked)

    def drops(self, asked: Message, msg_type: str, channel: Channel = Channel.SHELL) -> bool:
        """Whether front ends do not get this message of the kernel for the request."""
        message = Message(channel, 1, make(msg_type, {}, asked.parts[0]))
        return self.table.received(message) is Decision.DROP

    def reported(self, asked: Message) -> list[str]:
        """The types of what came for this request, on any channel."""
        return [one.header()["msg_type"] for one in self.received if one.parts[1] == asked.parts[0]]

    def reply(self, asked: Message) -> dict[str, object]:
        """The content of its reply."""
        replies = [
            one for one in self.received if one.parts[1] == asked.parts[0] and one.channel is asked.channel
        ]
        assert len(replies) == 1
        return replies[0].content()


@pytest.fixture
def hub() -> Iterator[Hub]:
    hub = Hub()
    yield hub
    hub.remote.close()


def test_kernel_info_is_answered_also_where_none_is_known(hub: Hub) -> None:
    first, second = request("kernel_info_request"), request("kernel_info_request", Channel.CONTROL)
    for asked in (first, second):
        hub.take(asked)
        assert hub.reported(asked) == ["status", "kernel_info_reply", "status"]
        assert hub.reply(asked) == plain_kernel_info()
    assert hub.start() == [first], "one of them learns the kernel's own answer"
    assert hub.drops(first, "kernel_info_reply")


@pytest.mark.parametrize(
    ("msg_type", "content", "answer"),
    [
        ("history_request", {}, {"status": "ok", "history": []}),
        ("comm_info_request", {}, {"status": "ok", "comms": {}}),
        ("inspect_request", {"code": "a"}, {"status": "ok", "found": False, "data": {}, "metadata": {}}),
        ("is_complete_request", {"code": "a"}, {"status": "unknown"}),
        (
            "complete_request",
            {"code": "ab", "cursor_pos": 2},
            {"status": "ok", "matches": [], "cursor_start": 2, "cursor_end": 2, "metadata": {}},
        ),
    ],
)
def test_what_is_known_of_a_kernel_without_variables_is_answered(
    hub: Hub, msg_type: str, content: dict[str, object], answer: dict[str, object]
) -> None:
    asked = request(msg_type, **content)
    hub.take(asked)
    assert hub.reply(asked) == answer
    assert hub.start() == []


def test_code_of_front_ends_is_answered_at_once_and_run_later_in_order(hub: Hub) -> None:
    start_up, comm, work = own_code(), request("comm_open"), cell()
    for asked in (start_up, comm, work):
        hub.take(asked)
    assert hub.reported(start_up) == ["status", "execute_reply", "status"]
    assert hub.reported(comm) == hub.reported(work) == []
    assert hub.start() == [start_up, comm, work]
    assert hub.drops(start_up, "status", Channel.IOPUB)
    assert not hub.drops(work, "status", Channel.IOPUB)


def test_code_whose_values_a_front_end_wants_waits(hub: Hub) -> None:
    asked = own_code(user_expressions={"a": "1"})
    hub.take(asked)
    assert hub.reported(asked) == [] and hub.table.waiting_cells == []


def test_code_of_front_ends_is_repeated_within_bounds(hub: Hub) -> None:
    for _ in range(_MAX_ANSWERED):
        hub.take(own_code())
    late = own_code()
    hub.take(late)
    assert hub.reported(late) == []


def test_the_first_cell_shows_why_it_waits_and_nothing_is_left_of_that(hub: Hub) -> None:
    first, second = cell(), cell()
    hub.remote.report(WaitExplained("nobody waits"))
    assert not [one for one in hub.received if one.header()["msg_type"] != "status"]
    hub.take(first)
    hub.take(second)
    hub.remote.report(WaitExplained("place 3"))
    hub.remote.report(WaitExplained("place 2"))
    assert hub.reported(first) == ["display_data", "update_display_data"] and hub.reported(second) == []
    hub.start()
    assert hub.reported(first)[-1] == "clear_output"


def test_an_interrupt_ends_the_cells_like_a_kernel(hub: Hub) -> None:
    start_up, first, second = own_code(), cell(), cell()
    for asked in (start_up, first, second):
        hub.take(asked)
    hub.remote.command("interrupt")
    assert hub.reported(first) == ["status", "execute_input", "error", "execute_reply", "status"]
    assert hub.reply(first)["ename"] == "KeyboardInterrupt" and hub.reply(second)["status"] == "aborted"
    assert hub.table.waiting_cells == []
    assert hub.start() == [start_up]


def test_an_interrupt_ends_what_the_log_says_of_the_wait(hub: Hub) -> None:
    hub.take(cell())
    hub.remote.report(WaitExplained("place 3"))
    assert hub.remote.core.relay.start_reason == "place 3"
    hub.remote.command("interrupt")
    assert hub.remote.core.relay.start_reason == ""


def test_cells_for_which_no_kernel_starts_end_with_the_reason(hub: Hub) -> None:
    work = cell()
    hub.take(work)
    hub.remote.report(StartFailed(SettingsError("sbatch refused the job", remedy="Ask the site.")))
    assert hub.reply(work)["evalue"] == "sbatch refused the job. Ask the site."
    assert hub.table.not_started and hub.table.waiting_cells == []
