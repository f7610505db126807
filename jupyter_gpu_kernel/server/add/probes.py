"""The probes of the form “Add a remote GPU”: started, watched and ended over HTTP. Each ends when its page is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from ...errors import HubError
from ...wire.kernel_settings import KernelSettings
from ..api import Handler, JsonAnswer, RequestRefused, refusing, route
from .form import MAX_BODY, ROUTE, settings_from
from .probe import AskerContext, MachineProbe

PAGE_TIMEOUT = 90.0
"""Seconds after which a page that has not asked is gone: browsers let hidden pages ask only once a minute."""
MAX_RUNNING = 8
_PROBE = "probes/([0-9a-f]{32})"
MAX_KEPT = 32
"""Ended probes that are kept, so that a kernelspec can be written from them."""


class Probes:
    """The probes of one Jupyter server. `asking(name)` returns who asks the user the questions of the probe of
    that machine."""

    def __init__(self, asking: Callable[[str], AskerContext], page_timeout: float = PAGE_TIMEOUT) -> None:
        self._asking = asking
        self._page_timeout = page_timeout
        self._probes: dict[str, MachineProbe] = {}

    @property
    def ids(self) -> list[str]:
        """The ids of the probes that run or are kept."""
        return [one.id for one in self._probes.values() if not one.cancelled]

    def start(self, settings: KernelSettings) -> MachineProbe:
        """Start a probe with these settings. Raises HubError if too many are running."""
        ended = [one.id for one in self._probes.values() if not one.running]
        if len(self._probes) - len(ended) >= MAX_RUNNING:
            raise HubError(f"{MAX_RUNNING} other searches are running", remedy="Cancel one, or wait.")
        for old in ended[: max(0, len(ended) - MAX_KEPT + 1)]:
            del self._probes[old]
        probe = MachineProbe(settings, self._asking(settings.route[-1]), self._page_timeout)
        self._probes[probe.id] = probe
        return probe

    def get(self, probe_id: str) -> MachineProbe | None:
        """Return the probe for its page, which is there."""
        probe = self._probes.get(probe_id)
        if probe is None or probe.cancelled:
            return None
        probe.await_page()
        return probe

    async def cancel(self, probe_id: str) -> bool:
        """End a probe and forget it. Return whether it was there."""
        probe = self._probes.pop(probe_id, None)
        if probe is not None:
            await probe.cancel()
        return probe is not None

    async def close(self) -> None:
        """End all probes."""
        await asyncio.gather(*map(self.cancel, self.ids))


@route("POST", "probes")
async def start(handler: Handler) -> JsonAnswer:
    """Start a probe of what the form describes: {"destination", "jumps", "identity", "config", "settings"}.

    The answer is the same as that of `GET` for the probe.
    """
    body = handler.body(*ROUTE, "settings", most=MAX_BODY)
    settings = await asyncio.to_thread(settings_from, body)
    with refusing(429):
        return JsonAnswer(handler.state.probes.start(settings).to_json(), 201)


@route("GET", _PROBE)
async def progress(handler: Handler, probe_id: str) -> dict[str, Any]:
    """What the probe has found so far, and its result or error: see `MachineProbe.to_json`."""
    probe = handler.state.probes.get(probe_id)
    if probe is None:
        raise RequestRefused(404, "there is no such probe")
    return probe.to_json()


@route("DELETE", _PROBE)
async def cancel(handler: Handler, probe_id: str) -> dict[str, bool]:
    """Cancel the probe."""
    if not await handler.state.probes.cancel(probe_id):
        raise RequestRefused(404, "there is no such probe")
    return {"ok": True}
