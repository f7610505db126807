"""A launcher as VS Code starts it: a process with a connection file of its own, and clients on its ports."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import uuid
from collections.abc import Iterator
from typing import Any

import psutil
from jupyter_client.blocking.client import BlockingKernelClient
from remote import Remote
from sshd import free_port
from waiting import DEADLINE, eventually

PORTS = ("shell_port", "iopub_port", "stdin_port", "control_port", "hb_port")


class Launcher:
    """One start as VS Code does it: five free ports, a new key, a plain child with pipes."""

    def __init__(self, remote: Remote, name: str = "cpu-argv", file_name: str = "", **more: Any) -> None:
        self.remote = remote
        self.spec = remote.data / "kernels" / name / "kernel.json"
        self.key = uuid.uuid4().hex
        self.connection: dict[str, Any] = {port: free_port() for port in PORTS}
        self.connection.update(ip="127.0.0.1", transport="tcp", key=self.key, signature_scheme="hmac-sha256")
        self.file = remote.runtime / (file_name or f"kernel-v3{uuid.uuid4().hex}.json")
        self.file.write_text(json.dumps(self.connection))
        self.clients: list[BlockingKernelClient] = []
        self.process = subprocess.Popen(self.argv(), **self.surroundings(), **more)

    def argv(self) -> list[str]:
        words = json.loads(self.spec.read_text())["argv"]
        return [str(self.file) if word == "{connection_file}" else word for word in words]

    def surroundings(self) -> dict[str, Any]:
        pipe = subprocess.PIPE
        env = self.remote.program_environment()
        return {"stdin": subprocess.DEVNULL, "stdout": pipe, "stderr": pipe, "text": True, "env": env}

    def client(self) -> BlockingKernelClient:
        """With VS Code's steps: ports in use, then kernel_info until it is answered and iopub has said something."""
        for port in ("shell_port", "iopub_port"):
            eventually(lambda port=port: self.in_use(self.connection[port]) or self.ended(), port)  # type: ignore[misc]
        client = BlockingKernelClient()
        client.load_connection_info({**self.connection, "key": self.key.encode()})
        client.hb_channel.time_to_dead = DEADLINE  # a busy machine is no dead kernel
        client.start_channels()
        self.clients.append(client)
        try:
            client.wait_for_ready(timeout=DEADLINE)
        except RuntimeError as error:
            raise AssertionError(f"{error}; launcher: {self.end() if self.ended() else 'runs'}") from None
        return client

    @staticmethod
    def in_use(port: int) -> bool:
        with socket.socket() as sock:
            return sock.connect_ex(("127.0.0.1", port)) == 0

    def ended(self) -> bool:
        return self.process.poll() is not None

    def end(self) -> tuple[int, str]:
        """(exit code, stderr) once it has ended by itself."""
        _, stderr = self.process.communicate(timeout=DEADLINE)
        return self.process.returncode, stderr or ""

    def dispose(self) -> None:
        """As VS Code ends it: SIGTERM to every descendant, by ppid, and then to the launcher."""
        launcher = psutil.Process(self.process.pid)
        for process in (*launcher.children(recursive=True), launcher):
            with contextlib.suppress(psutil.NoSuchProcess):  # the end of another one has ended it
                process.terminate()

    def close(self) -> None:
        for client in self.clients:
            client.stop_channels()
            client.context.destroy(linger=0)
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(timeout=DEADLINE)


@contextlib.contextmanager
def launched(remote: Remote, name: str = "cpu-argv", **more: Any) -> Iterator[Launcher]:
    launcher = Launcher(remote, name, **more)
    try:
        yield launcher
    finally:
        launcher.close()
