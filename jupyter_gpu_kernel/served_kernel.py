"""A kernel that the hub serves for one front end: the call that starts it, and the connection to the hub.

If the hub is killed, another hub is started and adopts the kernel, with the same ports and key. The launcher and the
provisioner use this module, which knows neither of them.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from .client import HubClient
from .errors import GpuKernelError
from .kernelspecs import Kernelspec, all_for_hub

CALL_TIMEOUT = 30.0
"""Seconds for the answer of one hub."""
ADOPT_TIMEOUT = 60.0
"""Seconds of attempts: the ports may not be free at once, and another hub may be killed as well."""
ADOPT_INTERVAL = 0.5


class StartCall(NamedTuple):
    """The call to the hub that gives a front end its kernel: the operation and its arguments."""

    op: str
    arguments: dict[str, Any]

    @classmethod
    def of(cls, spec: Kernelspec, program: str, attach_to: str, **front_end: Any) -> StartCall:
        """The call that starts a kernel of this kernelspec, or that attaches the front end to the running kernel
        `attach_to`, if that is not "". Reads all kernelspecs for an attachment.

        program: How users run our commands. front_end: What the hub is to know of the front end: its connection, its
        notebook, and `front_end_kind`, which is "server" for a Jupyter server, "serve" for a Jupyter server that
        limits no rate and leaves messages unread until a page gets them, "other" for a program that loses no message
        and restarts no kernel, and "" where the program is unknown."""
        spec = replace(spec, settings=spec.settings.replace(program=program))
        arguments = {**front_end, **spec.for_hub}
        if not attach_to:
            return cls("start", arguments)
        others = [one for one in all_for_hub() if one["name"] != spec.name]
        return cls("attach", {**arguments, "kernel": attach_to, "specs": [spec.for_hub, *others]})


def new_connection() -> dict[str, Any]:
    """Return the connection of a new local front end: free ports, with a key of its own."""
    fixed = {"transport": "tcp", "ip": "127.0.0.1", "signature_scheme": "hmac-sha256"}
    return {**fixed, "key": secrets.token_hex(32)}


class ServedKernel:
    """One kernel. Call `connect`, let the client make the start call, then call `started`; at last call `close`.

    `on_event` is called, on threads of the client, with the hub's events about the kernel, and with {"event": "gone",
    "why"} when no hub can be reached or started. `id` is JUPYTER_GPU_KERNEL_ID, "" before the start. If a hub is gone,
    the thread of its client starts another one, which adopts the kernel.
    """

    def __init__(self, start: StartCall, on_event: Callable[[dict[str, Any]], None]) -> None:
        self.op, self.arguments = start
        self.id = ""
        self._on_event = on_event
        self._client: HubClient | None = None
        self._adopting = threading.Lock()
        self._closed = False

    @property
    def client(self) -> HubClient | None:
        """The connection to the hub. Blocks while another hub is started."""
        with self._adopting:
            return self._client

    @property
    def is_adopting(self) -> bool:
        """Whether `client` would block."""
        return self._adopting.locked()

    def connect(self) -> HubClient:
        """Connect to the hub. This takes a second or two if the hub must be started. Raises HubError if it fails."""
        client = self._client = HubClient(on_event=self._handle)
        if self._closed:
            client.close()
        return client

    def started(self, answer: dict[str, Any]) -> None:
        """Keep the answer to the operation: the kernel's id, ports and Python, for an adoption."""
        self.id = str(answer["id"])
        settings = dict(answer.get("settings") or self.arguments["settings"], python=answer["python"])
        self.arguments.update(settings=settings, connection=answer["connection"], front=answer["front"])
        self.arguments.pop("kernel", None)  # an adoption passes it as `id`

    def close(self) -> None:
        """Close the connection. May block for a moment."""
        self._closed = True
        client = self.client
        if client is not None:
            client.close()

    def _handle(self, event: dict[str, Any]) -> None:
        if event["event"] == "gone":
            return self._adopt()
        if event["event"] == "kernel" and self.id:
            self.id = str(event["kernel"])  # the hub may have found the kernel that the notebook had left
            self.arguments["notebook"] = event.get("notebook") or self.arguments.get("notebook", "")
            self.arguments["from_vs_code"] = event.get("from_vs_code") is True
            host = {key: event[key] for key in ("route", "python", "given_python") if key in event}
            self.arguments["settings"] = {**self.arguments["settings"], **host}
        self._on_event(event)

    def _adopt(self) -> None:
        """A hub is gone. Start another one, unless that has been done, or there is no kernel."""
        deadline = time.monotonic() + ADOPT_TIMEOUT
        with self._adopting:
            while self.id and self._client is not None and self._client.closed and not self._closed:
                try:
                    client = self.connect()
                    answer = client.call("adopt", kernel=self.id, timeout=CALL_TIMEOUT, **self.arguments)
                    self._on_event({**answer, "event": "kernel", "kernel": self.id})
                except GpuKernelError as error:
                    if time.monotonic() > deadline:
                        return self._on_event({"event": "gone", "why": str(error)})
                    if not self._client.closed:  # that hub goes on, and cannot serve the kernel yet
                        self._client.close()
                    time.sleep(ADOPT_INTERVAL)
