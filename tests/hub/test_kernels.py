"""The kernels that front ends have in the hub, while front ends come and go. Their nodes cannot be reached."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import pytest
from runtimes import RUNTIME, make
from streams import log
from waiting import DEADLINE

from jupyter_gpu_kernel.errors import (
    AgentRefusal,
    AuthError,
    ConnectError,
    GpuKernelError,
    HubError,
)
from jupyter_gpu_kernel.hub import kernels
from jupyter_gpu_kernel.hub.client_connection import ClientConnection
from jupyter_gpu_kernel.hub.front_end.delivered import Delivered
from jupyter_gpu_kernel.hub.front_end.requests import SavedRequest, header_key
from jupyter_gpu_kernel.hub.jobs import job_kernels
from jupyter_gpu_kernel.hub.jobs.job_files import JobFile
from jupyter_gpu_kernel.hub.kernel.core.life import LinkState, Phase
from jupyter_gpu_kernel.hub.kernel.remote_kernel import RemoteKernel
from jupyter_gpu_kernel.hub.kernel.starter import LeftKernel
from jupyter_gpu_kernel.hub.kernel.vscode import pending_stops
from jupyter_gpu_kernel.hub.kernel.vscode.pending_stops import PendingStops
from jupyter_gpu_kernel.hub.kernel_settings import KernelSettings
from jupyter_gpu_kernel.hub.kernels import Kernels, front_end_of
from jupyter_gpu_kernel.hub.node.link import Link
from jupyter_gpu_kernel.hub.node.node_link import NoLink
from jupyter_gpu_kernel.hub.node.nodes import Nodes
from jupyter_gpu_kernel.hub.operations.front_ends import FrontEndOperations
from jupyter_gpu_kernel.hub.rpc import Call
from jupyter_gpu_kernel.hub.slurm.scheduler import Schedulers
from jupyter_gpu_kernel.served_kernel import ServedKernel
from jupyter_gpu_kernel.wire.messages import Channel, Message, keeper_message


def report(remote: RemoteKernel, status: dict[str, Any]) -> None:
    """The keeper reports this status."""
    remote.deliver(keeper_message(event="state", id=remote.kernel_id, **status).encode())


def send(remote: RemoteKernel, request: Message) -> None:
    """A front end sends a request."""
    remote._receive_request(next(iter(remote.front_ends)), request)


class Hub:
    """Kernels, the operations of front ends, and calls of clients."""

    def __init__(self) -> None:
        self.problem: GpuKernelError = ConnectError("there is no route", hop="node")
        self.nodes = Nodes(RUNTIME, self._connect, log)
        self.kernels = Kernels(RUNTIME, self.nodes, Schedulers(RUNTIME, self.nodes, log), log)
        self.operations = FrontEndOperations(RUNTIME, self.nodes, self.kernels)

    def _connect(self, *_: Any, **__: Any) -> Any:
        raise self.problem

    def call(self, op: str, client: ClientConnection | None = None, **arguments: Any) -> Call:
        client = client or ClientConnection(Pipe()[0])
        return Call(client, {"id": 1, "op": op, "kernel": "k1", "connection": {"key": "k"}, **arguments})

    def start(self, call: Call, **settings: Any) -> RemoteKernel:
        """A kernel that was attached, whose first front end the call's client serves."""
        given = KernelSettings.from_json(
            {"route": ["node"], "python": "python", "gpus": 0, "name": "n", **settings}
        )
        link = self.nodes.of(given).begin_link("python", None)
        remote = self.kernels.create("k1", given, call, link, self.kernels.origin(given, call))
        self.kernels.watch_client(remote, call)
        remote.attached()
        return remote

    def leaves(self, call: Call, *, sent_bye: bool = True) -> None:
        call.client.sent_bye = sent_bye
        call.client.close()
        call.client.disconnected()


@pytest.fixture
def short_path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="jgk", dir="/tmp") as folder:
        yield Path(folder)


@pytest.fixture
def play(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, short_path: Path
) -> Callable[[Callable[[Hub], Coroutine[Any, Any, None]]], None]:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short_path))  # a long one would not be used
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path))
    monkeypatch.setattr(kernels, "RECONNECT_TIMEOUT", 0.05)

    def play(test: Callable[[Hub], Coroutine[Any, Any, None]]) -> None:
        async def main() -> None:
            hub = Hub()
            try:
                await test(hub)
            finally:
                await hub.kernels.close()
                await hub.nodes.hang_up(unused_only=False)

        asyncio.run(main())

    return play


@pytest.mark.parametrize("returns", [False, True])
def test_a_front_end_that_leaves_while_the_owner_restarts_the_kernel_leaves_it(
    play: Any, returns: bool
) -> None:
    async def test(hub: Hub) -> None:
        owner, other = hub.call("start"), hub.call("attach", connection={"key": "other"})
        remote = hub.start(owner)
        remote.front_ends.add(front_end_of(other))
        hub.kernels.watch_client(remote, other)
        remote.life.shutdown_requested(restart=True)
        hub.leaves(owner)
        ports = next(iter(remote.front_ends)).edge.connection
        await hub.operations.op_release(hub.call("release", other.client))
        assert len(remote.front_ends) == 1
        if returns:
            again = hub.call("start", connection=ports)
            assert hub.kernels.pop_returning(remote.settings, again) is remote
            remote.restart()
            hub.kernels.watch_client(remote, again)
            hub.leaves(again)
        await until(lambda: remote.closed)
        assert not hub.kernels.in_use

    play(test)


def test_a_kernel_that_another_front_end_has_taken_over_outlives_the_restart_of_its_owner(play: Any) -> None:
    """The owner shuts the kernel down to restart it, but does not come back."""

    async def test(hub: Hub) -> None:
        owner, other = hub.call("start"), hub.call("attach", connection={"key": "other"})
        remote = hub.start(owner)
        front = remote.front_ends.add(front_end_of(other))
        hub.kernels.watch_client(remote, other)
        remote.life.shutdown_requested(restart=True)
        hub.leaves(owner)
        assert [one.absent for one in remote.front_ends] == [True, False] and remote.served
        remote._receive_request(front, Message(Channel.SHELL, 1, make("execute_request", {"code": "1"})))
        await until(lambda: not any(one.absent for one in remote.front_ends))
        assert remote.phase is Phase.RUN and list(remote.front_ends) == [front]
        assert hub.kernels.of(hub.call("command", other.client)) == (remote, front)

    play(test)


def test_a_restarted_kernel_whose_hosts_are_all_out_of_reach_starts_with_its_next_cell(play: Any) -> None:
    """By argv: the restart is the start of another launcher. When its front end leaves, nothing of it is left."""

    async def test(hub: Hub) -> None:
        call = hub.call("start")
        remote = hub.start(call, hosts=["node", "other"])
        remote.life.shutdown_requested(restart=True)
        hub.leaves(call)
        again = hub.call(
            "start", connection=remote.edge.connection, settings=remote.settings.to_json(), name="n"
        )
        answer = await hub.operations.op_start(again)
        assert answer["id"] == remote.kernel_id != "k1" and remote.not_started
        assert (answer["node"], answer["state"]) == ("node, other", "idle")
        hub.leaves(again)
        assert remote.phase is Phase.CLOSED and not len(remote.front_ends) and not hub.kernels.in_use

    play(test)


def test_the_hub_that_adopts_a_kernel_of_vs_code_knows_that_it_is_one(play: Any) -> None:
    """Its client has kept that from an event of the hub that was killed."""

    async def test(hub: Hub) -> None:
        arguments: dict[str, Any] = {
            "settings": {"route": ["node"], "gpus": 0},
            "name": "n",
            "python": "python",
        }
        first = hub.start(hub.call("start", parent=7), notebook="")
        code = {"code": "__vsc_ipynb_file__ = '/a.ipynb'", "store_history": False}
        served = ServedKernel(("start", dict(arguments)), lambda event: None)
        served.id = "k1"
        served._handle(first.event())
        assert served.arguments["from_vs_code"] is False
        send(first, Message(Channel.SHELL, 1, make("execute_request", code)))
        served._handle(first.event())
        hub.kernels.release(first)
        call = hub.call("adopt", parent=7, **{**served.arguments, "notebook": "/a.ipynb"})
        await hub.operations.op_adopt(call)
        (adopted,) = hub.kernels
        assert adopted is not first and adopted.is_of_vs_code

    play(test)


def test_what_a_kernel_in_a_job_was_sent_is_known_to_the_next_hub(play: Any) -> None:
    """Whether the kernel exists is known only when its job is found."""
    cell = Message(Channel.SHELL, 1, make("execute_request", {"code": "1"}))
    settings = {"route": ["login"], "slurm": True, "python": "/usr/bin/python3"}

    async def test(hub: Hub) -> None:
        call = hub.call("adopt", settings=settings, name="n")
        path = hub.kernels._delivered(call.settings, "k1")
        Delivered(path).requests.write([(header_key(cell), SavedRequest(0, cell))])
        await hub.operations.op_adopt(call)
        (adopted,) = hub.kernels
        assert adopted.must_be_found and adopted.link_state is LinkState.AWAY
        assert adopted.core.relay.table.in_flight == [cell]
        adopted.start_on(hub.nodes.of(KernelSettings(("node",))).begin_link("python", None), adopted.settings)
        assert not adopted.must_be_found and "create" not in adopted.open_request()
        sent = map(Message.decode, adopted.endpoint.outbox.withdraw())
        assert [one.content()["do"] for one in sent if one.channel is Channel.KEEPER] == ["unanswered"]

    play(test)


@pytest.mark.parametrize("others", [False, True])
def test_a_restart_that_needs_a_sign_in_ends_the_old_process_when_the_link_is_back(
    play: Any, others: bool
) -> None:
    async def test(hub: Hub) -> None:
        owner, other = hub.call("start"), hub.call("attach", connection={"key": "other"})
        remote = hub.start(owner)
        keep_trying(remote)
        if others:
            remote.front_ends.add(front_end_of(other))
            hub.kernels.watch_client(remote, other)
        report(remote, {"state": "busy", "pid": 7, "gpus": []})
        hub.problem = AuthError("asks for a code", hop="node", login=True)
        await until(lambda: remote.link.problem is hub.problem)
        remote.life.shutdown_requested(restart=True)
        with pytest.raises(AuthError):
            await hub.operations.op_restart(hub.call("restart", owner.client))
        assert (remote.phase is Phase.STOP) is not others and len(remote.front_ends) == others
        assert commands(remote) == ["stop"]

    play(test)


def test_a_client_that_leaves_in_a_restart_leaves_no_kernel(play: Any) -> None:
    """Jupyter's server exits while the link is down: the old process would keep its GPUs."""

    async def test(hub: Hub) -> None:
        call = hub.call("start")
        remote = hub.start(call, notebook="/a.ipynb")
        keep_trying(remote)
        report(remote, {"state": "busy", "pid": 7, "gpus": []})
        remote.life.shutdown_requested(restart=True)
        restart = asyncio.ensure_future(hub.operations.op_restart(hub.call("restart", call.client)))
        await until(lambda: remote.life.restarts)
        hub.leaves(call)
        restart.cancel()
        assert remote.phase is Phase.STOP and commands(remote) == ["restart", "stop"]

    play(test)


def keep_trying(remote: RemoteKernel) -> None:
    """Its link was up before."""
    assert isinstance(remote.link, Link)
    remote.link.keep_trying()


def commands(remote: RemoteKernel) -> list[str]:
    """What waits to be sent to the keeper."""
    queued = map(Message.decode, remote.endpoint.outbox.withdraw())
    return [str(one.content()["do"]) for one in queued if one.channel is Channel.KEEPER]


@pytest.mark.parametrize("notebook", ["", "/home/me/a.ipynb"])
@pytest.mark.parametrize("state", ["waiting", "busy"])
@pytest.mark.parametrize("parent", [0, 7])
def test_a_kernel_waits_for_gpus_only_as_long_as_somebody_can_return(
    play: Any, parent: int, state: str, notebook: str
) -> None:
    """As papermill, killed: its provisioner's connection just ends, its launcher says that it leaves."""

    async def test(hub: Hub) -> None:
        call = hub.call("start", parent=parent)
        remote = hub.start(call, notebook=notebook)
        report(remote, {"state": state, "gpus": []})
        hub.leaves(call, sent_bye=bool(parent))
        await until(lambda: not hub.kernels.in_use)
        sent = [Message.decode(data).content().get("do") for data in remote.endpoint.outbox.withdraw()]
        assert ("stop" in sent) is (state == "waiting" and not notebook)

    play(test)


@pytest.mark.parametrize("before", ["", "me"])
def test_nothing_is_renamed_without_an_absolute_path(play: Any, before: str) -> None:
    async def test(hub: Hub) -> None:
        call = hub.call("start")
        remote = hub.start(call, notebook="/me/a.ipynb")
        with pytest.raises(HubError):
            await hub.operations.op_renamed(hub.call("renamed", before=before, after="/b"))
        await hub.operations.op_renamed(hub.call("renamed", before="/me", after="/you"))
        assert remote.settings.notebook == "/you/a.ipynb"

    play(test)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("server", (True, True, False)),
        ("serve", (False, True, True)),
        ("other", (False, False, False)),
        ("", (True, False, False)),
    ],
)
def test_what_the_hub_knows_of_each_kind_of_front_end(play: Any, kind: str, expected: object) -> None:
    async def test(hub: Hub) -> None:
        spec = front_end_of(hub.call("start", front_end_kind=kind))
        assert (spec.rate_limited, spec.revives, spec.waits_for_page) == expected

    play(test)


def test_a_kernel_whose_link_reconnects_is_attached(play: Any) -> None:
    async def test(hub: Hub) -> None:
        remote = hub.start(hub.call("start"))
        node = hub.nodes.of(remote.settings)
        remote.detached("the connection was dropped")
        assert hub.kernels.attached(node, remote.kernel_id)
        taken = AgentRefusal("another computer has it", code="taken", hop="node")
        remote.lost(taken)
        assert not hub.kernels.attached(node, remote.kernel_id)

    play(test)


async def until(condition: Callable[[], object]) -> None:
    async def look() -> None:
        while not condition():
            await asyncio.sleep(0.005)

    await asyncio.wait_for(look(), DEADLINE)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes in folders")
def test_a_home_that_does_not_answer_stops_no_kernel(
    play: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files of records and replies are pipes, which nobody writes at first."""
    monkeypatch.setattr(job_kernels, "_READ_WITHIN", 0.01)
    for folder, name in (("jobs", "k1.json"), ("kernel-info", f"{'0' * 16}.json")):
        (tmp_path / "gpu-kernel" / folder).mkdir(parents=True, mode=0o700)
        os.mkfifo(tmp_path / "gpu-kernel" / folder / name)

    async def test(hub: Hub) -> None:
        hub.start(hub.call("start"), name="other")
        assert await hub.kernels.jobs.story("k1") == []
        (tmp_path / "gpu-kernel/kernel-info" / f"{'0' * 16}.json").write_text("{}")
        record = JobFile("k1", "7").with_event(1.0, "job", "job 7 is submitted")
        (tmp_path / "gpu-kernel/jobs/k1.json").write_text(json.dumps(record._asdict()))
        monkeypatch.setattr(job_kernels, "_READ_WITHIN", DEADLINE)
        assert [row["text"] for row in await hub.kernels.jobs.story("k1")] == ["job 7 is submitted"]

    play(test)


class UnreachableLink(NoLink):
    """The link to a node that never comes back."""

    state = "away"

    async def until_up(self) -> None:
        await asyncio.Event().wait()


@pytest.mark.parametrize("seconds", [60.0, 0.0])
def test_a_node_that_never_comes_back_keeps_the_hub_for_a_limited_time(
    monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    async def test() -> None:
        stops = PendingStops()
        left = LeftKernel("k", UnreachableLink("node"), KernelSettings())
        stops.add(left, (0, "n", "/a.ipynb"), None)
        assert bool(stops) is (seconds > 0)
        assert stops.names() == {"n"}

    monkeypatch.setattr(pending_stops, "_KEEPS_HUB", seconds)
    asyncio.run(test())


def test_a_kernel_that_was_never_started_needs_no_end() -> None:
    """As one whose job has not begun."""

    async def test() -> None:
        stops = PendingStops()
        stop = stops.add(LeftKernel("k", NoLink("login"), KernelSettings()), (0, "n", "/a.ipynb"), None)
        assert stop.task is not None
        await asyncio.wait_for(stop.task, DEADLINE)
        assert not stops and not stops.names()

    asyncio.run(test())
