"""The demo's SSH server: sign-in, commands and tunnels of one machine, on a connected socket.

It behaves as OpenSSH's server as far as a kernel needs it: public keys only, commands as real processes that outlive
their connection, no pty, and forwarding only to given nodes. It knows no ports and files: cluster.py listens.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import IO, Any

import paramiko
from paramiko.common import (
    AUTH_FAILED,
    AUTH_SUCCESSFUL,
    MSG_CHANNEL_REQUEST,
    OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED,
    OPEN_FAILED_UNKNOWN_CHANNEL_TYPE,
    OPEN_SUCCEEDED,
)

from ..hub.ssh.transport import READ_SIZE, WINDOW, BufferedSocket, Transport

_CHUNK = 1 << 18  # bytes read from a process at a time
_LOST = (OSError, EOFError, paramiko.SSHException)  # what paramiko raises if the connection is lost


@dataclass(frozen=True)
class PracticeNode:
    """One machine of the cluster: its user and key, the environment of its commands, and the nodes it forwards to."""

    name: str
    host_key: paramiko.PKey
    user: str
    client_key: paramiko.PKey
    environment: Mapping[str, str]  # complete; commands start in HOME
    tunnels: Mapping[tuple[str, int], PracticeNode] = field(default_factory=dict)

    def serve(self, sock: socket.socket | paramiko.Channel, size: int = READ_SIZE) -> None:
        """Speak SSH on `sock` until either side closes it; returns at once. `size`: the bytes of one read."""
        connection = _Connection(BufferedSocket(sock, size), self)
        with contextlib.suppress(*_LOST):  # disconnected already
            connection.start_server(event=threading.Event(), server=connection.requests)
            threading.Thread(
                target=connection.take_channels, name=f"{self.name} channels", daemon=True
            ).start()


class _Requests(paramiko.ServerInterface):
    """The requests of one client. paramiko calls the methods in the transport's thread, so they must not block."""

    def __init__(self, node: PracticeNode) -> None:
        self.node = node
        self.tunnels: dict[int, PracticeNode] = {}  # requested tunnels, by channel number
        self.commands: dict[int, bytes] = {}  # requested commands, by channel number

    def get_allowed_auths(self, username: str) -> str:
        return "publickey"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        known = username == self.node.user and key == self.node.client_key
        return AUTH_SUCCESSFUL if known else AUTH_FAILED

    def check_channel_request(self, kind: str, chanid: int) -> int:
        if kind == "session":
            return OPEN_SUCCEEDED
        return OPEN_FAILED_UNKNOWN_CHANNEL_TYPE

    def check_channel_direct_tcpip_request(
        self, chanid: int, origin: tuple[str, int], destination: tuple[str, int]
    ) -> int:
        node = self.node.tunnels.get(destination)
        if node is None:
            return OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED
        self.tunnels[chanid] = node
        return OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        self.commands[channel.chanid] = command
        return True


class _Connection(Transport):
    """One client's connection to one node."""

    def __init__(self, sock: BufferedSocket, node: PracticeNode) -> None:
        super().__init__(sock, [node.host_key.get_name()])
        self.add_server_key(node.host_key)
        self.node = node
        self.requests = _Requests(node)
        self._kept_channels: set[paramiko.Channel] = set()  # paramiko itself has only weak references

    def take_channels(self) -> None:
        """Pass tunnels to their nodes, until the connection ends."""
        while self.is_active():
            channel = self.accept(1.0)
            if channel is None:
                continue
            self._kept_channels = {one for one in self._kept_channels if not one.closed} | {channel}
            node = self.requests.tunnels.pop(channel.chanid, None)
            if node is not None:
                node.serve(channel, WINDOW)

    def begin(self, channel: paramiko.Channel) -> None:
        """Run the command that was requested on `channel`, if any."""
        command = self.requests.commands.pop(channel.chanid, None)
        if command is not None:
            arguments = (channel, command, self.node.environment)
            threading.Thread(
                target=_run, args=arguments, name=f"{self.node.name} command", daemon=True
            ).start()

    @staticmethod
    def _answer(channel: Any, message: paramiko.Message) -> None:
        channel._handle_request(message)
        channel.transport.begin(channel)

    # A command starts after the reply to its request is sent, so that the end of a short command cannot overtake it.
    # paramiko's ServerInterface is called before that, and nothing public after it.
    _channel_handler_table = {  # noqa: RUF012
        **Transport._channel_handler_table,  # type: ignore[attr-defined]
        MSG_CHANNEL_REQUEST: _answer,
    }


def _run(channel: paramiko.Channel, command: bytes, environment: Mapping[str, str]) -> None:
    """Run a command as sshd does without a pty, in a new session. The channel stays open until the pipes are closed."""
    with contextlib.suppress(*_LOST), contextlib.closing(channel):
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            ["/bin/sh", "-c", command],
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            cwd=environment["HOME"],
            env=environment,
            start_new_session=True,
        )
        assert process.stdin and process.stdout and process.stderr
        threading.Thread(target=_feed, args=(channel, process.stdin), name="stdin", daemon=True).start()
        arguments = (process.stderr, channel.sendall_stderr)
        errors = threading.Thread(target=_pump, args=arguments, name="stderr", daemon=True)
        errors.start()
        _pump(process.stdout, channel.sendall)
        errors.join()
        status = process.wait()
        if status >= 0:  # otherwise a signal ended it, which paramiko cannot report
            channel.send_exit_status(status)


def _feed(channel: paramiko.Channel, stdin: IO[bytes]) -> None:
    """Pass the client's data to the process. Data that it does not read is discarded: the window stays open."""
    with contextlib.suppress(*_LOST):
        while data := channel.recv(WINDOW):
            with contextlib.suppress(BrokenPipeError):
                stdin.write(data)
                stdin.flush()
    with contextlib.suppress(BrokenPipeError):
        stdin.close()


def _pump(pipe: IO[bytes], send: Callable[[bytes], None]) -> None:
    """Pass the process's output to the client. If the client is gone, close the pipe: the next write is a SIGPIPE."""
    with pipe, contextlib.suppress(*_LOST):
        while data := os.read(pipe.fileno(), _CHUNK):
            send(data)
