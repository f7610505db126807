"""Connections to the hub for the server's event loop, which is not blocked meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from ..client import HubClient


@contextlib.asynccontextmanager
async def hub_client(*, start: bool = True) -> AsyncIterator[HubClient]:
    """A connection to the hub: `async with hub_client() as hub: await hub.acall(…)`.

    The hub is started if there is none; with `start=False`, raises HubError then. No thread waits for the hub's
    results, so that the server can exit at any time.
    """
    opening = asyncio.create_task(asyncio.to_thread(HubClient, start=start))
    try:
        hub = await asyncio.shield(opening)
    except asyncio.CancelledError:
        opening.add_done_callback(_close_if_opened)
        raise
    try:
        yield hub
    finally:
        await asyncio.to_thread(hub.close)


def _close_if_opened(opening: asyncio.Task[HubClient]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        asyncio.get_running_loop().run_in_executor(None, opening.result().close)
