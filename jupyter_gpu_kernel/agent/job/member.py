"""A keeper's connection to the process of its job. When that process ends, the job is over, and so is the keeper."""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, Mapping, Optional

from ...wire.fields import FieldError, number, text, texts
from ...wire.slurm import MAX_HOSTS
from ..kernel_settings import KernelSettings
from ..paths import Root
from ..system.loop import Loop
from .client import JobConnection, JobGone

LATEST = 253_402_300_799
"""The last second of the year 9999, since the epoch."""


class Membership:
    """Reports a kernel to the job's process, from its creation on. Raises JobGone if that process has ended."""

    def __init__(
        self,
        loop: Loop,
        root: Root,
        settings: KernelSettings,
        on_event: Callable[[Dict[str, Any]], None],
        on_over: Callable[[], None],
    ) -> None:
        """`on_event`: called with each event that the job's process reports. `on_over`: called once, when that process
        has ended."""
        self._loop = loop
        self._on_event = on_event
        self._on_over = on_over
        self._connection: Optional[JobConnection] = JobConnection(root, settings.job)
        request = {"do": "join", "kernel": settings.id, "pid": os.getpid()}
        facts = self._connection.ask(request)
        self.status: Dict[str, Any] = {
            "id": text(facts, "id", most=20),
            "partition": text(facts, "partition"),
            "node": text(facts, "node"),
            "hosts": texts(facts, "hosts", MAX_HOSTS),
            "end_time": None,
        }
        """What `ps` and the kernel's user see of the job."""
        self.start_time = number(facts, "start_time", most=LATEST)
        """When the job started, in seconds since the epoch."""
        self.set_end_time(facts)
        loop.watch(self._connection.sock.fileno(), lambda _: self._ready())

    @property
    def end_time(self) -> Optional[float]:
        """When the job ends, in seconds since the epoch; None while unknown, or if the job has no time limit."""
        return self.status["end_time"]  # type: ignore[no-any-return]

    def set_end_time(self, fields: Mapping[str, Any]) -> bool:
        """Take the time at which the job ends from these fields, if it is there. Return whether it has changed."""
        before = self.end_time
        if fields.get("end_time") is not None:
            self.status = {**self.status, "end_time": number(fields, "end_time", most=LATEST)}
        return self.end_time != before

    def leave(self) -> None:
        """Report that the kernel has ended, so that the job may end, too."""
        connection = self._connection
        if connection is None:
            return
        self._close()
        try:
            connection.send({"do": "leave"})
            connection.receive()
        except JobGone:
            pass  # the job has ended before
        connection.close()

    def _ready(self) -> None:
        try:
            while self._connection is not None:
                event = self._connection.receive(0.0)
                if event is None:
                    return
                self._received(event)
        except JobGone:
            connection = self._connection
            self._close()
            if connection is not None:
                connection.close()
            self._on_over()

    def _received(self, event: Dict[str, Any]) -> None:
        try:
            self.set_end_time(event)
            self._on_event(event)
        except FieldError:
            pass  # of a newer build

    def _close(self) -> None:
        if self._connection is not None:
            self._loop.forget(self._connection.sock.fileno())
            self._connection = None
