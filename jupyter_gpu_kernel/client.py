"""Calls to the hub over its local socket: results, progress, events, and questions that the hub asks back.

The client is thread-safe. `call` blocks, for commands; `acall` is for event loops. The hub's process is started if none
answers. This module knows no operation.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from concurrent.futures import TimeoutError as FutureTimeout
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection
from typing import Any

from .errors import Cancelled, GpuKernelError, HubError, NotAnswered
from .hub.client_connection import prove_to_hub
from .hub.paths import hub_address, hub_folder, hub_key
from .hub.spawn import START_LOG, spawn
from .hub.ssh import Asker, Secret

_log = logging.getLogger(__name__)
_CLOSE_TIMEOUT = 2.0
_START_TIMEOUT = 30.0
_LONGEST_LOG = 2000  # characters of a log in a message

Progress = Callable[[dict[str, Any]], None]


class HubClient:
    """One connection to the hub.

    `on_event` is called, on a thread of the client, with each event of the hub, and with {"event": "gone"} when the
    connection ends.
    """

    def __init__(
        self,
        *,
        on_event: Callable[[dict[str, Any]], None] | None = None,
        start: bool = True,
    ) -> None:
        """Connect. This takes a second or two if the hub must be started; with `start=False`, raises HubError if there
        is none."""
        self._on_event = on_event
        connection = _connect_or_start() if start else _try_to_connect()
        if connection is None:
            raise HubError("there is no local hub: no remote kernel is in use")
        self._connection = connection
        self._lock = threading.Lock()
        self._ids = itertools.count(1)
        self._calls: dict[int, _PendingCall] = {}
        self._closed = False
        self._reader = threading.Thread(target=self._read, name="hub-client", daemon=True)
        self._reader.start()

    def __enter__(self) -> HubClient:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def closed(self) -> bool:
        """Whether the connection has ended, by either side."""
        return self._closed

    def call(self, op: str, *, timeout: float | None = None, **more: Any) -> Any:
        """Return the operation's result, or raise the GpuKernelError that it raised.

        `more`: the operation's arguments, and `progress` and `ask`, which are called when the hub reports a step, and
        when it asks the user.
        """
        try:
            return self._start_call(op, **more).result(timeout)
        except FutureTimeout:
            raise _no_answer(op, timeout) from None

    async def acall(self, op: str, *, timeout: float | None = None, **more: Any) -> Any:
        """Call an operation as `call` does, from an event loop, which is not blocked."""
        import asyncio  # large, and the launcher has no event loop

        try:
            return await asyncio.wait_for(asyncio.wrap_future(self._start_call(op, **more)), timeout)
        except asyncio.TimeoutError:
            raise _no_answer(op, timeout) from None

    def close(self) -> None:
        """Close the connection. Kernels that were started through it go on, detached."""
        self._closed = True
        with contextlib.suppress(OSError, ValueError):
            self._send({"bye": True})
        if threading.current_thread() is not self._reader:
            self._reader.join(_CLOSE_TIMEOUT)

    def _start_call(
        self, op: str, progress: Progress | None = None, ask: Asker | None = None, **arguments: Any
    ) -> Future[Any]:
        call_id = next(self._ids)
        call = self._calls[call_id] = _PendingCall(progress, ask)
        try:
            self._send({**arguments, "id": call_id, "op": op, "asks": ask is not None})
        except (OSError, ValueError):
            self._calls.pop(call_id, None)
            call.fail(_hub_ended())
        return call.future

    def _send(self, message: dict[str, Any]) -> None:
        with self._lock:
            self._connection.send_bytes(json.dumps(message).encode())

    def _read(self) -> None:
        error: GpuKernelError = _hub_ended()
        # An error tells that either side has closed the connection.
        with contextlib.suppress(OSError, EOFError, ValueError, TypeError, KeyError):
            while True:
                message = json.loads(self._connection.recv_bytes())
                if "id" in message or "event" in message:
                    self._handle(message)
                else:  # the last message: we broke the protocol
                    error = GpuKernelError.from_json(message["error"])
        unexpected, self._closed = not self._closed, True
        # Closed on this thread, since no other thread may read from a descriptor that the system uses again.
        with contextlib.suppress(OSError), self._lock:
            self._connection.close()
        for call in list(self._calls.values()):
            call.fail(error)
        if unexpected:
            self._report({"event": "gone"})

    def _report(self, event: dict[str, Any]) -> None:
        if self._on_event is None:
            return
        try:
            self._on_event(event)
        except Exception:  # a fault of the callback does not affect the connection
            _log.exception("the callback for events of the hub failed")

    def _handle(self, message: dict[str, Any]) -> None:
        if "event" in message:
            return self._report(message)
        call = self._calls.get(message["id"])
        if call is None:
            return
        if "progress" in message:
            call.report(message["progress"])
        elif "ask" in message:
            threading.Thread(target=self._answer, args=(call, message), daemon=True).start()
        else:
            del self._calls[message["id"]]
            call.finish(message)

    def _answer(self, call: _PendingCall, message: dict[str, Any]) -> None:
        reply: dict[str, Any] = {"value": None}
        try:
            reply["value"] = call.answer(message["ask"])
        except NotAnswered:
            pass  # the hub then fails, or waits until the user has signed in elsewhere
        except Exception as error:  # the user's wish, or a fault of the asker: it is raised to the caller
            reply["cancelled"] = isinstance(error, Cancelled)
            call.asker_error = error
        finally:  # also if the user gave up: the hub waits for an answer
            with contextlib.suppress(OSError, ValueError):
                self._send({"answer": message["question"], **reply})
            if call.asker_error is not None:  # only now, as the caller may close the connection then
                call.fail(call.asker_error)


class _PendingCall:
    """A call that has no result yet."""

    def __init__(self, progress: Progress | None, ask: Asker | None) -> None:
        self.future: Future[Any] = Future()
        self.asker_error: Exception | None = None
        """The exception that the asker raised. The caller gets this exception, not the error that the hub answers."""
        self._progress = progress
        self._ask = ask

    def report(self, progress: dict[str, Any]) -> None:
        if self._progress is None:
            return
        try:
            self._progress(progress)
        except Exception as error:  # a fault of the callback is raised to the caller
            self._progress = None
            self.fail(error)

    def finish(self, message: dict[str, Any]) -> None:
        if "error" in message:
            return self.fail(self.asker_error or GpuKernelError.from_json(message["error"]))
        with contextlib.suppress(InvalidStateError):  # the caller gave up, perhaps at this moment
            self.future.set_result(message.get("result"))

    def fail(self, error: Exception) -> None:
        with contextlib.suppress(InvalidStateError):  # the caller gave up
            self.future.set_exception(error)

    def answer(self, question: dict[str, Any]) -> Any:
        if self._ask is None:
            return None
        if question["kind"] == "host":
            return self._ask.confirm_host(question["hop"], question["fingerprint"], question["key_type"])
        secret = Secret(**question.get("secret", {}))
        return self._ask.secret(question["hop"], question["prompt"], secret)


def _no_answer(op: str, timeout: float | None) -> HubError:
    return HubError(f"the hub did not answer “{op}” in {timeout} s")


def _hub_ended() -> HubError:
    return HubError("the local hub ended", remedy="Try again: the hub starts automatically.")


# --- the connection


def _connect_or_start() -> Connection[Any, Any]:
    """An authenticated connection to the hub, which is started if none answers. Raises HubError if that fails.

    Several processes may call this at the same time: one of them starts a hub, and the others wait for it. The hub's
    own lock file decides which hub stays.
    """
    if (connection := _try_to_connect()) is not None:
        return connection
    from filelock import FileLock, Timeout  # it takes long to import, and most clients start no hub

    deadline = time.monotonic() + _START_TIMEOUT
    try:
        with FileLock(hub_folder() / "start.lock", timeout=_START_TIMEOUT):
            # More than once, if the new hub has found one that was just ending.
            while (connection := _try_to_connect()) is None:
                left = deadline - time.monotonic()
                if left <= 0 or not spawn(left):
                    raise _start_error()
            return connection
    except Timeout:
        raise _start_error() from None


def _try_to_connect() -> Connection[Any, Any] | None:
    try:
        # On Windows it is of another class, with the same methods.
        connection: Connection[Any, Any] = Client(hub_address())  # type: ignore[assignment,unused-ignore]
    except OSError:
        return None
    try:
        prove_to_hub(connection, hub_key())
    except (AuthenticationError, OSError, EOFError):
        connection.close()
        return None
    return connection


def _start_error() -> HubError:
    output = ""
    with contextlib.suppress(OSError):
        output = (hub_folder() / START_LOG).read_text(errors="replace")
    output = output[-_LONGEST_LOG:].strip()
    return HubError(
        "the local hub did not start" + (f":\n{output}" if output else ""),
        remedy=f"Its log is in {hub_folder()}.",
    )
