"""Kernels of other front ends, such as VS Code, that wait until their user signs in: pages show them, and sign in.

A launcher whose start needs a sign-in calls the operation `sign_in` at this server's own socket, which works like the
hub's (`page_sign_in.py`). The call lasts as long as the launcher waits. All of it runs on the server's event loop.
Another handler signs in to a kernelspec's node, for these kernels and for any other reason.
"""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from ...errors import Cancelled, HubError, NotAnswered
from ...hub.paths import page_server_address
from ...hub.rpc import Call, RpcServer
from ...hub.sanitize import line
from ...kernelspecs import Kernelspec, find
from ...wire.files import create_file
from ...wire.runtime import Runtime
from ..api import API, Handler, RequestRefused, hub_client, permitted, refusing
from .page_queue import PageQueue
from .prompts import Asking

EVENT = "https://events.jupyter.org/jupyter_gpu_kernel/sign_ins/v1"
TITLE = "Kernels that wait for a sign-in"
PAGE_TIMEOUT = 4.0
"""Seconds for a page to fetch a request: less than a launcher waits for that."""
LONGEST_TEXT = 200


@dataclass(frozen=True)
class _SignInRequest:
    shown: dict[str, str]
    fetched: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)


class SignInRequests(PageQueue[_SignInRequest]):
    """All kernels that wait."""

    def cancel(self, number: str) -> None:
        """Let the kernel's start fail. Raises KeyError if there is no such request (any more)."""
        self._entries[number].cancelled.set()

    def cancel_all(self, name: str) -> None:
        """Cancel all requests for this kernelspec."""
        for one in self._entries.values():
            if one.shown["name"].lower() == name.lower():
                one.cancelled.set()

    async def operation(self, call: Call) -> dict[str, bool]:
        """Serve a launcher's call. Report progress when a page shows it, and return when the user has cancelled it."""
        if call.op != "sign_in":
            raise HubError(f"a Jupyter server has no operation {call.op!r}")
        if self._is_full:
            raise HubError("too many kernels wait for a sign-in")
        name, node, notebook = (
            line(call.arguments.get(key), LONGEST_TEXT) for key in ("name", "node", "notebook")
        )
        spec = await asyncio.to_thread(find, name)  # else this server cannot sign in
        number = os.urandom(16).hex()
        shown = {"id": number, "name": spec.name, "node": node, "notebook": PurePath(notebook).name}
        request = _SignInRequest(shown)
        self._add(request)
        try:
            try:
                await asyncio.wait_for(request.fetched.wait(), PAGE_TIMEOUT)
            except asyncio.TimeoutError:
                raise NotAnswered("no page is open", hop=node) from None
            call.progress(node, "a page asks the user to sign in")
            await request.cancelled.wait()
            return {"cancelled": True}
        finally:  # also when the launcher has left
            self._take(number)


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
        """Answer a page with the kernels that wait for a sign-in."""
        await self.answer(self.state.sign_ins.open())


class SignInHandler(Handler):
    """One kernel that waits for a sign-in."""

    @permitted("execute")
    async def delete(self, number: str) -> None:
        """Let it wait no longer: its start fails."""
        try:
            self.state.sign_ins.cancel(number)
        except KeyError:
            raise RequestRefused(404, "this kernel does not wait for a sign-in any more") from None
        await self.answer({"ok": True})


class LoginHandler(Handler):
    """The connection to a kernelspec's node, opened by its user: {ok, node, errors} or {ok: false, cancelled}."""

    @permitted("execute")
    async def post(self, name: str) -> None:
        """Open it, as `jupyter gpu-kernel login` does. The answer comes when the questions are answered."""
        with refusing(404):
            spec = await asyncio.to_thread(find, name)
        try:
            answer = await self._login(spec)
        except Cancelled:
            self.state.sign_ins.cancel_all(spec.name)
            answer = {"ok": False, "cancelled": True}
        await self.answer({"ok": True, **answer})

    async def _login(self, spec: Kernelspec) -> dict[str, Any]:
        async with hub_client() as hub, self.state.prompts.asker(Asking("login", spec.name)) as ask:
            return dict(await hub.acall("login", ask=ask, **spec.for_hub))


HANDLERS = [
    (API + "/sign-ins", SignInsHandler),
    (API + "/sign-ins/([0-9a-f]{32})", SignInHandler),
    (API + "/nodes/([^/]+)/login", LoginHandler),
]
