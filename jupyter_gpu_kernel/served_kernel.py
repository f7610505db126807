"""A kernel that the hub serves for one front end, as launcher and provisioner both need it: if the hub is killed,
another one is started and adopts the kernel, with the same ports and key. It knows neither of the two.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from .client import HubClient
from .errors import GpuKernelError

ADOPT_WITHIN = 30.0
"""Seconds for one hub's answer."""
ADOPT_FOR = 60.0
"""Seconds of attempts: the ports may not be free at once, and another hub may be killed, too."""
ADOPT_EVERY = 0.5


class ServedKernel:
    """`connect`, then have `client` answer “start” with `arguments`, then `started(answer)`; `close` at last.

    `on_event` hears, on threads of the client's, what the hub says of the kernel, and {"event": "gone", "why"} when
    there is no hub and cannot be one. `id` is ours, "" before the start.
    """

    def __init__(self, arguments: dict[str, Any], on_event: Callable[[dict[str, Any]], None]) -> None:
        self.arguments = arguments
        self.id = ""
        self._on_event = on_event
        self._client: HubClient | None = None
        self._adopting: threading.Thread | None = None
        self._lock = threading.Lock()
        self._adopts = False  # a thread does, which sees for itself when its hub is gone
        self._closed = False

    @property
    def client(self) -> HubClient | None:
        """The connection to the hub there is. Blocks while another hub is started."""
        if self._adopting is not None and self._adopting is not threading.current_thread():
            self._adopting.join()
        return self._client

    @property
    def adopting(self) -> bool:
        """Whether `client` would block."""
        return self._adopting is not None and self._adopting.is_alive()

    def connect(self) -> HubClient:
        """Blocks, for a second or two where the hub must be started. HubError."""
        client = self._client = HubClient(on_event=self._heard)
        if self._closed:
            client.close()
        return client

    def started(self, answer: dict[str, Any]) -> None:
        """The kernel is there, with these ports and that Python."""
        self.id = str(answer["id"])
        settings = dict(answer.get("settings") or self.arguments["settings"], python=answer["python"])
        self.arguments.update(settings=settings, connection=answer["connection"], front=answer["front"])
        self.arguments.pop("kernel", None)  # which it is told by its id

    def close(self) -> None:
        """Hangs up. May block for a moment."""
        self._closed = True
        client = self.client
        if client is not None:
            client.close()

    def _heard(self, event: dict[str, Any]) -> None:
        if event["event"] == "kernel" and self.id:
            self.id = str(event["kernel"])  # its notebook may have been given the kernel it left
            self.arguments["notebook"] = event.get("notebook") or self.arguments.get("notebook", "")
        if event["event"] != "gone" or self._closed:
            return self._on_event(event)
        if not self.id:
            return  # the call that asks for it fails
        with self._lock:
            if not self._adopts:
                self._adopts = True
                self._adopting = threading.Thread(target=self._adopt, name="another hub", daemon=True)
                self._adopting.start()

    def _adopt(self) -> None:
        until = time.monotonic() + ADOPT_FOR
        while True:
            try:
                client = self.connect()
                answer = client.call("adopt", kernel=self.id, timeout=ADOPT_WITHIN, **self.arguments)
            except GpuKernelError as error:
                if self._closed or time.monotonic() > until:
                    return self._gives_up(str(error))
                if self._client is not None:
                    self._client.close()
                time.sleep(ADOPT_EVERY)
                continue
            self._on_event({**answer, "event": "kernel", "kernel": self.id})
            with self._lock:
                self._adopts = client.closed and not self._closed
                if not self._adopts:
                    return

    def _gives_up(self, why: str) -> None:
        with self._lock:
            self._adopts = False
        self._on_event({"event": "gone", "why": why})
