"""When a kernel is attached to its link. The successor of a killed hub passes nothing on before all front ends hear."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq
from jupyter_client.blocking.client import BlockingKernelClient
from runtimes import RUNTIME
from streams import LoopThread, log, until, wait_for
from waiting import DEADLINE

from jupyter_gpu_kernel.errors import ConnectError, GpuKernelError
from jupyter_gpu_kernel.hub.front_end import edge as edge_module
from jupyter_gpu_kernel.hub.front_end.delivered import Delivered
from jupyter_gpu_kernel.hub.front_end.front_ends import FrontEndSpec
from jupyter_gpu_kernel.hub.front_end.sockets import MAX_UNREAD
from jupyter_gpu_kernel.hub.kernel import keeper_connection
from jupyter_gpu_kernel.hub.kernel.keeper_connection import AttachTiming
from jupyter_gpu_kernel.hub.kernel.kernel_state import HubContext, Origin
from jupyter_gpu_kernel.hub.kernel.remote_kernel import RemoteKernel
from jupyter_gpu_kernel.hub.node.attachments import new_endpoint
from jupyter_gpu_kernel.hub.node.link import Link

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the agent needs a POSIX system")
CONNECTION = {"transport": "tcp", "ip": "127.0.0.1", "key": "key"}


@pytest.fixture
def adopted(loop: LoopThread, link: Link, tmp_path: Path) -> Iterator[RemoteKernel]:
    """A kernel that had two front ends, at a hub which only the first has found so far."""
    before = loop.kernel(link)
    until(before, "idle")
    loop.call(before.close)
    known = Delivered(tmp_path / before.kernel_id)
    for number in range(2):
        known.clients(number)
    remote = loop.call(
        lambda: RemoteKernel(
            HubContext(RUNTIME, log),
            before.kernel_id,
            before.settings,
            FrontEndSpec(CONNECTION, number=0),
            link,
            Origin("adopt", known),
        )
    )
    yield remote
    loop.call(remote.stop, "the test is over")
    wait_for(lambda: remote.closed, "its end")


@contextlib.contextmanager
def connected(connection: dict[str, Any], *, iopub: bool = True) -> Iterator[Any]:
    client = BlockingKernelClient(context=zmq.Context())
    client.load_connection_info(connection)
    client.start_channels(iopub=iopub, hb=False)
    try:
        yield client
    finally:
        client.stop_channels()
        client.context.destroy(linger=0)


def printed(client: Any, request: str) -> str:
    text = ""
    while True:
        message = client.get_iopub_msg(timeout=DEADLINE)
        if message["parent_header"].get("msg_id") == request:
            text += message["content"].get("text", "")
            if message["content"].get("execution_state") == "idle":
                return text


def until_text(client: Any) -> str:
    while not (text := client.get_iopub_msg(timeout=DEADLINE)["content"].get("text", "")):
        pass
    return str(text)


def subscribe(client: Any) -> None:
    client.start_channels(shell=False, stdin=False, hb=False, control=False)


def test_what_is_printed_before_the_second_is_there_and_has_subscribed(
    loop: LoopThread, link: Link, adopted: RemoteKernel
) -> None:
    with connected(adopted.edge.connection) as first:
        first.get_iopub_msg(timeout=DEADLINE)  # it has subscribed
        cells = [first.execute("print('first')")]
        wait_for(lambda: adopted.endpoint.outbox.size, "the request")
        assert not link.in_use, "what it prints would be lost to the other"
        other = loop.call(adopted.front_ends.add, FrontEndSpec(CONNECTION, number=1))
        with connected(other.edge.connection, iopub=False) as second:
            assert printed(first, cells[0]) == "first\n"
            cells.append(second.execute("print('second')"))
            assert second.get_shell_msg(timeout=DEADLINE)["content"]["status"] == "ok"
            subscribe(second)
            assert [printed(second, cell) for cell in cells] == ["first\n", "second\n"]


def test_one_that_left_before_is_not_waited_for(
    loop: LoopThread, adopted: RemoteKernel, tmp_path: Path
) -> None:
    other = loop.call(adopted.front_ends.add, FrontEndSpec(CONNECTION, number=1))
    with connected(other.edge.connection) as second:
        second.get_iopub_msg(timeout=DEADLINE)
        second.execute("1")
        assert second.get_shell_msg(timeout=DEADLINE)["content"]["status"] == "ok"
    loop.call(adopted.front_ends.remove, other)
    assert Delivered(tmp_path / adopted.kernel_id).front_ends == [0]


def test_ones_that_never_come_are_not_waited_for_for_ever(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setattr(keeper_connection, "SUBSCRIBE_TIMEOUT", 0.5)
    adopted: RemoteKernel = request.getfixturevalue("adopted")
    with connected(adopted.edge.connection, iopub=False) as first:
        first.execute("print('received')")
        assert first.get_shell_msg(timeout=DEADLINE)["content"]["status"] == "ok"


def test_one_that_never_subscribes_holds_up_the_other_for_a_while(
    loop: LoopThread, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """When it does subscribe it is told how much is missing."""
    monkeypatch.setattr(edge_module, "SUBSCRIBE_TIMEOUT", 0.5)
    adopted: RemoteKernel = request.getfixturevalue("adopted")
    with connected(adopted.edge.connection) as first:
        first.get_iopub_msg(timeout=DEADLINE)
        other = loop.call(adopted.front_ends.add, FrontEndSpec(CONNECTION, number=1))
        with connected(other.edge.connection, iopub=False) as second:
            large = f"for i in range(3): print('x' * {MAX_UNREAD // 2}, flush=True)"
            assert len(printed(first, first.execute(large))) == 3 * (MAX_UNREAD // 2 + 1)
            subscribe(second)
            assert "left out here" in until_text(second)


class Carried:
    """An attachment, of a link to a node that cannot be reached."""

    kernel_id = "k1"

    def __init__(self) -> None:
        self.endpoint = new_endpoint(RUNTIME, None)

    def open_request(self) -> dict[str, Any]:
        return {}

    def opened(self, kernel_id: str) -> None:
        raise AssertionError("there is no keeper")

    def deliver(self, data: bytes) -> None:
        raise AssertionError("there is no keeper")

    def attached(self) -> None:
        raise AssertionError("there is no keeper")

    def detached(self, reason: str) -> None: ...

    def lost(self, error: GpuKernelError) -> None: ...


def test_it_is_attached_once_until_it_is_released_and_never_when_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(keeper_connection, "SUBSCRIBE_TIMEOUT", 0.0)

    def no_way(again: bool) -> Any:
        raise ConnectError("there is no way", hop="node")

    async def main() -> None:
        link = Link(RUNTIME, "node", no_way, log)
        here, waits = AttachTiming(link, Carried()), AttachTiming(link, Carried())
        here.begin(at_once=True)
        here.attach()
        assert link.kernel_ids == ["k1"]
        here.release()
        assert link.kernel_ids == []
        here.attach()
        assert link.kernel_ids == ["k1"], "it was released for a while only"
        here.close()
        here.attach()
        waits.begin(at_once=False)
        waits.close()
        await asyncio.sleep(0.01)  # timers are due in order: that of `waits` was before
        assert link.kernel_ids == []
        await link.close()

    asyncio.run(main())
