"""A keeper's connection to the process of its job. When that ends, the job is over, and so is the keeper."""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, Optional

from ..loop import Loop
from ..paths import Root
from .client import SETTING, JobConnection, JobGone


def join_job(
    loop: Loop,
    root: Root,
    settings: Dict[str, Any],
    on_event: Callable[[Dict[str, Any]], None],
    on_over: Callable[[], None],
) -> Optional[Membership]:
    """Return the membership of a kernel that runs in a job; None for any other."""
    return Membership(loop, root, settings, on_event, on_over) if settings.get(SETTING) else None


class Membership:
    """Tells the job's process that a kernel is there, from its creation on. Raises JobGone if that has ended."""

    def __init__(
        self,
        loop: Loop,
        root: Root,
        settings: Dict[str, Any],
        on_event: Callable[[Dict[str, Any]], None],
        on_over: Callable[[], None],
    ) -> None:
        """`on_event`: called with what the job's process tells. `on_over`: called once, when it has ended."""
        self._loop = loop
        self._on_event = on_event
        self._on_over = on_over
        self._connection: Optional[JobConnection] = JobConnection(root, str(settings[SETTING]))
        request = {"do": "join", "kernel": str(settings["id"]), "pid": os.getpid()}
        self.allocation = self._connection.ask(request)
        """What the job's process knows of the job."""
        loop.watch(self._connection.sock.fileno(), lambda _: self._ready())

    def leave(self) -> None:
        """The kernel has ended: the job may end, too."""
        connection = self._connection
        if connection is None:
            return
        self._close()
        try:
            connection.send({"do": "leave"})
            connection.receive()
        except JobGone:
            pass  # it has ended already
        connection.close()

    def _ready(self) -> None:
        try:
            while self._connection is not None:
                event = self._connection.receive(0.0)
                if event is None:
                    return
                self._on_event(event)
        except JobGone:
            connection = self._connection
            self._close()
            if connection is not None:
                connection.close()
            self._on_over()

    def _close(self) -> None:
        if self._connection is not None:
            self._loop.forget(self._connection.sock.fileno())
            self._connection = None
