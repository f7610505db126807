"""Opens TCP connections to a host name and port with a timeout, and tunes them. This module knows no SSH."""

from __future__ import annotations

import contextlib
import errno
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from functools import partial
from typing import Any, TypeVar

_USER_TIMEOUT = 20  # seconds without acknowledgement until Linux gives up a connection
RETRY_AFTER = 3.0
"""Seconds until an attempt is started again: the system repeats a lost SYN packet only after 1, 3, 7 and 15 s, and the
network may be back in between."""
T = TypeVar("T")


def dial(host: str, port: int, timeout: float) -> socket.socket:
    """Return a connected socket. The host's addresses share the timeout, so that a dead one does not use it up."""
    end = time.monotonic() + timeout
    addresses = _addresses(host, port, timeout)
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


def _addresses(host: str, port: int, timeout: float) -> list[tuple[Any, ...]]:
    """Return the addresses of the host. Raises gaierror if there are none, or if they are not known in time."""
    try:
        return return_within(timeout, partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM))
    except UnicodeError as error:
        raise socket.gaierror(str(error)) from error
    except TimeoutError as error:
        raise socket.gaierror(f"no answer within {timeout:.0f} s") from error


def return_within(seconds: float, call: Callable[[], T]) -> T:
    """Return the result of a call that has no timeout of its own. Raises TimeoutError after so many seconds, and
    abandons the thread in which the call runs."""
    result: Future[T] = Future()

    def run() -> None:
        try:
            result.set_result(call())
        except BaseException as error:  # raised again where the result is awaited
            result.set_exception(error)

    threading.Thread(target=run, name="call with timeout", daemon=True).start()
    if not wait([result], seconds).done:
        raise TimeoutError
    return result.result()


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
