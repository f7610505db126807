"""Kernels of other front ends, such as VS Code, that wait until their user signs in: pages show them, and sign in.

A launcher whose start needs a sign-in calls the operation `sign_in` at this server's own socket, which works like the
hub's (`page_sign_in.py`). The call lasts as long as the launcher waits. All of it runs on the server's event loop.
Another request signs in to a kernelspec's node, for these kernels and for any other reason.
"""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import suppress
from pathlib import PurePath
from typing import Any

from ...errors import Cancelled, HubError, NotAnswered
from ...hub.paths import page_server_address
from ...hub.rpc import Call, RpcServer
from ...hub.sanitize import line
from ...kernelspecs import find
from ...wire.files import create_file
from ...wire.runtime import Runtime
from ..api import Handler, hub_client, refusing, route
from .page_queue import PageEntry, PageQueue
from .prompts import Asking

PAGE_TIMEOUT = 4.0
"""Seconds for a page to fetch a request: less than a launcher waits for that."""
LONGEST_TEXT = 200


class SignInRequests(PageQueue):
    """All kernels that wait."""

    event = "https://events.jupyter.org/jupyter_gpu_kernel/sign_ins/v1"
    title = "Kernels that wait for a sign-in"
    gone = "this kernel does not wait for a sign-in any more"

    def cancel(self, number: str) -> None:
        """Let the kernel's start fail. Raises RequestRefused if there is no such request (any more)."""
        self._settle(number, None)

    def cancel_all(self, name: str) -> None:
        """Cancel all requests for this kernelspec."""
        for number, one in list(self._entries.items()):
            if one.shown["name"].lower() == name.lower():
                self.cancel(number)

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
        request = PageEntry(shown)
        self._add(request)
        try:
            await asyncio.wait_for(asyncio.wrap_future(request.fetched), PAGE_TIMEOUT)
            call.progress(node, "a page asks the user to sign in")
            await asyncio.wrap_future(request.reply)
            return {"cancelled": True}
        except asyncio.TimeoutError:
            raise NotAnswered("no page is open", hop=node) from None
        finally:  # also when the launcher has left
            self._withdraw(request)


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


@route("GET", "sign-ins")
async def sign_ins(handler: Handler) -> list[dict[str, Any]]:
    """The kernels that wait for a sign-in, in order: [{id, name, node, notebook}]; notebook: a file's name, or ""."""
    return handler.state.sign_ins.open()


@route("DELETE", "sign-ins/([0-9a-f]{32})")
async def cancel_sign_in(handler: Handler, number: str) -> dict[str, bool]:
    """Let a kernel wait no longer: its start fails."""
    handler.state.sign_ins.cancel(number)
    return {"ok": True}


@route("POST", "nodes/([^/]+)/login")
async def login(handler: Handler, name: str) -> dict[str, Any]:
    """Open the connection to a kernelspec's node, as `jupyter gpu-kernel login` does: {ok, node, errors} or {ok: false,
    cancelled}. The answer comes when the questions are answered."""
    with refusing(404):
        spec = await asyncio.to_thread(find, name)
    try:
        async with hub_client() as hub, handler.state.prompts.asker(Asking("login", spec.name)) as ask:
            return {"ok": True, **await hub.acall("login", ask=ask, **spec.for_hub)}
    except Cancelled:
        handler.state.sign_ins.cancel_all(spec.name)
        return {"ok": False, "cancelled": True}
