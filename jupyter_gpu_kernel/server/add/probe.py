"""One probe of a machine: it connects and looks around as the verb `add` does, and can be cancelled."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from contextlib import AbstractAsyncContextManager
from typing import Any

from ... import adding
from ...errors import BY_LOGIN, AuthError, Cancelled, GpuKernelError, HostKeyError
from ...hub.ssh import Asker
from ...program import command
from ...wire.kernel_settings import KernelSettings
from ...wire.texts import as_typed
from ..api import hub_client, with_command
from .form import field_of

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
            "command": self._create_env() if error and "--create-env" in error.remedy else "",
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
