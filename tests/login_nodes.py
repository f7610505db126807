"""A login node with programs in place of Slurm's, run by a real sh."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from played_agent import Socket, World

from jupyter_gpu_kernel.errors import AuthError, ConnectError
from jupyter_gpu_kernel.hub.node.shared_connection import RouteSettings
from jupyter_gpu_kernel.hub.ssh import Attempt
from jupyter_gpu_kernel.hub.transport.stream import CommandStream, Ends

TOOLS = "awk cat env grep head id od sed sh sort tail tr"


class LoginNode:
    """A machine with the usual tools; also the connection to it. `drop`: the connection breaks after a command.
    `refusal`: why nobody can sign in; `after`: called when a command has ended."""

    steps: list[tuple[str, str, float]] = []  # noqa: RUF012
    interactive = False
    host_keys = [("login", "SHA256:login")]  # noqa: RUF012

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.drop = False
        self.refusal: AuthError | None = None
        self.closed = False
        self.after: Callable[[], object] = lambda: None
        for tool in TOOLS.split():
            if where := shutil.which(tool):
                (folder / tool).symlink_to(where)

    def program(self, name: str, script: str) -> None:
        path = self.folder / name
        path.unlink(
            missing_ok=True
        )  # else the machine's own program, to which a link leads, would be overwritten
        path.write_text(f'#!/bin/sh\ncd {self.folder}\necho "$*" >>{name}.calls\n{script}\n')
        path.chmod(0o755)

    def slurm(self, sbatch: str, squeue: str) -> None:
        version = 'if [ "$1" = --version ]; then echo slurm 23.11.4; exit; fi'
        self.program("sbatch", f"{version}\ncat >/dev/null\n{sbatch}")
        self.program("squeue", squeue)

    def calls(self, name: str) -> list[str]:
        path = self.folder / f"{name}.calls"
        return path.read_text().splitlines() if path.exists() else []

    # --- the connection

    def __call__(self, route: RouteSettings, attempt: Attempt) -> LoginNode:
        if self.refusal is not None:
            raise self.refusal
        self.closed = False
        return self

    def run(
        self, command: str, *, stdin: bytes = b"", timeout: float = 30.0
    ) -> subprocess.CompletedProcess[bytes]:
        env = {"HOME": str(self.folder), "PATH": str(self.folder)}
        done = subprocess.run(["/bin/sh"], input=stdin, capture_output=True, timeout=timeout, env=env)
        self.after()
        if self.drop and b"sbatch --parsable" in stdin:
            self.drop, self.closed = False, True
            raise ConnectError("the connection was lost", hop="login")
        return done

    def open(self, command: str) -> Any:
        raise NotImplementedError

    def alive(self) -> bool:
        return not self.closed

    def responds(self, within: float) -> bool:
        return not self.closed

    def close(self) -> None:
        self.closed = True


class AgentConnection(LoginNode):
    """A connection by which the agent is reached that a test plays."""

    transport = ""

    def __init__(self, folder: Path, world: World) -> None:
        self._world, self.closed = world, False

    def open(self, command: str) -> CommandStream:
        return CommandStream(_Started(self._world.dial(False)))


class _Started(Ends):
    """The ends of the played agent's stream. The script that would start the agent is read first."""

    def __init__(self, stream: Socket) -> None:
        self._stream = stream
        self._started = False
        self.read, self.close = stream.read, stream.close

    def write(self, data: memoryview) -> int:
        if self._started:
            self._stream.write(bytes(data))
        self._started = True
        return len(data)

    def read_stderr(self, size: int) -> bytes:
        return b""

    def close_stdin(self) -> None: ...

    def wait(self, timeout: float) -> None: ...
