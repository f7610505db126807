"""A time limit for calls that have none of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

T = TypeVar("T")


def return_within(seconds: float | None, call: Callable[[], T]) -> T:
    """Return the result of a call, which runs in a thread. After so many seconds raise TimeoutError, and abandon the
    thread."""
    result: Future[T] = Future()

    def run() -> None:
        try:
            result.set_result(call())
        except BaseException as error:  # raised again where the result is awaited
            result.set_exception(error)

    threading.Thread(target=run, name="call with time limit", daemon=True).start()
    if not wait([result], seconds).done:
        raise TimeoutError
    return result.result()
