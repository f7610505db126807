"""One client's connection to the hub: the proof that both sides have the key, queued messages out, parsed messages in,
questions and their answers.

The hub and a client prove to each other that they have the key, by HMAC-SHA256 of random bytes of both.
multiprocessing.connection would use HMAC-MD5 before Python 3.12, which systems in FIPS mode refuse.

A message is one JSON object. From a client: {"id", "op", …} calls an operation, {"answer": question, "value"} answers a
question, or {"answer", "cancelled"}, {"bye"} closes. This module knows no operation, and a client imports it, too.
"""

from __future__ import annotations

import contextlib
import hmac
import itertools
import json
import os
import queue
import re
import socket
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio  # large, and a launcher has no event loop

_SIZE = 32
"""Bytes of each side's random bytes, and of a proof."""
MAX_MESSAGE = 4 * 1024 * 1024
"""Bytes of a message from a client."""
MAX_UNREAD = 64 * 1024 * 1024
"""Bytes that wait for a client that does not read; a larger message waits alone."""
_MAX_NUMBER = 2**53
_OPERATION = re.compile(r"[a-z_]{1,40}")


def accept_client(connection: Connection[Any, Any], key: bytes) -> None:
    """The hub's side. Raise AuthenticationError if the client does not have the key."""
    ours = os.urandom(_SIZE)
    connection.send_bytes(ours)
    answer = connection.recv_bytes(2 * _SIZE)
    theirs, proof = answer[:_SIZE], answer[_SIZE:]
    _check(proof, _proof(key, b"client", ours, theirs))
    connection.send_bytes(_proof(key, b"hub", ours, theirs))


def prove_to_hub(connection: Connection[Any, Any], key: bytes) -> None:
    """The client's side. Raise AuthenticationError if the hub does not have the key, EOFError if it does not accept
    ours."""
    theirs, ours = connection.recv_bytes(_SIZE), os.urandom(_SIZE)
    connection.send_bytes(ours + _proof(key, b"client", theirs, ours))
    _check(connection.recv_bytes(_SIZE), _proof(key, b"hub", theirs, ours))


def _proof(key: bytes, side: bytes, of_hub: bytes, of_client: bytes) -> bytes:
    """`side`: whose proof it is, so that neither can be given back as the other's."""
    return hmac.new(key, side + of_hub + of_client, "sha256").digest()


def _check(proof: bytes, expected: bytes) -> None:
    if not hmac.compare_digest(proof, expected):
        raise AuthenticationError("the other side does not have the key")


class BadMessage(Exception):
    """A client sent something that is not a valid message."""


class ClientConnection:
    """One connected client. Its `calls` are cancelled when it disconnects.

    `sent_bye`: it closed the connection on purpose; otherwise it was killed.
    """

    def __init__(self, connection: Connection[Any, Any]) -> None:
        self.calls: dict[int, asyncio.Task[None]] = {}
        self.sent_bye = False
        self._close_callbacks: list[Callable[[], None]] = []
        self._connection = connection
        self._out: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._unread = 0
        self._lock = threading.Lock()
        self._questions: dict[int, Future[Any]] = {}
        self._numbers = itertools.count(1)
        self._closed = False

    def add_close_callback(self, callback: Callable[[], None]) -> None:
        """Call `callback` on the event loop when the client has disconnected."""
        self._close_callbacks.append(callback)

    @property
    def gone(self) -> bool:
        """Whether the client has disconnected."""
        return self._closed

    def send(self, message: dict[str, Any]) -> None:
        """Queue a message, from any thread, without blocking. A client that does not read is disconnected."""
        data = json.dumps(message).encode()
        with self._lock:
            full = self._unread > 0 and self._unread + len(data) > MAX_UNREAD
            if not full and not self._closed:
                self._unread += len(data)
                self._out.put(data)
        if full:
            shut_down(self._connection)  # its reader thread ends, and closes it

    def receive(self) -> dict[str, Any]:
        """Return the next message, on the reader thread. Raises BadMessage, or OSError or EOFError if the client
        has gone."""
        try:
            message = _checked(json.loads(self._connection.recv_bytes(MAX_MESSAGE)))
        except (ValueError, RecursionError) as error:
            raise BadMessage(f"it is not JSON: {error}") from None
        except OSError:
            if not self._connection.closed and not self._connection.readable:
                raise BadMessage(f"it is larger than {MAX_MESSAGE} bytes") from None
            raise
        self.sent_bye = "bye" in message
        return message

    def new_question(self) -> tuple[int, Future[Any]]:
        """Return the number of a question, and its answer: None if nobody answers, cancelled if the user cancels."""
        number, answer = next(self._numbers), Future[Any]()
        with self._lock:
            self._questions[number] = answer
            if self._closed:  # the caller holds the node's connection, so it must not wait indefinitely
                answer.set_result(None)
        return number, answer

    def drop_question(self, question: int) -> None:
        """Ignore the answer to this question."""
        self._questions.pop(question, None)

    def answer_received(self, message: dict[str, Any]) -> None:
        """Pass an answer on to the thread that waits for the answer."""
        answer = self._questions.pop(message["answer"], None)
        if answer is not None and message.get("cancelled") is True:
            answer.cancel()
        elif answer is not None:
            answer.set_result(message.get("value"))

    def write_all(self) -> None:
        """Write queued messages until `close`, on the writer thread."""
        while (data := self._out.get()) is not None:
            with contextlib.suppress(OSError, ValueError):  # it disconnected: the reader thread notices
                self._connection.send_bytes(data)
            with self._lock:
                self._unread -= len(data)

    def close(self) -> None:
        """End the writer thread, and those that wait for an answer."""
        with self._lock:
            self._closed = True
            self._out.put(None)
            questions = list(self._questions.values())
        for answer in questions:
            if not answer.done():
                answer.set_result(None)

    def disconnected(self) -> None:
        """Call the callbacks and cancel the calls, on the event loop."""
        for callback in self._close_callbacks:
            callback()
        for task in self.calls.values():
            task.cancel()


def shut_down(connection: Connection[Any, Any]) -> None:
    """Unblock the threads that read and write a connection; they close its descriptor."""
    if sys.platform == "win32":  # closing a pipe cancels pending operations
        return connection.close()
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as sock:
        sock.shutdown(socket.SHUT_RDWR)


def _checked(message: Any) -> dict[str, Any]:
    if not isinstance(message, dict):
        raise BadMessage("it is not a JSON object")
    if "bye" in message:
        return message
    number = message.get("answer", message.get("id"))
    if isinstance(number, bool) or not isinstance(number, int) or abs(number) > _MAX_NUMBER:
        raise BadMessage("it has no number")
    if "answer" not in message and not _OPERATION.fullmatch(str(message.get("op"))):
        raise BadMessage("it names no operation")
    return message
