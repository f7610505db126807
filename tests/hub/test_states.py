"""The life cycle of a kernel whose node cannot be reached: which state follows which."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from edges import KEY
from runtimes import RUNTIME, make
from streams import log

from jupyter_gpu_kernel.errors import AgentRefusal, AuthError, ConnectError
from jupyter_gpu_kernel.hub.front_end.front_ends import FrontEndSpec
from jupyter_gpu_kernel.hub.kernel.core.life import LINK_STATES, PHASES, LinkState, Phase, transition
from jupyter_gpu_kernel.hub.kernel.kernel_state import HubContext
from jupyter_gpu_kernel.hub.kernel.remote_kernel import RemoteKernel
from jupyter_gpu_kernel.hub.kernel_settings import KernelSettings
from jupyter_gpu_kernel.hub.node.link import Link
from jupyter_gpu_kernel.hub.node.nodes import Nodes
from jupyter_gpu_kernel.wire.messages import Channel, Message, keeper_message

GONE = AgentRefusal("there is no such kernel", code="gone", hop="node")
TAKEN = AgentRefusal("taken over by alice@desk", code="taken", hop="node")


def on(test: Callable[[RemoteKernel, Link], None]) -> None:
    """A kernel that was attached, on a link that is down."""

    def fail(again: bool) -> Any:
        raise ConnectError("there is no route", hop="node")

    async def main() -> None:
        link = Link(RUNTIME, "node", fail, log)
        remote = RemoteKernel(
            HubContext(RUNTIME, log),
            "k1",
            KernelSettings(gpus=0, name="lab"),
            FrontEndSpec(dict(KEY), revives=True),
            link,
        )
        remote.attached()
        try:
            test(remote, link)
        finally:
            remote.close()
            await link.close()

    asyncio.run(main())


def report(remote: RemoteKernel, status: dict[str, Any]) -> None:
    """The keeper reports this status."""
    remote.deliver(keeper_message(event="state", id="k1", **status).encode())


def test_only_a_new_kernel_follows_a_lost_one_and_nothing_follows_a_closed_one() -> None:
    assert transition(LINK_STATES, LinkState.LOST, LinkState.CONNECTING) is LinkState.CONNECTING
    for state in (LinkState.UP, LinkState.AWAY, LinkState.TAKEN):
        with pytest.raises(RuntimeError, match="cannot follow"):
            transition(LINK_STATES, LinkState.LOST, state)
    for phase in Phase:
        with pytest.raises(RuntimeError, match="cannot follow"):
            transition(PHASES, Phase.CLOSED, phase)
    assert set(LINK_STATES) == set(LinkState) and set(PHASES) == set(Phase)


def test_the_command_in_a_remedy_names_the_kernelspec() -> None:
    def test(remote: RemoteKernel, link: Link) -> None:
        error = AuthError("asks for a code", remedy="Run: jupyter gpu-kernel login NAME", login=True)
        remote.lost(error)
        assert remote.describe()["error"]["remedy"] == "Run: jupyter gpu-kernel login lab"
        assert error.remedy.endswith("NAME"), "another kernelspec may lead to the same node"

    on(test)


def test_a_restart_forgets_that_a_shutdown_was_requested() -> None:
    def test(remote: RemoteKernel, link: Link) -> None:
        remote.life.shutdown_requested(restart=False)
        assert remote.phase is Phase.SHUT_DOWN
        remote.restart()
        assert remote.phase is Phase.RUN

    on(test)


@pytest.mark.parametrize("asked", ["restart", ""])
def test_an_end_that_is_reported_after_a_drop_does_not_end_the_kernel_that_was_restarted(asked: str) -> None:
    ended = {"state": "ended", "pid": 0, "asked": asked, "returncode": 0}

    def test(remote: RemoteKernel, link: Link) -> None:
        report(remote, {"state": "idle", "pid": 7})
        remote.life.shutdown_requested(restart=True)
        remote.restart()  # the link is down, so neither the end was reported nor has the keeper got the restart
        for status in ({"state": "idle", "pid": 7}, ended, ended):
            report(remote, status)
            assert remote.status["state"] != "ended"
        report(remote, {"state": "starting", "pid": 8})
        report(remote, ended)
        assert remote.status["state"] == "ended"

    on(test)


def test_the_end_of_a_restarted_kernel_is_reported_if_it_cannot_start_or_is_shut_down_again() -> None:
    def test(remote: RemoteKernel, link: Link) -> None:
        remote.restart()
        report(remote, {"state": "ended", "pid": 0, "cause": "the kernel cannot be started"})
        assert remote.status["state"] == "ended"
        remote.restart()
        remote.life.shutdown_requested(restart=True)
        report(remote, {"state": "ended", "pid": 0, "asked": "restart", "returncode": 0})
        assert remote.status["state"] == "ended"

    on(test)


@pytest.mark.parametrize("error", [GONE, TAKEN])
def test_a_kernel_that_stops_is_closed_when_it_is_gone_or_taken(error: Any) -> None:
    def test(remote: RemoteKernel, link: Link) -> None:
        remote.stop("the test is over")
        assert not remote.closed and link.kernel_ids == ["k1"]
        remote.lost(error)
        assert remote.closed and link.kernel_ids == []

    on(test)


def test_a_kernel_that_was_taken_before_it_stops_is_closed_at_once() -> None:
    def test(remote: RemoteKernel, link: Link) -> None:
        remote.lost(TAKEN)
        assert remote.life.taken_cause == "taken over by alice@desk" and remote.describe()["link"] == "taken"
        remote.stop("the test is over")
        assert remote.closed

    on(test)


@pytest.mark.parametrize("stopped", [False, True])
def test_a_cell_starts_an_ended_kernel_anew_unless_it_is_stopped_meanwhile(stopped: bool) -> None:
    def test(remote: RemoteKernel, link: Link) -> None:
        (front,) = remote.front_ends
        cell = Message(Channel.SHELL, 1, make("execute_request", {"code": "1"}))
        report(remote, {"state": "ended", "cause": "killed by SIGKILL"})
        remote._receive_request(front, cell)
        assert remote.phase is Phase.REVIVE and remote.describe()["state"] == "starting"
        if stopped:
            remote.stop("the test is over")
        remote.lost(GONE)
        assert remote.closed is stopped
        assert remote.kernel_id == "k1" if stopped else remote.open_request()["create"]["gpus"] == 0

    on(test)


def test_a_kernel_is_created_anew_over_a_new_link_if_its_own_was_closed_meanwhile() -> None:
    """As after `stop --all`, which closes every connection that no kernel uses."""

    def connect(*_: Any) -> Any:
        raise ConnectError("there is no route", hop="node")

    async def main() -> None:
        nodes, settings = Nodes(RUNTIME, connect, log), KernelSettings(("node",), python="python", gpus=0)

        def link_anew(kernel_id: str) -> Link:
            nodes.record_start(kernel_id, nodes.of(settings))
            return nodes.of(settings).begin_link("python", None)

        link = nodes.of(settings).begin_link("python", None)
        remote = RemoteKernel(
            HubContext(RUNTIME, log), "k1", settings, FrontEndSpec(dict(KEY), revives=True), link
        )
        try:
            remote.on_create = link_anew
            remote.attached()
            remote.lost(GONE)
            await nodes.hang_up(unused_only=True)
            (front,) = remote.front_ends
            remote._receive_request(front, Message(Channel.SHELL, 1, make("execute_request", {"code": "1"})))
            assert nodes.of(settings).kernel_ids == [remote.kernel_id] != ["k1"]
            assert nodes.started_on(remote.kernel_id) is nodes.of(settings)
        finally:
            remote.close()
            await nodes.hang_up(unused_only=False)

    asyncio.run(main())


def test_a_kernel_that_is_ready_does_not_start_any_more() -> None:
    """ipykernel can publish “starting” behind its first replies, by which the keeper knows that it is ready."""

    def test(remote: RemoteKernel, link: Link) -> None:
        starting = Message(Channel.IOPUB, 0, make("status", {"execution_state": "starting"}))
        for state in ("idle", "starting", "idle"):  # a restart between them
            remote.deliver(keeper_message(event="state", id="k1", state=state).encode())
            remote.deliver(starting.encode())
            assert remote.describe()["state"] == state

    on(test)
