"""A time limit for calls that have none of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

T = TypeVar("T")


class NotReturned(TimeoutError):
    """A call has not returned in time. `thread` may still wait for it."""

    def __init__(self, thread: threading.Thread) -> None:
        super().__init__("timed out")
        self.thread = thread


def return_within(seconds: float | None, call: Callable[[], T]) -> T:
    """Return the result of a call, which runs in a thread. After so many seconds raise NotReturned, and abandon the
    thread."""
    result: Future[T] = Future()

    def run() -> None:
        try:
            result.set_result(call())
        except BaseException as error:  # raised again where the result is awaited
            result.set_exception(error)

    thread = threading.Thread(target=run, name="call with time limit", daemon=True)
    thread.start()
    if not wait([result], seconds).done:
        raise NotReturned(thread)
    return result.result()
