"""A hub that a test plays: its operations are answered here."""

from __future__ import annotations

import contextlib
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

from jupyter_gpu_kernel.errors import HubError
from jupyter_gpu_kernel.hub.paths import hub_address, make_hub_key
from jupyter_gpu_kernel.hub.rpc import Call, RpcServer

__all__ = ["hub"]


class PlayedHub:
    """`rows`: what lists of kernels return; `asked`: the operation and kernel of each other call. A call has no result
    but for those of `stop`."""

    def __init__(self, loop: LoopThread) -> None:
        self.rows: list[dict[str, Any]] = []
        self.asked: list[tuple[str, str]] = []
        self._server = loop.run(self._listen())

    async def _listen(self) -> RpcServer:
        return RpcServer(RUNTIME, hub_address(), make_hub_key(RUNTIME), self._operation, log)

    async def _operation(self, call: Call) -> Any:
        if call.op in ("ps", "stories"):
            return self.rows
        if "kernel" in call.arguments:
            self.asked.append((call.op, str(call.arguments["kernel"])))
        if call.op in ("hello", "stop", "hang_up"):
            return {"ok": True}
        raise HubError("this is all")

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command, which asks this hub."""
        command = [sys.executable, "-m", "jupyter_gpu_kernel.cli", *words]
        return subprocess.run(command, capture_output=True, text=True, env=os.environ, timeout=DEADLINE)

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
