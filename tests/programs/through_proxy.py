"""What a site without netcat writes as ProxyCommand: joins stdin and stdout to HOST PORT through a proxy.

Usage: through_proxy.py connect|5 PROXY:PORT HOST PORT
"""

from __future__ import annotations

import os
import socket
import sys
import threading


def main(kind: str, proxy: str, host: str, port: str) -> None:
    """Connect, ask the proxy, then copy both ways until either end closes."""
    address, _, proxy_port = proxy.rpartition(":")
    sock = socket.create_connection((address, int(proxy_port)))
    if kind == "connect":
        sock.sendall(f"CONNECT {host}:{port} HTTP/1.0\r\n\r\n".encode())
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += sock.recv(1) or sys.exit("the proxy has hung up")
        if head.split()[1] != b"200":
            sys.exit(head.decode())
    else:
        name = host.encode()
        sock.sendall(b"\5\1\0")
        sock.recv(2)
        sock.sendall(b"\5\1\0\3" + bytes([len(name)]) + name + int(port).to_bytes(2, "big"))
        if sock.recv(10)[1:2] != b"\0":
            sys.exit("the proxy refuses")
    threading.Thread(target=_send, args=(sock,), daemon=True).start()
    while data := sock.recv(65536):
        view = memoryview(data)
        while view:
            view = view[os.write(1, view) :]


def _send(sock: socket.socket) -> None:
    while data := os.read(0, 65536):
        sock.sendall(data)
    sock.shutdown(socket.SHUT_WR)


main(*sys.argv[1:])
