"""Kernels of other front ends, such as VS Code, that wait until their user signs in: pages show them, and sign in.

A launcher whose start needs a sign-in writes a file (`page_sign_in.py`), which this server finds. Another request signs
in to a kernelspec's node, for these kernels and for any other reason.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Callable
from pathlib import PurePath
from typing import Any

from tornado.ioloop import PeriodicCallback

from ...errors import Cancelled, SettingsError
from ...hub.paths import sign_in_folder
from ...hub.sanitize import line
from ...kernelspecs import find
from ...page_sign_in import LOOKING, REQUEST, SHOWN, files
from ..api import Handler, RequestRefused, hub_client, refusing, route
from .prompts import Asking

_INTERVAL = 1000.0
"""Milliseconds between two looks for requests."""
_LONGEST_TEXT = 200


class SignInRequests:
    """All kernels that wait. Looks for them if `looks`, and calls `notify(number of kernels)` when they are others."""

    def __init__(self, notify: Callable[[int], None], looks: bool) -> None:
        self._notify = notify
        self._mark = f"{os.urandom(4).hex()}{LOOKING}"
        self._known: list[str] = []
        self._looking = PeriodicCallback(lambda: asyncio.to_thread(self._look), _INTERVAL)
        if looks:
            self._looking.start()

    def _look(self) -> None:
        (sign_in_folder() / self._mark).touch()
        if (known := [file.stem for file in files(REQUEST)]) != self._known:
            self._known = known
            self._notify(len(known))

    def open(self) -> list[dict[str, Any]]:
        """Return the kernels to a page that shows them, without those whose kernelspec this server does not have."""
        shown = []
        for file in files(REQUEST) if self._looking.is_running() else ():
            # The kernel has just stopped waiting; or no sign-in is possible without its kernelspec.
            with contextlib.suppress(FileNotFoundError, SettingsError):
                given = json.loads(file.read_bytes())
                wanted = {key: line(text, _LONGEST_TEXT) for key, text in given.items()}
                known = {"name": find(wanted["name"]).name, "notebook": PurePath(wanted["notebook"]).name}
                shown.append({"id": file.stem, **wanted, **known})
                file.with_suffix(SHOWN).touch()
        return shown

    def cancel(self, number: str) -> None:
        """Let the kernel's start fail. Raises RequestRefused if it does not wait (any more)."""
        try:
            (sign_in_folder() / f"{number}{REQUEST}").unlink()
        except FileNotFoundError:
            raise RequestRefused(404, "this kernel does not wait for a sign-in any more") from None
        self._look()

    def cancel_all(self, name: str) -> None:
        """Cancel all requests for this kernelspec."""
        for one in self.open():
            if one["name"] == name:
                self.cancel(one["id"])

    def close(self) -> None:
        """Look for no more requests."""
        self._looking.stop()
        (sign_in_folder() / self._mark).unlink(missing_ok=True)


@route("GET", "sign-ins")
async def sign_ins(handler: Handler) -> list[dict[str, Any]]:
    """The kernels that wait for a sign-in, in order: [{id, name, node, notebook}]; notebook: a file's name, or ""."""
    return await asyncio.to_thread(handler.state.sign_ins.open)


@route("DELETE", "sign-ins/([0-9a-f]{32})")
async def cancel_sign_in(handler: Handler, number: str) -> dict[str, bool]:
    """Let a kernel wait no longer: its start fails."""
    await asyncio.to_thread(handler.state.sign_ins.cancel, number)
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
        await asyncio.to_thread(handler.state.sign_ins.cancel_all, spec.name)
        return {"ok": False, "cancelled": True}
