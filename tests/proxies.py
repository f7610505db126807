"""A web proxy on loopback for HTTP's CONNECT and for SOCKS 5, and the lines for ProxyCommand that go through it."""

from __future__ import annotations

import contextlib
import shlex
import shutil
import socket
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from waiting import DEADLINE

_PROGRAM = Path(__file__).parent / "programs" / "through_proxy.py"


class Proxy:
    """Leads wherever a client asks. `kind` is "connect" or "5", as `nc -X` names them; `led` lists host:port."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.led: list[str] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def command(self, program: str) -> str:
        """Return a line for ProxyCommand; `program` is "nc" or "python"."""
        if program == "python":
            words: Sequence[str] = (sys.executable, "-I", str(_PROGRAM), self.kind, self.address)
        elif shutil.which(program):
            words = (program, "-X", self.kind, "-x", self.address)
        else:
            pytest.skip(f"no {program} on this machine (Debian: netcat-openbsd)")
        return f"{shlex.join(words)} %h %p"

    def close(self) -> None:
        """End all connections, and take no more."""
        for sock in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                self._sockets.append(client)
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        greet = _greet_socks if self.kind == "5" else _greet_http
        with contextlib.suppress(OSError, EOFError, ValueError), client:
            host, port, reply = greet(client)
            self.led.append(f"{host}:{port}")
            with socket.create_connection((host, port), DEADLINE) as server:
                server.settimeout(None)
                self._sockets.append(server)
                client.sendall(reply)
                threading.Thread(target=_copy, args=(server, client), daemon=True).start()
                _copy(client, server)


def _greet_http(client: socket.socket) -> tuple[str, int, bytes]:
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += _receive(client, 1)
    method, target, _ = head.split(b"\r\n")[0].decode().split(" ")
    if method != "CONNECT":
        raise ValueError(f"{method} is not what this proxy does")
    host, _, port = target.rpartition(":")
    return host.strip("[]"), int(port), b"HTTP/1.0 200 Connection established\r\n\r\n"


def _greet_socks(client: socket.socket) -> tuple[str, int, bytes]:
    """RFC 1928, without authentication; the address is an IPv4 one or a name."""
    _receive(client, _receive(client, 2)[1])  # the methods that the client offers
    client.sendall(b"\5\0")
    kind = _receive(client, 4)[3]
    if kind == 1:
        host = socket.inet_ntoa(_receive(client, 4))
    elif kind == 3:
        host = _receive(client, _receive(client, 1)[0]).decode()
    else:
        raise ValueError(f"no addresses of kind {kind}")
    return host, int.from_bytes(_receive(client, 2), "big"), b"\5\0\0\1" + bytes(6)


def _receive(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = sock.recv(size - len(data))
        if not more:
            raise EOFError
        data += more
    return data


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with contextlib.suppress(OSError):  # closed already
        target.shutdown(socket.SHUT_WR)


class Forwarder:
    """Leads each client to `port`; `address` is its own. After `lose` clients see their connections closed, and new
    ones too, while the server sees nothing: what it sends is lost. So it is when a laptop changes its network."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.swallowed = bytearray()
        self._lost = False
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def lose(self) -> None:
        self._lost = True
        for client, _ in self._pairs:
            _shut(client)

    def restore(self) -> None:
        """For new connections."""
        self._lost = False

    def close(self) -> None:
        """End all connections, and take no more."""
        _shut(self._listener)
        self._listener.close()
        for pair in self._pairs:
            for sock in pair:
                _shut(sock)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                if self._lost:
                    client.close()
                    continue
                server = socket.create_connection(("127.0.0.1", self._port), DEADLINE)
                server.settimeout(None)
                self._pairs.append((client, server))
                threading.Thread(target=self._to_server, args=(client, server), daemon=True).start()
                threading.Thread(target=self._to_client, args=(server, client), daemon=True).start()

    def _to_server(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                server.sendall(data)
        if not self._lost:
            _shut(server)

    def _to_client(self, server: socket.socket, client: socket.socket) -> None:
        with server, client, contextlib.suppress(OSError):
            while data := server.recv(65536):
                if self._lost:
                    self.swallowed += data
                else:
                    client.sendall(data)


def _shut(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
