"""Several work nodes that are this machine, each with a folder and GPUs of its own, and a hub's operations on them.

A connection runs commands here, with the node's environment. `fail` and `hang` say what a host does from now on.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import pytest
from practice_gpus import AGENT, Gpus
from runtimes import RUNTIME
from streams import LoopThread, log, wait_for
from waiting import DEADLINE

from jupyter_gpu_kernel.agent.mux.handlers import RequestHandlers
from jupyter_gpu_kernel.agent.paths import Root
from jupyter_gpu_kernel.errors import ConnectError
from jupyter_gpu_kernel.hub.client_connection import ClientConnection
from jupyter_gpu_kernel.hub.kernel.remote_kernel import RemoteKernel
from jupyter_gpu_kernel.hub.kernel_settings import KernelSettings
from jupyter_gpu_kernel.hub.node import install
from jupyter_gpu_kernel.hub.node.shared_connection import RouteSettings
from jupyter_gpu_kernel.hub.operations.commands import Operations
from jupyter_gpu_kernel.hub.rpc import Call
from jupyter_gpu_kernel.hub.several_hosts import host_starter
from jupyter_gpu_kernel.hub.several_hosts.placement import Offer
from jupyter_gpu_kernel.hub.ssh import Attempt
from jupyter_gpu_kernel.hub.transport.stream import CommandStream, Ends

NO_LAPSE = """from jupyter_gpu_kernel.agent.keeper.limits import housekeeping
housekeeping.LAPSES_AFTER = 600.0"""
"""In the agent: what the hub forgets to end would end by itself only after the test."""


class Command(Ends):
    """A command that carries a stream."""

    def __init__(self, command: str, env: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            ["/bin/sh", "-c", command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env=env,
            start_new_session=True,
        )
        self._reading = threading.Lock()

    def read(self, size: int) -> bytes:
        assert self.process.stdout
        with self._reading:
            return b"" if self.process.stdout.closed else self.process.stdout.read(size)

    def read_stderr(self, size: int) -> bytes:
        return b""

    def write(self, data: memoryview) -> int:
        assert self.process.stdin
        return self.process.stdin.write(data) or 0

    def close_stdin(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)  # the agent's end, too
        self.process.wait()
        assert self.process.stdin and self.process.stdout
        with self._reading:
            self.process.stdout.close()
        with contextlib.suppress(OSError):
            self.process.stdin.close()

    def wait(self, timeout: float) -> int | None:
        return self.process.wait(timeout)


class Host:
    """One of the nodes; its connections are `Host` itself."""

    steps: list[tuple[str, str, float]] = []  # noqa: RUF012 (the protocol's)
    interactive = False
    closed = False

    def __init__(self, name: str, folder: Path) -> None:
        self.host_keys = [(name, f"SHA256:{name}")]
        self.transport = ""
        self.base = folder / name
        self.base.mkdir(mode=0o700)
        self.gpus = Gpus(self.base)
        self.env = {**os.environ, **self.gpus.env, "JUPYTER_GPU_KERNEL_BASE": str(self.base)}
        self.commands: list[Command] = []
        self.reachable = True
        self.instead = ""  # a command that is run in place of the agent
        self.answers = threading.Event()
        self.answers.set()

    def open(self, command: str) -> CommandStream:
        self.commands.append(Command(self.instead or command, self.env))
        return CommandStream(self.commands[-1])

    def run(self, command: str, *, stdin: bytes = b"", timeout: float = 30.0) -> Any:
        return subprocess.run(
            ["/bin/sh", "-c", command], input=stdin, capture_output=True, timeout=timeout, env=self.env
        )

    def alive(self) -> bool:
        return self.reachable

    def responds(self, within: float) -> bool:
        return self.reachable

    def close(self) -> None:
        for command in self.commands:
            command.close()
        self.commands.clear()

    def crash(self) -> None:
        """It cannot be reached any more, and nothing on it runs."""
        self.reachable = False
        self.close()
        self.end_all()

    def unplug(self) -> None:
        """It cannot be reached for now; what runs on it goes on."""
        self.reachable = False
        self.close()

    def root(self) -> Root:
        return Root(next(self.base.glob("jupyter-gpu-kernel-*"), self.base))

    def kernels(self) -> list[str]:
        """The folders of kernels."""
        return self.root().kernels()

    def story(self, kernel: str) -> str:
        reported = RequestHandlers(RUNTIME, self.root()).handle({"do": "story", "kernel": kernel})
        return "\n".join(str(entry["text"]) for entry in reported["story"])

    def end_all(self) -> None:
        handlers = RequestHandlers(RUNTIME, self.root())
        for kernel in self.kernels():
            with contextlib.suppress(Exception):
                handlers.handle({"do": "stop", "kernel": kernel})


class Lab:
    """The hosts, and the hub's operations."""

    def __init__(self, folder: Path, loop: LoopThread, *names: str) -> None:
        self.hosts = {name: Host(name, folder) for name in names}
        self.loop = loop
        self.operations = loop.call(Operations, RUNTIME, self.connect, log)
        self.clients: list[ClientConnection] = []

    def connect(self, route: RouteSettings, attempt: Attempt) -> Any:
        host = self.hosts[route.route[-1]]
        host.answers.wait(DEADLINE)
        if not host.reachable:
            raise ConnectError("the connection timed out", hop=route.route[-1])
        return host

    def call(self, op: str, client: ClientConnection | None = None, **arguments: Any) -> Any:
        """The answer to an operation of a new client, or of this one."""
        client = client or self.client()
        call = Call(client, {"id": 1, "op": op, **arguments})
        return self.loop.run(self.operations.operation(call))

    def client(self) -> ClientConnection:
        self.clients.append(ClientConnection(Pipe()[0]))
        return self.clients[-1]

    def settings(self, **settings: Any) -> dict[str, Any]:
        hosts = list(self.hosts)
        return {"route": hosts[:1], "hosts": hosts, "python": sys.executable, "gpus": 1, **settings}

    def start(
        self, notebook: str = "", client: ClientConnection | None = None, **settings: Any
    ) -> RemoteKernel:
        """A kernel of the kernelspec “lab”, which can be used."""
        connection = {"transport": "tcp", "ip": "127.0.0.1", "key": "k", "signature_scheme": "hmac-sha256"}
        parent = {"parent": settings.pop("parent")} if "parent" in settings else {}
        answer = self.call(
            "start",
            client,
            **parent,
            settings=self.settings(**settings),
            name="lab",
            notebook=notebook,
            connection=connection,
        )
        return self.remote(str(answer["id"]))

    def remote(self, kernel_id: str) -> RemoteKernel:
        found = [one for one in self.operations._kernels if one.kernel_id == kernel_id]
        assert len(found) == 1, found
        return found[0]

    def offers(self, **settings: Any) -> list[Offer]:
        """What the hosts offer to a kernel with these settings, the best one first."""
        given = KernelSettings.from_json(self.settings(name="lab", **settings))
        return self.loop.run(self.operations._kernels._placement.ask(given, None))

    def clear(self) -> None:
        """Ends all kernels; the hosts and their GPUs can be used again."""
        for remote in list(self.operations._kernels):
            self.loop.call(remote.stop, "the test has ended")
        for host in self.hosts.values():
            host.reachable = True
            host.answers.set()
            host.gpus.report(4)
            host.end_all()
            wait_for(lambda host=host: not host.kernels(), "the end of all kernels")  # type: ignore[misc]

    def close(self) -> None:
        self.loop.run(self.operations.close())
        for host in self.hosts.values():
            host.close()


@pytest.fixture(scope="module")
def loop() -> Iterator[LoopThread]:
    with LoopThread() as loop:
        yield loop


@pytest.fixture(scope="module")
def hosts(loop: LoopThread) -> Iterator[Lab]:
    with (
        tempfile.TemporaryDirectory(prefix="jgk-", dir="/tmp") as folder,  # a socket's path must be short
        pytest.MonkeyPatch.context() as patch,
    ):
        (Path(folder) / "local").mkdir(mode=0o700)
        patch.setenv("XDG_RUNTIME_DIR", str(Path(folder) / "local"))
        patch.setenv("JUPYTER_DATA_DIR", str(Path(folder) / "local"))
        patch.setattr(host_starter, "OPEN_AFTER", 0.3)
        patch.setattr(install, "_MAIN_PY", f"{NO_LAPSE}\n{AGENT}")
        install.packed_once.cache_clear()
        lab = Lab(Path(folder), loop, "gpu1", "gpu2")
        try:
            yield lab
        finally:
            lab.close()
            install.packed_once.cache_clear()


@pytest.fixture
def lab(hosts: Lab) -> Iterator[Lab]:
    """The hosts without a kernel, each with four free GPUs."""
    try:
        yield hosts
    finally:
        hosts.clear()
