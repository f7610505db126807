"""Signing in to a kernelspec's node from the browser."""

from __future__ import annotations

import asyncio
from typing import Any

from ...errors import Cancelled, GpuKernelError, SettingsError
from ...kernelspecs import Kernelspec, find
from ..api import API, Handler, permitted
from ..hub_client import hub_client
from .prompt_handlers import PROMPTS
from .prompts import Asking, Prompts
from .sign_in_requests import SIGN_INS, SignInRequests


class LoginHandler(Handler):
    """The connection to a kernelspec's node, opened by its user: {ok, node, errors} or {ok: false, cancelled}."""

    @permitted("execute")
    async def post(self, name: str) -> None:
        """Open it, as `jupyter gpu-kernel login` does. The answer comes when the questions are answered."""
        try:
            spec = await asyncio.to_thread(find, name)
        except SettingsError as error:
            return await self.refuse_with(error, 404)
        try:
            answer = await _login(self.settings[PROMPTS], spec)
        except Cancelled:
            requests: SignInRequests = self.settings[SIGN_INS]
            requests.cancel_all(spec.name)
            return await self.answer({"ok": False, "cancelled": True})
        except GpuKernelError as error:
            return await self.refuse_with(error)
        await self.answer({"ok": True, **answer})


async def _login(prompts: Prompts, spec: Kernelspec) -> dict[str, Any]:
    async with hub_client() as hub, prompts.asker(Asking("login", spec.name)) as ask:
        return dict(await hub.acall("login", ask=ask, **spec.for_hub))


HANDLERS = [(API + "/nodes/([^/]+)/login", LoginHandler)]
