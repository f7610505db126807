"""The probes of the form “Add a remote GPU”: started, watched and ended over HTTP. Each ends when its page is gone.

A probe connects to a machine and looks around as the verb `add` does."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from ... import adding
from ...errors import BY_LOGIN, CREATE_ENV, AuthError, Cancelled, GpuKernelError, HostKeyError, HubError
from ...hub.ssh import Asker
from ...program import command
from ...wire.kernel_settings import KernelSettings
from ...wire.texts import as_typed
from ..api import Handler, JsonAnswer, RequestRefused, hub_client, refusing, route, with_command
from .form import MAX_BODY, ROUTE, field_of, settings_from

PAGE_TIMEOUT = 90.0
"""Seconds after which a page that has not asked is gone: browsers let hidden pages ask only once a minute."""
MAX_RUNNING = 8
_PROBE = "probes/([0-9a-f]{32})"
MAX_KEPT = 32
"""Ended probes that are kept, so that a kernelspec can be written from them."""
_MAX_STEPS = 200
_GPU = ("index", "uuid", "name", "memory_used_mib", "memory_total_mib", "utilization", "free", "reason")
_FOUND = ("python", "others", "unseen", "hops", "gpus_error", "gpus_problem", "slurm")

AskerContext = AbstractAsyncContextManager[Asker | None]
"""Gives an Asker, None if nobody can be asked, and withdraws its questions at the end."""


class MachineProbe:
    """A probe with these settings, which begins at once.

    asking: Who asks the user. page_timeout: Seconds after which a page that has not asked for the probe is gone; then
    the probe is cancelled.
    """

    def __init__(self, settings: KernelSettings, asking: AskerContext, page_timeout: float) -> None:
        self.id = os.urandom(16).hex()
        self.settings: KernelSettings | None = None
        """The settings of the kernelspec, when the probe has succeeded."""
        self.answer: dict[str, Any] = {}
        """The hub's answer, when the probe has succeeded."""
        self._wanted = settings
        self._hops = adding.hop_names(settings)
        self._loop = asyncio.get_running_loop()
        self._page_timeout = page_timeout
        self._begin = self._loop.time()
        self._steps: deque[dict[str, Any]] = deque(maxlen=_MAX_STEPS)
        self._found: dict[str, Any] | None = None
        self._error: GpuKernelError | None = None
        self._task = asyncio.create_task(self._run(asking))
        self._timer = self._loop.call_later(page_timeout, self._task.cancel)

    def await_page(self) -> None:
        """The page has asked for the probe: wait anew until it asks again."""
        self._timer.cancel()
        self._timer = self._loop.call_later(self._page_timeout, self._task.cancel)

    @property
    def cancelled(self) -> bool:
        """Whether the probe was cancelled before it had a result or an error."""
        return self._task.cancelled()

    @property
    def running(self) -> bool:
        """Whether there is neither a result nor an error yet."""
        return not self._task.done()

    async def cancel(self) -> None:
        """End the probe: its connection to the hub ends, and the hub stops its work for the probe."""
        self._task.cancel()
        await asyncio.wait([self._task])

    def to_json(self) -> dict[str, Any]:
        """Return {id, state, hops: [name], steps: [{hop, step, after}], seconds, error, field, command, found}.

        `after` and `seconds` count from the beginning; `field`: what of the form the error is about; `command`: a
        command for a terminal that makes an environment for kernels on the machine, where that would help, or "".
        """
        error = self._error
        state = "running" if self.running else "done" if self._found else "failed"
        return {
            "id": self.id,
            "state": state,
            "hops": self._hops,
            "steps": list(self._steps),
            "seconds": self._loop.time() - self._begin,
            "error": with_command(error.to_json(), command()) if error else None,
            "field": field_of(error) if error else "",
            "command": self._create_env() if error and error.remedy.startswith(CREATE_ENV) else "",
            "found": self._found,
        }

    def _create_env(self) -> str:
        wanted = self._wanted.replace(python="")
        return f"{command()} add {as_typed([*adding.words_of(wanted), '--create-env'])}"

    async def _run(self, asking: AskerContext) -> None:
        try:
            async with hub_client() as hub, asking as ask:
                probe = await hub.acall(
                    "probe", progress=self._report, ask=ask, settings=self._wanted.to_json()
                )
            settings = adding.completed(self._wanted, probe)
            self._found = _shown(probe, settings)
            self.settings, self.answer = settings, probe
        except GpuKernelError as error:
            self._error = _for_form(error)

    def _report(self, progress: dict[str, Any]) -> None:
        step = {key: str(progress.get(key, ""))[:200] for key in ("hop", "step")}
        self._steps.append({**step, "after": self._loop.time() - self._begin})


def _for_form(error: GpuKernelError) -> GpuKernelError:
    """The error without the command `login`, which needs a kernelspec: there is none yet."""
    if isinstance(error, Cancelled):
        error.remedy = "To be asked again, connect again."
    elif isinstance(error, (AuthError, HostKeyError)):
        error.fill_in(f"once {BY_LOGIN}", "again, and answer the questions that appear here")
    return error


def _shown(probe: dict[str, Any], settings: KernelSettings) -> dict[str, Any]:
    """What the form shows of the hub's answer, with the settings of the kernelspec."""
    return {
        **{key: probe[key] for key in _FOUND if key in probe},
        "gpus": [{key: row.get(key) for key in _GPU} for row in probe["gpus"]],
        "home_problem": probe["node"].get("home_problem", ""),
        "name": adding.default_name(settings),
        "settings": settings.to_json(),
    }


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
