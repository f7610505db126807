"""A TCP connection to a name and port, within a time, and quick with small packets. Knows nothing of SSH."""

from __future__ import annotations

import contextlib
import errno
import socket
import sys
import threading
import time
from collections.abc import Iterator

_KEEP = 20  # seconds without an answer until the system gives up a dead connection (where it can be told to)
_FAMILIES = {"inet": socket.AF_INET, "inet6": socket.AF_INET6}
ANEW = 3.0
"""Seconds until a connection is begun anew: the system repeats a lost first packet after 1, 3, 7, 15 s, and the network
may be back in between."""


def dial(host: str, port: int, timeout: float, family: str = "any", bind: str = "") -> socket.socket:
    """A connected socket. The name's addresses share the time: one dead address must not take it all.

    `family`, `bind`: as AddressFamily and BindAddress in ssh config.
    """
    end = time.monotonic() + timeout
    addresses = _addresses(host, port, timeout, _FAMILIES.get(family, socket.AF_UNSPEC))
    while True:
        problem: OSError = OSError(errno.EHOSTUNREACH, "No route to host")
        for number, (version, kind, protocol, _, address) in enumerate(addresses):
            share = max(end - time.monotonic(), 0.05) / (len(addresses) - number)
            sock = socket.socket(version, kind, protocol)
            try:
                sock.settimeout(min(share, ANEW))
                if bind:
                    sock.bind((bind, 0))
                sock.connect(address)
                _tune(sock)
                return sock
            except OSError as error:
                sock.close()
                problem = error
        if not isinstance(problem, TimeoutError) or time.monotonic() >= end:
            raise problem


def _addresses(
    host: str, port: int, timeout: float, wanted: socket.AddressFamily
) -> list[tuple[int, int, int, str, tuple[str, int]]]:
    """getaddrinfo, which knows no timeout, in a thread that is left behind if need be."""
    found: list[list[tuple[int, int, int, str, tuple[str, int]]]] = []
    problems: list[OSError] = []

    def look_up() -> None:
        try:
            found.append(socket.getaddrinfo(host, port, wanted, socket.SOCK_STREAM))  # type: ignore[arg-type]
        except (OSError, UnicodeError) as error:
            problems.append(error if isinstance(error, OSError) else socket.gaierror(str(error)))

    thread = threading.Thread(target=look_up, name="look up", daemon=True)
    thread.start()
    thread.join(timeout)
    if problems:
        raise problems[0]
    if not found:
        raise socket.gaierror(f"no answer within {timeout:.0f} s")
    return found[0]


def _tune(sock: socket.socket) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if sys.platform == "linux":
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _KEEP * 1000)


def be_patient(sock: object) -> None:
    """The system gives a silent connection all the time it has: what is at its end cannot be had anew."""
    if sys.platform == "linux" and isinstance(sock, socket.socket):
        with contextlib.suppress(OSError):  # it has just ended
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 0)


@contextlib.contextmanager
def acknowledging(sock: object) -> Iterator[None]:
    """Inside here our system does not delay its acknowledgements by 40 ms: a server without a session
    waits for them with its small packets. Linux can be told, but forgets: hence the loop."""
    done = threading.Event()
    if sys.platform == "linux" and isinstance(sock, socket.socket):
        threading.Thread(target=_acknowledge, args=(sock, done), name="tcp acknowledge", daemon=True).start()
    try:
        yield
    finally:
        done.set()


def _acknowledge(sock: socket.socket, done: threading.Event) -> None:
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # the connection ended: its user will notice
            while not done.wait(0.002):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
