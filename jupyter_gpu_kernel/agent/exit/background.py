"""Something that may take seconds, done on a thread beside the keeper's loop: a keeper always answers at once."""

from __future__ import annotations

import os
import threading
from typing import Callable, List, TypeVar, Union

from ..loop import Loop

T = TypeVar("T")


def aside(loop: Loop, work: Callable[[], T], done: Callable[[T], None]) -> None:
    """Calls `work()` on a thread, and then `done(its result)` in the loop; an exception of `work` is raised there."""
    outcome: List[Union[T, BaseException]] = []
    read_fd, write_fd = os.pipe()

    def run() -> None:
        try:
            outcome.append(work())
        except BaseException as error:  # raised again in the loop's thread
            outcome.append(error)
        os.close(write_fd)

    def finished(_: int) -> None:
        loop.forget(read_fd)
        os.close(read_fd)
        (result,) = outcome
        if isinstance(result, BaseException):
            raise result
        done(result)

    loop.watch(read_fd, finished)
    threading.Thread(target=run, name="aside", daemon=True).start()
