"""The machines of the user's ssh configuration, which the form “Add a remote GPU” offers."""

from __future__ import annotations

import asyncio
from typing import Any

from ...errors import GpuKernelError, RouteError
from ..api import API, Handler, permitted
from .form import MAX_TEXT


class HostsHandler(Handler):
    """The machines that the user's ssh configuration names, and nothing else of it."""

    @permitted("execute")
    async def get(self) -> None:
        """Return [{name, user, port, jumps}]; `?config=`: of this file instead of ~/.ssh/config."""
        config = self.get_query_argument("config", "").strip()
        try:
            if len(config) > MAX_TEXT or not config.isprintable():
                raise RouteError("this is not the path of a file")
            await self.answer(await asyncio.to_thread(_hosts, config))
        except GpuKernelError as error:
            await self.refuse_with(error, 400, field="config")


def _hosts(config: str) -> list[dict[str, Any]]:
    from ...hub.ssh.config.destination import existing_files
    from ...hub.ssh.config.hosts import hosts

    return hosts(*existing_files([config] if config else []))


HANDLERS = [(API + "/ssh-hosts", HostsHandler)]
