"""The hub's local socket: accepts clients, runs the operations that they call, and passes on progress and questions.

Messages to a client: {"id", "result"}, {"id", "error"}, {"id", "progress"}, {"id", "ask", "question"}, {"event", …}.
{"error"} without an id is the last message to a client that violated the protocol. Blocking sockets are used on
threads, everything else runs on the hub's event loop. This module knows no operation.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import asdict
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, Listener
from typing import Any, TypeVar

from ..errors import Cancelled, GpuKernelError, HubError, NotAnswered
from ..wire.runtime import Runtime
from .client_connection import BadMessage, ClientConnection, accept_client, shut_down
from .kernel_settings import KernelSettings, Spec, settings_from
from .ssh import Secret

ANSWER_TIMEOUT = 300.0
"""Seconds until a question is given up: meanwhile it holds a node's connection, for which others wait."""
AUTHENTICATION_TIMEOUT = 20.0
"""Seconds for a client to prove that it has the key."""
FLUSH_TIMEOUT = 5.0
"""Seconds in which a client that is disconnected may read the remaining messages."""
MAX_CALLS = 64
"""Calls of one client at a time."""
MAX_CLIENTS = 2000
"""Connections at a time."""
_STEP = 0.5
"""Seconds between two looks whether the user is asked."""

T = TypeVar("T")
Operation = Callable[["Call"], Awaitable[Any]]


class Call:
    """One call of a client: its operation and arguments, and how to report progress and ask the user.

    `asks`: whether the client can ask the user.
    """

    def __init__(self, client: ClientConnection, message: dict[str, Any]) -> None:
        self.client = client
        self.number: int = message["id"]
        self.op: str = message["op"]
        self.asks = message.get("asks") is True
        self._questions: set[int] = set()  # numbers of those to which the user has not replied
        self.arguments = {key: value for key, value in message.items() if key not in ("id", "op", "asks")}

    @property
    def settings(self) -> KernelSettings:
        """The settings for which the call is. Raises SettingsError if a value is of a wrong type."""
        return settings_from(self.arguments["settings"])

    @property
    def specs(self) -> list[Spec]:
        """The kernelspecs to whose nodes the call is; of one with several hosts one for each host. Raises SettingsError
        if a value is of a wrong type."""
        specs = map(Spec.from_json, self.arguments["specs"])
        return [one._replace(settings=host) for one in specs for host in one.settings.each_host()]

    @property
    def is_watch(self) -> bool:
        """Whether the client makes this call again and again, and nobody waits for one answer: see `ask_each`."""
        return "patience" in self.arguments

    @property
    def patience(self) -> float | None:
        """The seconds for which the call waits for a node; None for a call that waits for all nodes."""
        value = self.arguments.get("patience")
        return float(value) if isinstance(value, int | float) and value >= 0 else None

    @property
    def login_wait(self) -> float:
        """The seconds for which the call waits until the user signs in elsewhere, if its client cannot ask."""
        return float(self.arguments.get("login_wait") or 0)

    @property
    def within(self) -> float | None:
        """The seconds in which each node must be reached, in one attempt, and then answer; None if the call waits as
        long as needed."""
        value = self.arguments.get("within")
        return float(value) if isinstance(value, int | float) and value > 0 else None

    async def limited(self, seconds: float | None, asking: Awaitable[T]) -> T:
        """Return the result of `asking`. Raises asyncio.TimeoutError if there is none after so many seconds, in which
        those do not count that the user takes to reply to questions. None: there is no limit."""
        if seconds is None:
            return await asking
        task = asyncio.ensure_future(asking)
        try:
            while seconds > 0 and not task.done():
                step = min(_STEP, seconds)
                await asyncio.wait([task], timeout=step)
                seconds -= 0 if self._questions else step
            if not task.done():
                raise asyncio.TimeoutError
            return await task
        finally:
            task.cancel()

    @property
    def abandoned(self) -> bool:
        """Whether the client has disconnected, so that nobody waits for the result."""
        return self.client.gone

    def progress(self, hop: str, step: str) -> None:
        """Report a step that may take over a second, from any thread."""
        self.client.send({"id": self.number, "progress": {"hop": hop, "step": step}})

    def secret(self, hop: str, prompt: str, secret: Secret) -> str:
        """Ask the user for a secret, from a worker thread. Raises NotAnswered if there is no answer."""
        return str(self._ask({"kind": "secret", "hop": hop, "prompt": prompt, "secret": asdict(secret)}))

    def confirm_host(self, hop: str, fingerprint: str, key_type: str) -> bool:
        """Ask the user about a new host key, from a worker thread. Raises NotAnswered if there is no answer."""
        question = {"kind": "host", "hop": hop, "fingerprint": fingerprint, "key_type": key_type}
        return self._ask(question) is True

    def _ask(self, question: dict[str, Any]) -> Any:
        number, answer = self.client.new_question()
        self._questions.add(number)
        self.client.send({"id": self.number, "ask": question, "question": number})
        try:
            value = answer.result(ANSWER_TIMEOUT)
        except FutureTimeout:
            value = None
            self.client.drop_question(number)
        except CancelledError:
            raise Cancelled(str(question["hop"])) from None
        finally:
            self._questions.discard(number)
        if value is None:
            raise NotAnswered(
                "asks for a password, a code or a confirmation, and nobody answered", hop=str(question["hop"])
            )
        return value


class RpcServer:
    """Listens at `address`, and runs `operation(call)` on the event loop for each call. `count`: connected clients."""

    def __init__(
        self, runtime: Runtime, address: str, key: bytes, operation: Operation, log: logging.Logger
    ) -> None:
        self.count = 0
        self._runtime = runtime
        self._key = key
        self._operation = operation
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._listener = Listener(address, backlog=64)
        self._open = True
        self._lock = threading.Lock()  # a client that connects while the hub ends is either served or refused
        threading.Thread(target=self._accept, name="rpc accept", daemon=True).start()

    def close(self, *, if_unused: bool = False) -> bool:
        """Stop to accept clients; with `if_unused`, only if there is none. Return whether it is closed now."""
        with self._lock:
            if not (if_unused and self.count):
                self._open = False
        if not self._open:
            self._listener.close()
        return not self._open

    # ------------------------------------------------------------------------ threads per connection

    def _accept(self) -> None:
        while self._open:
            try:
                connection = self._listener.accept()
            except OSError:  # closed, or temporary: no descriptors left, or the client is gone already
                self._runtime.sleep(0.05)
                continue
            if not self._admit():
                connection.close()
                continue
            try:  # authentication takes a dialogue: a silent client must not block the others
                threading.Thread(target=self._serve, args=(connection,), name="rpc", daemon=True).start()
            except RuntimeError as error:  # no more threads, for now
                self._log.warning("a client was refused: %s", error)
                connection.close()
                self._forget()

    def _serve(self, connection: Connection[Any, Any]) -> None:
        """Serve a connection from its first byte to its last, on its reader thread."""
        try:
            if self._authenticate(connection):
                self._read(connection)
        finally:
            connection.close()  # only now, as no thread uses its descriptor any more
            self._forget()

    def _authenticate(self, connection: Connection[Any, Any]) -> bool:
        timer = threading.Timer(AUTHENTICATION_TIMEOUT, shut_down, [connection])
        timer.daemon = True
        timer.start()
        try:
            accept_client(connection, self._key)
        except (AuthenticationError, OSError, EOFError) as error:
            self._log.warning("a client failed to authenticate: %s", error)
            return False
        finally:
            timer.cancel()
            timer.join()
        return True

    def _read(self, connection: Connection[Any, Any]) -> None:
        client = ClientConnection(connection)
        writer = threading.Thread(target=client.write_all, name="rpc writer", daemon=True)
        writer.start()
        try:
            while self._read_message(client):
                pass
        except (OSError, EOFError):
            pass  # it disconnected
        except BadMessage as error:
            client.send({"error": _rejected(str(error))})
        finally:
            client.close()
            self._on_loop(client.disconnected)
            writer.join(FLUSH_TIMEOUT)
            shut_down(connection)  # if the client does not read, the writer would never end
            writer.join(FLUSH_TIMEOUT)

    def _read_message(self, client: ClientConnection) -> bool:
        """Read one message; return False for the last one. A message may hold a secret, which must not stay in a
        variable of a function that goes on."""
        message = client.receive()
        if client.sent_bye:
            return False
        if "answer" in message:
            client.answer_received(message)  # before `close`, which ends the wait for all answers
        else:
            self._on_loop(self._received, client, message)
        return True

    def _on_loop(self, function: Callable[..., None], *arguments: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the event loop is closed: the hub ends
            self._loop.call_soon_threadsafe(function, *arguments)

    def _admit(self) -> bool:
        with self._lock:
            admitted = self._open and self.count < MAX_CLIENTS
            self.count += admitted
            return admitted

    def _forget(self) -> None:
        with self._lock:
            self.count -= 1

    # ---------------------------------------------------------------------------- on the event loop

    def _received(self, client: ClientConnection, message: dict[str, Any]) -> None:
        number = message["id"]
        if number in client.calls:
            return client.send({"id": number, "error": _rejected("its number is in use")})
        if len(client.calls) >= MAX_CALLS:
            why = f"a client may make at most {MAX_CALLS} calls at a time"
            return client.send({"id": number, "error": _rejected(why)})
        task = client.calls[number] = self._loop.create_task(self._run(Call(client, message)))
        task.add_done_callback(lambda _: client.calls.pop(number))

    async def _run(self, call: Call) -> None:
        try:
            call.client.send({"id": call.number, "result": await self._operation(call)})
        except GpuKernelError as error:
            call.client.send({"id": call.number, "error": error.to_json()})
        except Exception as error:  # a bug of ours: report it to the client, and go on
            self._log.exception("operation %s failed", call.op)
            call.client.send({"id": call.number, "error": HubError.from_bug(error).to_json()})


def _rejected(why: str) -> dict[str, str]:
    return HubError(f"the hub rejected a message: {why}").to_json()
