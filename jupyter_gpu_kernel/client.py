"""How every face talks to the hub: starts it when absent, asks, hears progress and events, answers its
questions.

Thread-safe; blocking `call` for commands, `acall` for whoever lives in an event loop. It knows no
operation.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from concurrent.futures import TimeoutError as FutureTimeout
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, answer_challenge, deliver_challenge
from typing import Any, Protocol

from .errors import GpuKernelError, HubError
from .hub.paths import hub_address, hub_folder, hub_key

_log = logging.getLogger(__name__)
START_WITHIN = 30.0
SPAWN_EVERY = 3.0
"""Seconds until a hub is started once more: the first found one there that was just ending."""
GOODBYE_WITHIN = 2.0


class Asker(Protocol):
    """How to ask the owner; called on a thread of the client's."""

    def secret(self, hop: str, prompt: str) -> str:
        """A password, passphrase or code."""
        ...

    def confirm_host(self, hop: str, fingerprint: str, key_type: str) -> bool:
        """Whether that fingerprint is the machine's."""
        ...


Progress = Callable[[dict[str, Any]], None]


class HubClient:
    """One connection to the hub. `on_event` hears what the hub says unasked, and {"event": "gone"} when
    it ends."""

    def __init__(
        self, *, on_event: Callable[[dict[str, Any]], None] | None = None, start: bool = True
    ) -> None:
        """Blocks, for a second or two where the hub must be started. `start=False`: HubError if there is
        none."""
        self._on_event = on_event
        self._connection = _connect_or_start() if start else _connect_only()
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._calls: dict[int, _Pending] = {}
        self._closed = False
        self._reader = threading.Thread(target=self._read, name="hub-client", daemon=True)
        self._reader.start()

    def __enter__(self) -> HubClient:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def closed(self) -> bool:
        """Whether the hub is gone, or we hung up."""
        return self._closed

    def call(
        self,
        op: str,
        *,
        progress: Progress | None = None,
        ask: Asker | None = None,
        timeout: float | None = None,
        **arguments: Any,
    ) -> Any:
        """The operation's result. Raises the GpuKernelError that it raised."""
        future = self._begin(op, progress, ask, arguments)
        try:
            return future.result(timeout)
        except FutureTimeout:
            raise HubError(f"the hub did not answer “{op}” in {timeout} s") from None

    async def acall(
        self,
        op: str,
        *,
        progress: Progress | None = None,
        ask: Asker | None = None,
        timeout: float | None = None,
        **arguments: Any,
    ) -> Any:
        """`call`, for an event loop, which it never blocks."""
        future = asyncio.wrap_future(self._begin(op, progress, ask, arguments))
        try:
            return await asyncio.wait_for(future, timeout)
        except asyncio.TimeoutError:
            raise HubError(f"the hub did not answer “{op}” in {timeout} s") from None

    def close(self) -> None:
        """Hangs up. Kernels started through this connection stay, detached."""
        self._closed = True
        with contextlib.suppress(OSError, ValueError):
            self._send({"bye": True})
        if threading.current_thread() is not self._reader:
            self._reader.join(GOODBYE_WITHIN)

    # -------------------------------------------------------------------------------------- messages

    def _begin(
        self, op: str, progress: Progress | None, ask: Asker | None, arguments: dict[str, Any]
    ) -> Future[Any]:
        number = next(self._numbers)
        pending = self._calls[number] = _Pending(progress, ask)
        try:
            self._send({**arguments, "id": number, "op": op, "asks": ask is not None})
        except (OSError, ValueError):
            self._calls.pop(number, None)
            pending.fail(_gone())
        return pending.future

    def _send(self, message: dict[str, Any]) -> None:
        with self._lock:
            self._connection.send_bytes(json.dumps(message).encode())

    def _read(self) -> None:
        why: GpuKernelError = _gone()
        with contextlib.suppress(
            OSError, EOFError, ValueError, TypeError, KeyError
        ):  # closed, by either side
            while True:
                message = json.loads(self._connection.recv_bytes())
                if "id" in message or "event" in message:
                    self._heard(message)
                else:  # the last one: we broke the rules
                    why = GpuKernelError.from_json(message["error"])
        unasked, self._closed = not self._closed, True
        with contextlib.suppress(OSError), self._lock:  # here, where nobody reads: its number is used again
            self._connection.close()
        for pending in list(self._calls.values()):
            pending.fail(why)
        if unasked:
            self._tell({"event": "gone"})

    def _tell(self, event: dict[str, Any]) -> None:
        if self._on_event is None:
            return
        try:
            self._on_event(event)
        except Exception:  # theirs: the connection is as good as before
            _log.exception("an event of the hub was not taken")

    def _heard(self, message: dict[str, Any]) -> None:
        if "event" in message:
            return self._tell(message)
        number = message["id"]
        pending = self._calls.get(number)
        if pending is None:
            return
        if "progress" in message:
            pending.tell(message["progress"])
        elif "ask" in message:
            threading.Thread(target=self._answer, args=(pending, message), daemon=True).start()
        else:
            del self._calls[number]
            pending.finish(message)

    def _answer(self, pending: _Pending, message: dict[str, Any]) -> None:
        value = None
        try:
            value = pending.answer(message["ask"])
        except Exception as error:  # the asker's own: the caller gets it
            pending.fail(error)
        finally:  # also when the owner gave up: the hub waits
            with contextlib.suppress(OSError, ValueError):
                self._send({"answer": message["question"], "value": value})


class _Pending:
    """A call that has no result yet."""

    def __init__(self, progress: Progress | None, ask: Asker | None) -> None:
        self.future: Future[Any] = Future()
        self._progress = progress
        self._ask = ask

    def tell(self, progress: dict[str, Any]) -> None:
        if self._progress is None:
            return
        try:
            self._progress(progress)
        except Exception as error:  # the caller's own: the caller gets it
            self._progress = None
            self.fail(error)

    def finish(self, message: dict[str, Any]) -> None:
        if "error" in message:
            return self.fail(GpuKernelError.from_json(message["error"]))
        with contextlib.suppress(InvalidStateError):  # given up, perhaps just now, by another thread
            self.future.set_result(message.get("result"))

    def fail(self, error: Exception) -> None:
        with contextlib.suppress(InvalidStateError):  # the same
            self.future.set_exception(error)

    def answer(self, question: dict[str, Any]) -> Any:
        if self._ask is None:
            return None
        if question["kind"] == "host":
            return self._ask.confirm_host(question["hop"], question["fingerprint"], question["key_type"])
        return self._ask.secret(question["hop"], question["prompt"])


def _connect_or_start() -> Connection[Any, Any]:
    """A proven connection to the hub, which is started if none answers. Faces may race: the hub's lock
    decides."""
    deadline = time.monotonic() + START_WITHIN
    spawn = [sys.executable, "-m", "jupyter_gpu_kernel.hub.app", "spawn"]
    spawned_at = -SPAWN_EVERY
    while (connection := _connect()) is None:
        now = time.monotonic()
        if now > deadline:
            raise _not_started()
        if now - spawned_at > SPAWN_EVERY:
            done = subprocess.run(spawn, stderr=subprocess.PIPE, check=False, cwd=_safe_cwd())
            if done.returncode:
                raise _not_started(done.stderr.decode("utf-8", "replace"))
            spawned_at = time.monotonic()
        time.sleep(0.02)
    return connection


def _connect_only() -> Connection[Any, Any]:
    connection = _connect()
    if connection is None:
        raise HubError("there is no local hub: no remote kernel is in use")
    return connection


def _connect() -> Connection[Any, Any] | None:
    try:
        connection = Client(hub_address())
    except OSError:
        return None
    try:
        key = hub_key()
        answer_challenge(connection, key)
        deliver_challenge(connection, key)
    except (AuthenticationError, OSError, EOFError):
        connection.close()
        return None
    return connection


def _safe_cwd() -> str | None:
    """`python -m` looks into the current folder first, and that may hold a module named like ours."""
    return str(hub_folder())


def _not_started(said: str = "") -> HubError:
    with contextlib.suppress(OSError):
        said = said or (hub_folder() / "start.log").read_text(errors="replace")
    said = said[-2000:].strip()
    return HubError(
        "the local hub did not start" + (f":\n{said}" if said else ""),
        remedy=f"Its log is in {hub_folder()}.",
    )


def _gone() -> HubError:
    return HubError("the local hub ended", remedy="Try again: it starts by itself.")
