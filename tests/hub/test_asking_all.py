"""Commands that ask all nodes: all connections at once, each tried once and for a short time, rows as they come."""

from __future__ import annotations

import os
import threading
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import pytest
from practice_hosts import Lab, loop
from runtimes import RUNTIME
from streams import LoopThread, log
from waiting import DEADLINE

from jupyter_gpu_kernel.errors import ConnectError
from jupyter_gpu_kernel.hub.clients.client_connection import ClientConnection
from jupyter_gpu_kernel.hub.operations import Operations
from jupyter_gpu_kernel.hub.rpc import Call

__all__ = ["loop"]


class Told(ClientConnection):
    """A client that keeps what it is told."""

    def __init__(self) -> None:
        super().__init__(Pipe()[0])
        self.rows: list[dict[str, Any]] = []
        self.got_rows = threading.Event()

    def send(self, message: dict[str, Any]) -> None:
        self.rows += message.get("progress", {}).get("rows", [])
        if self.rows:
            self.got_rows.set()


class Unreachable:
    """Connections that all have begun before the first one fails. `tried`: (last hop, timeout)."""

    def __init__(self, number: int) -> None:
        self.tried: list[tuple[str, float]] = []
        self._all_here = threading.Barrier(number)

    def __call__(self, route: list[str], *, timeout: float, **_: Any) -> Any:
        self.tried.append((route[-1], timeout))
        self._all_here.wait(DEADLINE)
        raise ConnectError("timed out", hop=route[-1])


@pytest.mark.parametrize("op", ["ps", "gpus", "stop"])
def test_all_connections_at_once_and_each_once(loop: LoopThread, op: str) -> None:
    names = ["gpu1", "gpu2", "login1", "login2", "login3"]
    connect = Unreachable(len(names))
    operations = loop.call(Operations, RUNTIME, connect, log)
    specs = [{"settings": {"route": [name], "slurm": name[0] == "l", "python": "p"}} for name in names]
    call = Call(Told(), {"id": 1, "op": op, "specs": specs, "within": 10.0, "kernel": "unknown"})
    if op == "stop":
        with pytest.raises(ConnectError, match="timed out"):
            loop.run(operations.operation(call))
    else:
        rows = loop.run(operations.operation(call))
        assert sorted(row["error"]["hop"] for row in rows) == names
    assert sorted(connect.tried) == [(name, 10.0) for name in names]
    loop.run(operations.close())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the agent needs a POSIX system")
def test_rows_come_before_the_slowest_node(tmp_path: Path, loop: LoopThread) -> None:
    lab = Lab(tmp_path, loop, "gpu1", "gpu2")
    slow = lab.hosts["gpu2"]
    slow.answers.clear()
    client, result = Told(), list[Any]()
    specs = [{"settings": lab.settings()}]
    asking = threading.Thread(target=lambda: result.extend(lab.call("gpus", client, specs=specs)))
    asking.start()
    assert client.got_rows.wait(DEADLINE)
    assert {row["hop"] for row in client.rows} == {"gpu1"} and not result
    slow.answers.set()
    asking.join(DEADLINE)
    assert {row["hop"] for row in result} == {"gpu1", "gpu2"}
    loop.run(lab.operations.close())
