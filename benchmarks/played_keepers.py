"""Many keepers in one process, each with its socket as a real one has it, and no kernel behind them.

    python benchmarks/played_keepers.py FOLDER COUNT

A cell's code is what it does: "print N" prints N lines of 100 bytes, and all other code does nothing.
Prints "ready" when all sockets are there; ends with its stdin.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
from pathlib import Path
from typing import Any

from jupyter_gpu_kernel.agent.core import effects, events
from jupyter_gpu_kernel.agent.keeper.core_runner import CoreRunner
from jupyter_gpu_kernel.agent.keeper.server import HubEvents, KeeperServer
from jupyter_gpu_kernel.agent.kernel_settings import KernelSettings
from jupyter_gpu_kernel.agent.paths import Root
from jupyter_gpu_kernel.agent.system.loop import Loop
from jupyter_gpu_kernel.wire import PROTOCOL
from jupyter_gpu_kernel.wire.kernel_messages.compose import make
from jupyter_gpu_kernel.wire.messages import Channel, Lane, Message, keeper_message
from jupyter_gpu_kernel.wire.runtime import Runtime

RUNTIME = Runtime()
LINE = "x" * 99 + "\n"
INFO = {
    "status": "ok",
    "protocol_version": "5.3",
    "implementation": "played",
    "implementation_version": "1",
    "language_info": {"name": "python", "version": "3", "mimetype": "text/x-python", "file_extension": ".py"},
    "banner": "",
    "help_links": [],
}


class PlayedKeeper:
    """Answers the hub as the keeper of an idle kernel does."""

    def __init__(self, loop: Loop, root: Root, kernel_id: str) -> None:
        folder = root.make_kernel(kernel_id)
        self._lock = os.open(str(folder / "lock"), os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self._id = kernel_id
        self._count = 0
        self._runner = CoreRunner(loop, folder, KernelSettings(id=kernel_id), print)
        actions = {
            effects.ToKernel: self._received,
            effects.InputRejected: lambda error: print(error, file=sys.stderr),
        }
        for effect in (effects.CommandReceived, effects.RequestReceived, effects.ReplySent, effects.Want):
            actions[effect] = lambda *_: None
        self._runner.actions.update(actions)
        hub_events = HubEvents(
            self._request, self._tell_state, lambda: None, lambda error: print(error, file=sys.stderr)
        )
        self._server = KeeperServer(loop, folder / "keeper", self._runner, hub_events)
        for event in (events.KernelStarting(), events.GpusChanged(True, []), events.KernelUp(INFO)):
            self._runner.handle(event)

    def _request(self, request: dict[str, Any]) -> dict[str, Any]:
        if request["do"] == "status":
            return self._status()
        return {"protocol": PROTOCOL, "owner": "", "by": ""}

    def _status(self) -> dict[str, Any]:
        known = {"id": self._id, "name": "played", "node": "played", "state": "idle", "gpus": [], "pid": 0}
        return {**known, "notebook": "", "attached": True, "since": 0, "started": 0, "protocol": PROTOCOL}

    def _tell_state(self) -> None:
        self._runner.handle(events.Tell(Lane.ORDERED, keeper_message(event="state", **self._status())))

    def _received(self, request: Message) -> None:
        kind = request.msg_type
        self._say(request, Channel.IOPUB, "status", {"execution_state": "busy"})
        if kind == "execute_request":
            self._execute(request, str(request.content()["code"]))
        elif kind == "kernel_info_request":
            self._say(request, request.channel, "kernel_info_reply", INFO)
        self._say(request, Channel.IOPUB, "status", {"execution_state": "idle"})

    def _execute(self, request: Message, code: str) -> None:
        self._count += 1
        self._say(request, Channel.IOPUB, "execute_input", {"code": code, "execution_count": self._count})
        if code.startswith("print "):
            for _ in range(int(code.split()[1])):
                self._say(request, Channel.IOPUB, "stream", {"name": "stdout", "text": LINE})
        done = {"status": "ok", "execution_count": self._count, "user_expressions": {}, "payload": []}
        self._say(request, Channel.SHELL, "execute_reply", done)

    def _say(self, request: Message, channel: Channel, kind: str, content: dict[str, Any]) -> None:
        client = 0 if channel is Channel.IOPUB else request.client
        message = Message(channel, client, make(RUNTIME, kind, content, request.parts[0]))
        self._runner.handle(events.KernelSent(message))


def main(folder: Path, count: int) -> None:
    """Serve until stdin ends."""
    loop, root = Loop(RUNTIME), Root(folder)
    keepers = [PlayedKeeper(loop, root, f"played-{number}") for number in range(count)]
    loop.watch(0, lambda _: loop.stop())
    print(json.dumps({"ready": len(keepers)}), flush=True)
    loop.run()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
