"""`stop` with a hub that a test plays: its operations are answered here."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from runtimes import RUNTIME
from streams import LoopThread, log
from waiting import DEADLINE

from jupyter_gpu_kernel import kernelspecs
from jupyter_gpu_kernel.hub.paths import hub_address, make_hub_key
from jupyter_gpu_kernel.hub.rpc import Call, RpcServer

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="its pipes are no sockets")


class PlayedHub:
    """`rows`: what `ps` returns; `stopped`: the kernels that clients have stopped."""

    def __init__(self, loop: LoopThread) -> None:
        self.rows: list[dict[str, Any]] = []
        self.stopped: list[str] = []
        self._server = loop.run(self._listen())

    async def _listen(self) -> RpcServer:
        return RpcServer(RUNTIME, hub_address(), make_hub_key(RUNTIME), self._operation, log)

    async def _operation(self, call: Call) -> Any:
        if call.op == "ps":
            return self.rows
        if call.op == "stop":
            self.stopped.append(call.arguments["kernel"])
        return {"ok": True}

    def close(self) -> None:
        self._server.close()
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_UNIX) as sock,
        ):  # wakes the thread that accepts
            sock.connect(hub_address())


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[PlayedHub]:
    with tempfile.TemporaryDirectory(prefix="jgk") as folder, LoopThread() as loop:
        for name in ("JUPYTER_DATA_DIR", "XDG_RUNTIME_DIR"):
            (Path(folder) / name).mkdir()
            monkeypatch.setenv(name, str(Path(folder) / name))
        hub = PlayedHub(loop)
        try:
            yield hub
        finally:
            hub.close()


def test_a_kernel_of_which_several_rows_tell_is_stopped_once(hub: PlayedHub) -> None:
    """A kernel that waits for its job is away on each node that cannot be reached."""
    kernelspecs.write("a100", {"route": ["login"], "slurm": True, "python": sys.executable})
    hub.rows = [{"id": "k1", "state": state, "node": "login"} for state in ("waiting", "away", "away")]
    command = [sys.executable, "-m", "jupyter_gpu_kernel.cli", "stop", "--all", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ, timeout=DEADLINE)
    assert json.loads(done.stdout) == {"stopped": ["k1"], "errors": []}, done.stderr
    assert hub.stopped == ["k1"]
