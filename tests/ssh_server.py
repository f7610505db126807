"""A one-hop SSH server that asks for what a test says: OpenSSH needs root to ask for passwords, paramiko's does not."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import paramiko
import pytest
from connecting import connect
from paramiko.packet import Packetizer
from sshd import make_key
from waiting import DEADLINE

from jupyter_gpu_kernel.hub.ssh import Asker
from jupyter_gpu_kernel.hub.ssh.config.route import Hop
from jupyter_gpu_kernel.hub.ssh.route_connection import RouteConnection


class SignInRules(paramiko.ServerInterface):
    """Lets alice in by `methods`, one after the other: password "sesame", code "123456", the test's key."""

    def __init__(self, methods: list[str], key: paramiko.PKey) -> None:
        self.methods, self.key = list(methods), key
        self.tries: list[str] = []
        self.answers = threading.Event()  # cleared: it falls silent when a key comes
        self.answers.set()
        self.banner = ""

    def get_banner(self) -> tuple[str, str]:
        return self.banner, "en"

    def get_allowed_auths(self, username: str) -> str:
        return self.methods[0]

    def _judge(self, method: str, right: bool) -> int:
        self.tries.append(method)
        if not right or self.methods[0] != method:
            return paramiko.AUTH_FAILED
        if len(self.methods) == 1:
            return paramiko.AUTH_SUCCESSFUL
        del self.methods[0]
        return paramiko.AUTH_PARTIALLY_SUCCESSFUL

    def check_auth_password(self, username: str, password: str) -> int:
        return self._judge("password", password == "sesame")

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        self.answers.wait(DEADLINE)
        return self._judge("publickey", key == self.key)

    def check_auth_interactive(
        self, username: str, submethods: str
    ) -> int | paramiko.server.InteractiveQuery:
        if self.methods[0] != "keyboard-interactive":
            return paramiko.AUTH_FAILED
        return paramiko.server.InteractiveQuery("Two factors", "Look at your telephone", ("Code: ", False))

    def check_auth_interactive_response(self, responses: list[str]) -> int:
        return self._judge("keyboard-interactive", responses == ["123456"])

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return paramiko.OPEN_SUCCEEDED


class RecordingPacketizer(Packetizer):
    """Keeps the numbers of the messages that came."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        self.kinds: list[int] = []

    def read_message(self) -> tuple[int, paramiko.Message]:
        kind, message = super().read_message()
        self.kinds.append(kind)
        return kind, message


class SshServer:
    """A one-hop SSH server with `SignInRules`. `transports`: of those who came."""

    def __init__(self, folder: Path, methods: list[str]) -> None:
        self.key = make_key(folder / "key")
        self.rules = SignInRules(methods, paramiko.PKey.from_path(self.key))
        self.trust_file = folder / "trusted_hosts"
        host_key_file = make_key(folder / "host_key")
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(DEADLINE)
        self.host_key = paramiko.PKey.from_path(host_key_file)
        self.port = self.listener.getsockname()[1]
        self.trust_file.write_text(
            f"[127.0.0.1]:{self.port} {self.host_key.get_name()} {self.host_key.get_base64()}\n"
        )
        self.transports: list[paramiko.Transport] = []
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self) -> None:
        client, _ = self.listener.accept()
        transport = paramiko.Transport(client, packetizer_class=RecordingPacketizer)
        self.transports.append(transport)
        transport.add_server_key(self.host_key)
        transport.start_server(threading.Event(), self.rules)

    def connect(
        self, ask: Asker | None, *keys: Path, timeout: float = 20.0, asks: bool = True
    ) -> RouteConnection:
        hop = Hop("login", "ssh", "127.0.0.1", self.port, "alice", identity_files=keys, uses_agent=False)
        hop = replace(hop, asks=asks)
        return connect([hop], ask=ask, trust_file=self.trust_file, timeout=timeout)

    def visit(self, ask: Asker | None, *keys: Path, timeout: float = 20.0, asks: bool = True) -> None:
        self.connect(ask, *keys, timeout=timeout, asks=asks).close()

    def close(self) -> None:
        self.thread.join(DEADLINE)
        self.listener.close()
        for transport in self.transports:
            transport.close()


@pytest.fixture
def ssh_server(tmp_path: Path) -> Iterator[Callable[..., SshServer]]:
    """A server that asks for the methods given."""
    built: list[SshServer] = []

    def build(*methods: str) -> SshServer:
        built.append(SshServer(tmp_path, list(methods)))
        return built[-1]

    yield build
    for one in built:
        one.close()
