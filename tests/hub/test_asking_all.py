"""Commands that ask all nodes: all connections at once, each tried once and for a short time."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import pytest
from practice_hosts import Lab, loop
from runtimes import RUNTIME
from streams import LoopThread, log
from waiting import DEADLINE

from jupyter_gpu_kernel.errors import ConnectError
from jupyter_gpu_kernel.hub.client_connection import ClientConnection
from jupyter_gpu_kernel.hub.kernel_settings import KernelSettings
from jupyter_gpu_kernel.hub.node import node as node_module
from jupyter_gpu_kernel.hub.node import nodes
from jupyter_gpu_kernel.hub.node.shared_connection import RouteSettings
from jupyter_gpu_kernel.hub.operations.commands import Operations
from jupyter_gpu_kernel.hub.rpc import Call
from jupyter_gpu_kernel.hub.ssh import Attempt

__all__ = ["loop"]


class RecordingConnection(ClientConnection):
    """A client that keeps what it is told."""

    def __init__(self) -> None:
        super().__init__(Pipe()[0])
        self.questions: list[int] = []
        self.steps: list[str] = []
        self.hops: list[str] = []
        """Of each step."""

    def send(self, message: dict[str, Any]) -> None:
        self.questions += [message["question"]] if "ask" in message else []
        self.steps += [message["progress"]["step"]] if "progress" in message else []
        self.hops += [message["progress"]["hop"]] if "progress" in message else []


class Unreachable:
    """Connections that all have begun before the first one fails. `tried`: (last hop, timeout)."""

    def __init__(self, number: int) -> None:
        self.tried: list[tuple[str, float]] = []
        self._all_here = threading.Barrier(number)

    def __call__(self, route: RouteSettings, attempt: Attempt) -> Any:
        hop = route.route[-1]
        self.tried.append((hop, attempt.timeout))
        self._all_here.wait(DEADLINE)
        raise ConnectError("timed out", hop=hop)


@pytest.mark.parametrize("op", ["ps", "gpus", "stop"])
def test_all_connections_at_once_and_each_once(loop: LoopThread, op: str) -> None:
    names = ["gpu1", "gpu2", "login1", "login2", "login3"]
    connect = Unreachable(len(names))
    operations = loop.call(Operations, RUNTIME, connect, log)
    specs = [{"settings": {"route": [name], "slurm": name[0] == "l", "python": "p"}} for name in names]
    call = Call(
        RecordingConnection(), {"id": 1, "op": op, "specs": specs, "within": 10.0, "kernel": "unknown"}
    )
    if op == "stop":
        with pytest.raises(ConnectError, match="timed out"):
            loop.run(operations.operation(call))
    else:
        rows = loop.run(operations.operation(call))
        assert sorted(row["error"]["hop"] for row in rows) == names
    assert sorted(connect.tried) == [(name, 10.0) for name in names]
    loop.run(operations.close())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the agent needs a POSIX system")
@pytest.mark.parametrize("op", ["ps", "gpus"])
def test_a_node_that_connects_and_never_answers_is_given_up(
    tmp_path: Path, loop: LoopThread, op: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "_ANSWERED_WITHIN", {"list": 0.0, "gpus": 0.0})
    monkeypatch.setattr(nodes, "_STARTED_WITHIN", 0.0)
    lab = Lab(tmp_path, loop, "gpu1")
    lab.hosts["gpu1"].instead = "cat >/dev/null"
    (row,) = lab.call(op, specs=[{"settings": lab.settings()}], within=1.0)
    assert row["node"] == "gpu1" and row["error"]["cause"] == "the node has not answered for 1 s"
    loop.run(lab.operations.close())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the agent needs a POSIX system")
def test_the_progress_names_a_node_that_has_not_answered(
    tmp_path: Path, loop: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "_ANSWERED_WITHIN", {"list": 0.0})
    monkeypatch.setattr(nodes, "_STARTED_WITHIN", 0.0)
    lab = Lab(tmp_path, loop, "gpu1", "gpu2")
    lab.hosts["gpu1"].instead = "cat >/dev/null"
    lab.hosts["gpu2"].unplug()
    client = RecordingConnection()
    specs = [{"settings": lab.settings(route=[name], hosts=[])} for name in lab.hosts]
    assert len(lab.call("ps", client, specs=specs, within=2.0)) == 2
    shown = [hop for hop, step in zip(client.hops, client.steps, strict=True) if step == "asking"]
    assert shown == ["gpu1", "gpu2", "gpu1"]
    loop.run(lab.operations.close())


SILENT = """#!/bin/sh
while [ ! -e {done} ]; do sleep 0.05; done
exit 1
"""


@pytest.mark.parametrize("op", ["ps", "gpus"])
def test_a_login_node_whose_slurm_does_not_answer_is_given_up(
    tmp_path: Path, loop: LoopThread, op: str
) -> None:
    lab = Lab(tmp_path, loop, "login")
    done, programs = tmp_path / "done", tmp_path / "programs"
    programs.mkdir()
    for name in ("sbatch", "squeue", "scancel", "scontrol", "sinfo", "sacct"):
        (programs / name).write_text(SILENT.format(done=done))
        (programs / name).chmod(0o755)
    login = lab.hosts["login"]
    login.env["PATH"] = f"{programs}:{login.env['PATH']}"
    settings = lab.settings(hosts=[], slurm=True)
    (row,) = lab.call(op, specs=[{"settings": settings}], within=0.5)
    done.touch()
    assert row["node"] == "login" and row["error"]["cause"].startswith("Slurm has not answered for")
    loop.run(lab.operations.close())


class Hanging:
    """Attempts to connect to a login node that do not end until `released` is set. `began`: one has begun."""

    def __init__(self) -> None:
        self.began = threading.Event()
        self.released = threading.Event()

    def __call__(self, route: RouteSettings, attempt: Attempt) -> Any:
        if route.route == ("login",):
            self.began.set()
            self.released.wait(2 * DEADLINE)
        raise ConnectError("timed out", hop=route.route[-1])


LOGIN = {"route": ["login"], "slurm": True, "python": "p"}


@pytest.fixture
def hanging(
    loop: LoopThread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Hanging, Operations]]:
    """A hub that tries to connect to a login node in the background, for longer than commands wait."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path))
    monkeypatch.setattr(node_module, "_CONNECT_MARGIN", 0.0)
    connect = Hanging()
    operations = loop.call(Operations, RUNTIME, connect, log)
    login = operations._nodes.of(KernelSettings.from_json(LOGIN))
    background = asyncio.run_coroutine_threadsafe(login.connected(None), loop.loop)
    assert connect.began.wait(DEADLINE)
    try:
        yield connect, operations
    finally:
        connect.released.set()
        assert isinstance(background.exception(DEADLINE), ConnectError)
        loop.run(operations.close())


@pytest.mark.parametrize("op", ["ps", "gpus", "stop"])
def test_a_call_does_not_wait_for_another_attempt_to_connect(
    loop: LoopThread, hanging: tuple[Hanging, Operations], op: str
) -> None:
    connect, operations = hanging
    client = RecordingConnection()
    specs = [{"settings": LOGIN}]
    call = Call(client, {"id": 1, "op": op, "specs": specs, "within": 0.3, "kernel": "unknown"})
    if op == "stop":
        with pytest.raises(ConnectError, match="the node has not answered for"):
            loop.run(operations.operation(call))
    else:
        (row,) = loop.run(operations.operation(call))
        assert row["node"] == "login" and "has not answered for" in row["error"]["cause"]
    assert not connect.released.is_set()
    asked = client.steps.count("asking")
    assert asked == (2 if op == "gpus" else 1)  # of the GPUs' queue, and of the jobs


def test_a_kernel_in_a_job_behind_an_unreachable_login_node_is_away(
    loop: LoopThread, hanging: tuple[Hanging, Operations]
) -> None:
    _, operations = hanging
    settings = KernelSettings(
        ("login", "gpu1"), python="p", gpus=0, name="a100", job="7", login_route=("login",)
    )
    start = Call(RecordingConnection(), {"id": 1, "op": "start", "connection": {"key": "k"}})

    def attach() -> None:
        link = operations._nodes.of(settings).begin_link("p", None)
        origin = operations._kernels.origin(settings, start)
        remote = operations._kernels.create("k1", settings, start, link, origin)
        remote.attached()
        remote.detached("the connection was dropped")

    loop.call(attach)
    ps = Call(RecordingConnection(), {"id": 2, "op": "ps", "specs": [{"settings": LOGIN}], "within": 0.3})
    kernel, error = loop.run(operations.operation(ps))
    assert (kernel["id"], kernel["state"], kernel["attached"]) == ("k1", "away", True)
    assert error["node"] == "login"


def test_the_time_in_which_the_user_is_asked_does_not_count(loop: LoopThread) -> None:
    client = RecordingConnection()
    call = Call(client, {"id": 1, "op": "ps", "asks": True})

    async def main() -> bool:
        asking = asyncio.create_task(asyncio.to_thread(call.confirm_host, "gpu1", "SHA256:x", "ed25519"))
        while not client.questions:
            await asyncio.sleep(0.01)
        limited = asyncio.create_task(call.limited(0.01, asking))
        await asyncio.wait([limited], timeout=0.1)
        client.answer_received({"answer": client.questions[0], "value": True})
        return await limited

    assert loop.run(main()) is True
