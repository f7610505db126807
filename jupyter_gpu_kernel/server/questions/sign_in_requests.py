"""Kernels of other front ends, such as VS Code, that wait until their user signs in: pages show them, and sign in.

A launcher whose start needs a sign-in calls the operation `sign_in` at this server's own socket, which works like the
hub's (`page_sign_in.py`). The call lasts as long as the launcher waits. All of it runs on the server's event loop.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import PurePath

from ...errors import HubError, NotAnswered
from ...hub.paths import page_server_address
from ...hub.rpc import Call, RpcServer
from ...hub.sanitize import line
from ...kernelspecs import find
from ...wire.files import create_file
from ...wire.runtime import Runtime
from ..api import API, Handler, permitted
from .prompt_handlers import schema

SIGN_INS = "jupyter_gpu_kernel_sign_ins"
"""The key of the requests in the server's settings."""
EVENT = "https://events.jupyter.org/jupyter_gpu_kernel/sign_ins/v1"
SCHEMA = schema(
    EVENT,
    "Kernels that wait for a sign-in",
    "Other kernels than before wait until their user signs in. Pages fetch them.",
)
PAGE_TIMEOUT = 4.0
"""Seconds for a page to fetch a request: less than a launcher waits for that."""
MAX_REQUESTS = 100
LONGEST_TEXT = 200


@dataclass(frozen=True)
class _SignInRequest:
    shown: dict[str, str]
    fetched: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)


class SignInRequests:
    """All kernels that wait. `notify(number of requests)` is called when there are others."""

    def __init__(self, notify: Callable[[int], None]) -> None:
        self._notify = notify
        self._requests: dict[str, _SignInRequest] = {}

    def open(self) -> list[dict[str, str]]:
        """Return the requests, first come first, to a page that shows them."""
        for one in self._requests.values():
            one.fetched.set()
        return [one.shown for one in self._requests.values()]

    def cancel(self, number: str) -> None:
        """Let the kernel's start fail. Raises KeyError if there is no such request (any more)."""
        self._requests[number].cancelled.set()

    def cancel_all(self, name: str) -> None:
        """Cancel all requests for this kernelspec."""
        for one in self._requests.values():
            if one.shown["name"].lower() == name.lower():
                one.cancelled.set()

    async def operation(self, call: Call) -> dict[str, bool]:
        """Serve a launcher's call. Report progress when a page shows it, and return when the user has cancelled it."""
        if call.op != "sign_in":
            raise HubError(f"a Jupyter server has no operation {call.op!r}")
        if len(self._requests) >= MAX_REQUESTS:
            raise HubError("too many kernels wait for a sign-in")
        name, node, notebook = (
            line(call.arguments.get(key), LONGEST_TEXT) for key in ("name", "node", "notebook")
        )
        spec = await asyncio.to_thread(find, name)  # else this server cannot sign in
        number = os.urandom(16).hex()
        shown = {"id": number, "name": spec.name, "node": node, "notebook": PurePath(notebook).name}
        request = self._requests[number] = _SignInRequest(shown)
        self._notify(len(self._requests))
        try:
            try:
                await asyncio.wait_for(request.fetched.wait(), PAGE_TIMEOUT)
            except asyncio.TimeoutError:
                raise NotAnswered("no page is open", hop=node) from None
            call.progress(node, "a page asks the user to sign in")
            await request.cancelled.wait()
            return {"cancelled": True}
        finally:  # also when the launcher has left
            del self._requests[number]
            self._notify(len(self._requests))


class PageSocket:
    """The socket at which launchers call. It is there when the constructor returns, on the event loop."""

    def __init__(self, requests: SignInRequests, log: logging.Logger) -> None:
        runtime, key = Runtime(), os.urandom(32)
        address, self._key_file = page_server_address(os.urandom(4).hex())
        self._server = RpcServer(runtime, address, key, requests.operation, log)
        create_file(self._key_file, key)

    def close(self) -> None:
        """Accept no more calls."""
        with suppress(OSError):
            self._key_file.unlink()
        self._server.close()


class SignInsHandler(Handler):
    """The kernels that wait, in order: [{id, name, node, notebook}]; notebook: a file's name, or ""."""

    @permitted("execute")
    async def get(self) -> None:
        """Return them to a page that shows them to the user."""
        requests: SignInRequests = self.settings[SIGN_INS]
        await self.answer(requests.open())


class SignInHandler(Handler):
    """One of them."""

    @permitted("execute")
    async def delete(self, number: str) -> None:
        """Let it wait no longer: its start fails."""
        requests: SignInRequests = self.settings[SIGN_INS]
        try:
            requests.cancel(number)
        except KeyError:
            return await self.refuse(404, "this kernel does not wait for a sign-in any more")
        await self.answer({"ok": True})


HANDLERS = [(API + "/sign-ins", SignInsHandler), (API + "/sign-ins/([0-9a-f]{32})", SignInHandler)]
