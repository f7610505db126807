"""Opens TCP connections to a host name and port with a timeout, and tunes them. This module knows no SSH."""

from __future__ import annotations

import contextlib
import errno
import socket
import sys
import threading
import time
from collections.abc import Iterator

_USER_TIMEOUT = 20  # seconds without acknowledgement until Linux gives up a connection
_FAMILIES = {"inet": socket.AF_INET, "inet6": socket.AF_INET6}
RETRY_AFTER = 3.0
"""Seconds until an attempt is started again: the system repeats a lost SYN packet only after 1, 3, 7 and 15 s, and the
network may be back in between."""


def dial(host: str, port: int, timeout: float, family: str = "any") -> socket.socket:
    """Return a connected socket. The host's addresses share the timeout, so that a dead one does not use it up.

    `family`: as AddressFamily in the ssh configuration.
    """
    end = time.monotonic() + timeout
    addresses = _addresses(host, port, timeout, _FAMILIES.get(family, socket.AF_UNSPEC))
    while True:
        problem: OSError = OSError(errno.EHOSTUNREACH, "No route to host")
        for number, (version, kind, protocol, _, address) in enumerate(addresses):
            share = max(end - time.monotonic(), 0.05) / (len(addresses) - number)
            sock = socket.socket(version, kind, protocol)
            try:
                sock.settimeout(min(share, RETRY_AFTER))
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
    """Call getaddrinfo, which has no timeout, in a thread that is abandoned after `timeout` seconds."""
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
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _USER_TIMEOUT * 1000)


def disable_user_timeout(sock: object) -> None:
    """Let the system keep a silent connection as long as it can, because it cannot be opened again without the user."""
    if sys.platform == "linux" and isinstance(sock, socket.socket):
        with contextlib.suppress(OSError):  # it has just closed
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 0)


@contextlib.contextmanager
def quick_acknowledgements(sock: object) -> Iterator[None]:
    """Do not delay TCP acknowledgements by 40 ms inside this block: a jump host without TCP_NODELAY waits for them
    before it sends a small packet. Linux resets TCP_QUICKACK by itself, hence the loop."""
    done = threading.Event()
    if sys.platform == "linux" and isinstance(sock, socket.socket):
        threading.Thread(
            target=_acknowledge_quickly, args=(sock, done), name="tcp acknowledge", daemon=True
        ).start()
    try:
        yield
    finally:
        done.set()


def _acknowledge_quickly(sock: socket.socket, done: threading.Event) -> None:
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # the connection is closed
            while not done.wait(0.002):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
