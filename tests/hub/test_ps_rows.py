"""`ps` shows each kernel once, also where two routes lead to its machine and one of them is down."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import pytest
from login_nodes import AgentConnection
from played_agent import World
from practice_hosts import loop
from runtimes import RUNTIME
from streams import LoopThread, log

from jupyter_gpu_kernel.errors import ConnectError
from jupyter_gpu_kernel.hub.client_connection import ClientConnection
from jupyter_gpu_kernel.hub.node.shared_connection import RouteSettings
from jupyter_gpu_kernel.hub.operations.commands import Operations
from jupyter_gpu_kernel.hub.rpc import Call
from jupyter_gpu_kernel.hub.ssh import Attempt

__all__ = ["loop"]

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the scripts run on the node's sh")


class Connection(AgentConnection):
    """A connection to the machine by one route."""

    host_keys = [("machine", "SHA256:machine")]  # noqa: RUF012

    def __init__(self, folder: Path, machine: Machine, route: str) -> None:
        super().__init__(folder, machine)
        self._machine, self._route = machine, route

    def alive(self) -> bool:
        return super().alive() and self._route not in self._machine.down


class Machine(World):
    """A machine with one kernel, to which the routes "first" and "second" lead. `down`: routes that fail."""

    def __init__(self, folder: Path, loop: LoopThread) -> None:
        super().__init__()
        self.down: set[str] = set()
        self._folder, self._loop = folder, loop
        self.operations = loop.call(Operations, RUNTIME, self._connect, log)

    def answer(self, request: dict[str, Any]) -> dict[str, Any] | None:
        if request["do"] == "list":
            return {"kernels": [{"id": "k1", "state": "idle"}], "root": "a"}
        return super().answer(request)

    def _connect(self, route: RouteSettings, attempt: Attempt) -> Connection:
        if route.route[-1] in self.down:
            raise ConnectError("there is no route", hop=route.route[-1])
        return Connection(self._folder, self, route.route[-1])

    def call(self, op: str, **arguments: Any) -> Any:
        call = Call(ClientConnection(Pipe()[0]), {"id": 1, "op": op, **arguments})
        return self._loop.run(self.operations.operation(call))

    def kernels(self) -> list[tuple[str, str, str]]:
        """Each row of a kernel in `ps` as (id, state, route)."""
        specs = [{"name": route, "settings": _settings(route)} for route in ("first", "second")]
        rows = self.call("ps", specs=specs, within=10.0)
        return [(row["id"], row["state"], row["hop"]) for row in rows if "id" in row]


def _settings(route: str) -> dict[str, Any]:
    return {"route": [route], "python": "/p", "gpus": 0}


@pytest.fixture
def machine(tmp_path: Path, loop: LoopThread, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path))
    machine = Machine(tmp_path, loop)
    yield machine
    loop.run(machine.operations.close())
    machine.close()


def test_a_kernel_on_a_machine_that_another_route_reaches_is_shown_once(machine: Machine) -> None:
    """The notebook's kernelspec has the route that is down."""
    assert machine.kernels() == [("k1", "detached", "first")]
    machine.down = {"first"}
    machine.close()  # the links drop, and one comes back
    machine.call("adopt", kernel="k1", name="first", settings=_settings("first"), connection={"key": "k"})
    assert machine.kernels() == [("k1", "idle", "second")]
