"""The hub's side of its local socket: faces come in, prove the key, ask; answers, progress and questions
go back.

A message is one JSON object. From a face: {"id", "op", …} asks, {"answer": question, "value"} answers a
question. To a face: {"id", "result"}, {"id", "error"}, {"id", "progress"}, {"id", "ask", "question"},
{"event", …}; {"error"} without an id is the last one on a connection whose face broke the rules. Blocking sockets
live on threads; everything else on the hub's loop. This file knows no operation.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import os
import queue
import re
import socket
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection, Listener, answer_challenge, deliver_challenge
from typing import Any

from ..errors import GpuKernelError, HubError

ANSWER_WITHIN = 300.0
"""Seconds a question stays: who asks holds a node's connection, and everybody else waits for that."""
PROVE_WITHIN = 20.0
"""Seconds for whoever connects to prove the key."""
GRACE = 5.0
"""Seconds that a face which is hung up on has to read what it is still owed."""
MESSAGE = 4 * 1024 * 1024
"""Bytes of a message from a face."""
UNREAD = 64 * 1024 * 1024
"""Bytes that wait for a face which does not read; a message that is larger waits alone."""
CALLS = 64
"""Calls of one face at a time."""
FACES = 500
"""Connections at a time."""
REPORT_BUG = "The hub's log has more; please report it."

Operation = Callable[["Call"], Awaitable[Any]]
_NUMBERS = 2**53
_WORD = re.compile(r"[a-z_]{1,40}")


class GaveUp(GpuKernelError):
    """The owner was asked and did not answer."""


class Call:
    """One question of a face: its operation, arguments, and the ways to report and to ask back."""

    def __init__(self, client: RpcClient, number: int, op: str, arguments: dict[str, Any]) -> None:
        self.client = client
        self.op = op
        self.arguments = arguments
        self.asks = False  # whether its owner can be asked
        self._number = number

    def progress(self, hop: str, step: str) -> None:
        """Something over a second goes on; from any thread."""
        self.client.send({"id": self._number, "progress": {"hop": hop, "step": step}})

    def secret(self, hop: str, prompt: str) -> str:
        """Asks the owner, from a worker thread. Raises GaveUp."""
        return str(self._ask({"kind": "secret", "hop": hop, "prompt": prompt}))

    def confirm_host(self, hop: str, fingerprint: str, key_type: str) -> bool:
        """Asks the owner about a new host, from a worker thread."""
        question = {"kind": "host", "hop": hop, "fingerprint": fingerprint, "key_type": key_type}
        return self._ask(question) is True

    def _ask(self, question: dict[str, Any]) -> Any:
        number, answers = self.client.expect_answer()
        self.client.send({"id": self._number, "ask": question, "question": number})
        try:
            value = answers.get(timeout=ANSWER_WITHIN)
        except queue.Empty:
            value = None
            self.client.give_up(number)
        if value is None:
            raise GaveUp("the question was not answered", hop=str(question["hop"]))
        return value


class BadMessage(Exception):
    """A face sent what is no message."""


class RpcClient:
    """One connected face. `on_closed` callbacks run on the loop when it is gone; `calls` are cancelled then.

    `said_bye`: it meant to go; else it was killed.
    """

    def __init__(self, connection: Connection[Any, Any]) -> None:
        self.on_closed: list[Callable[[], None]] = []
        self.calls: dict[int, asyncio.Task[None]] = {}
        self.said_bye = False
        self._connection = connection
        self._out: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._unread = 0
        self._lock = threading.Lock()
        self._questions: dict[int, queue.SimpleQueue[Any]] = {}
        self._numbers = itertools.count(1)
        self._closed = False

    def send(self, message: dict[str, Any]) -> None:
        """Queues a message; from any thread, never blocks. A face that does not read is hung up on."""
        data = json.dumps(message).encode()
        with self._lock:
            full = self._unread > 0 and self._unread + len(data) > UNREAD
            if not full and not self._closed:
                self._unread += len(data)
                self._out.put(data)
        if full:
            cut(self._connection)  # its reader ends, and hangs up

    def receive(self) -> dict[str, Any]:
        """The next message, on the reader's thread. BadMessage; OSError or EOFError when the face hung up."""
        try:
            return _checked(json.loads(self._connection.recv_bytes(MESSAGE)))
        except (ValueError, RecursionError) as error:
            raise BadMessage(f"it is not JSON: {error}") from None
        except OSError:
            if not self._connection.closed and not self._connection.readable:
                raise BadMessage(f"it is larger than {MESSAGE} bytes") from None
            raise

    def expect_answer(self) -> tuple[int, queue.SimpleQueue[Any]]:
        """A question's number, and where its answer comes (None: there will be none)."""
        number, answers = next(self._numbers), queue.SimpleQueue[Any]()
        self._questions[number] = answers
        if self._closed:  # whoever asks holds the node's connection: it must not wait for ever
            answers.put(None)
        return number, answers

    def give_up(self, question: int) -> None:
        """Nobody waits for that answer any more."""
        self._questions.pop(question, None)

    def answered(self, message: dict[str, Any]) -> None:
        """An answer came in."""
        answers = self._questions.pop(message["answer"], None)
        if answers is not None:
            answers.put(message.get("value"))

    def write_all(self) -> None:
        """The writer thread's work."""
        while (data := self._out.get()) is not None:
            with contextlib.suppress(OSError, ValueError):  # it hung up: the reader notices
                self._connection.send_bytes(data)
            with self._lock:
                self._unread -= len(data)

    def close(self) -> None:
        """Ends the writer and whoever waits for an answer."""
        with self._lock:
            self._closed = True
            self._out.put(None)
        for answers in list(self._questions.values()):
            answers.put(None)


class RpcServer:
    """Listens; hands every call to `operation` on the loop. `count` are those that came and have not gone."""

    def __init__(self, address: str, key: bytes, operation: Operation, log: logging.Logger) -> None:
        self.count = 0
        self._key = key
        self._operation = operation
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._listener = Listener(address, backlog=64)
        self._open = True
        self._lock = threading.Lock()  # whoever comes while we end must not be let in, and forgotten
        threading.Thread(target=self._accept, name="faces", daemon=True).start()

    def close(self, *, if_unused: bool = False) -> bool:
        """No new faces; `if_unused`: unless one is there. Whether it is closed now."""
        with self._lock:
            if not (if_unused and self.count):
                self._open = False
        if not self._open:
            self._listener.close()
        return not self._open

    def _accept(self) -> None:
        while self._open:
            try:
                connection = self._listener.accept()
            except OSError:  # closed; or nothing that ends us: no descriptors left, or a face gone already
                time.sleep(0.05)
                continue
            if not self._let_in():
                connection.close()
                continue
            try:  # Proving the key takes a talk: a silent client must not keep others out.
                threading.Thread(target=self._serve, args=(connection,), name="face", daemon=True).start()
            except RuntimeError as error:  # no more threads, for now
                self._log.warning("a face could not be let in: %s", error)
                connection.close()
                self._let_out()

    def _serve(self, connection: Connection[Any, Any]) -> None:
        """A connection's reader thread, from its first byte to its last."""
        try:
            if self._proves_key(connection):
                self._talk(connection)
        finally:
            connection.close()  # only now, as nobody reads any more: its number is used again
            self._let_out()

    def _proves_key(self, connection: Connection[Any, Any]) -> bool:
        too_late = threading.Timer(PROVE_WITHIN, cut, [connection])
        too_late.daemon = True
        too_late.start()
        try:
            deliver_challenge(connection, self._key)
            answer_challenge(connection, self._key)
        except Exception as error:  # a stranger may send anything, and the standard library asserts
            self._log.warning("a face did not prove the key: %s", error)
            return False
        finally:
            too_late.cancel()
            too_late.join()
        return True

    def _talk(self, connection: Connection[Any, Any]) -> None:
        client = RpcClient(connection)
        writer = threading.Thread(target=client.write_all, name="face-writer", daemon=True)
        writer.start()
        try:
            while self._receive(client):
                pass
            client.said_bye = True
        except (OSError, EOFError):
            pass  # it hung up
        except BadMessage as error:
            client.send({"error": _refused(str(error))})
        finally:
            client.close()
            self._on_loop(self._left, client)
            writer.join(GRACE)
            cut(connection)  # where it does not read, the writer would never end
            writer.join(GRACE)

    def _receive(self, client: RpcClient) -> bool:
        """One message; False for the last. A function, as it may hold a secret, which must not stay in a variable."""
        message = client.receive()
        if "bye" in message:
            return False
        self._on_loop(self._heard, client, message)
        return True

    def _on_loop(self, function: Callable[..., None], *arguments: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the hub ends
            self._loop.call_soon_threadsafe(function, *arguments)

    def _let_in(self) -> bool:
        with self._lock:
            let_in = self._open and self.count < FACES
            self.count += let_in
            return let_in

    def _let_out(self) -> None:
        with self._lock:
            self.count -= 1

    def _left(self, client: RpcClient) -> None:
        for callback in client.on_closed:
            callback()
        for task in client.calls.values():
            task.cancel()

    def _heard(self, client: RpcClient, message: dict[str, Any]) -> None:
        if "answer" in message:
            return client.answered(message)
        arguments = {key: value for key, value in message.items() if key not in ("id", "op", "asks")}
        number = message["id"]
        if number in client.calls or len(client.calls) >= CALLS:
            why = (
                "that number is in use" if number in client.calls else f"{CALLS} calls at a time are the most"
            )
            return client.send({"id": number, "error": _refused(why)})
        call = Call(client, number, message["op"], arguments)
        call.asks = message.get("asks") is True
        task = client.calls[number] = self._loop.create_task(self._run(call, number))
        task.add_done_callback(lambda _: client.calls.pop(number))

    async def _run(self, call: Call, number: int) -> None:
        try:
            call.client.send({"id": number, "result": await self._operation(call)})
        except GpuKernelError as error:
            call.client.send({"id": number, "error": error.to_json()})
        except Exception as error:  # a fault of ours: the face must hear of it, the hub must go on
            self._log.exception("operation %s failed", call.op)
            fault = HubError(f"{type(error).__name__}: {error}", remedy=REPORT_BUG)
            call.client.send({"id": number, "error": fault.to_json()})


def cut(connection: Connection[Any, Any]) -> None:
    """Ends a connection under whoever reads or writes it; its descriptor stays theirs to close."""
    if sys.platform == "win32":  # a pipe, whose end cancels what waits for it
        return connection.close()
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as sock:
        sock.shutdown(socket.SHUT_RDWR)


def _checked(message: Any) -> dict[str, Any]:
    if not isinstance(message, dict):
        raise BadMessage("it is no JSON object")
    if "bye" in message:
        return message
    number = message.get("answer", message.get("id"))
    if isinstance(number, bool) or not isinstance(number, int) or abs(number) > _NUMBERS:
        raise BadMessage("it has no number")
    if "answer" not in message and not _WORD.fullmatch(str(message.get("op"))):
        raise BadMessage("it names no operation")
    return message


def _refused(why: str) -> dict[str, str]:
    return HubError(f"the hub does not take this message: {why}").to_json()
