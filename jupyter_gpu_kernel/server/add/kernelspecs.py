"""The remote kernelspecs of this server: listed, written from a probe, and removed."""

from __future__ import annotations

import asyncio
from typing import Any

from ... import adding, kernelspecs
from ...errors import AgentError, GpuKernelError, SettingsError
from ...wire.kernel_settings import KernelSettings
from ..api import API, Handler, permitted
from .form import MAX_BODY
from .probes import PROBES, Probes


class KernelspecsHandler(Handler):
    """All kernelspecs of ours."""

    @permitted("execute")
    async def get(self) -> None:
        """As `list --json`: [{name, display_name, path, settings, problem}]. `problem`: null, or what is wrong with one
        that cannot be used, and so has no settings."""
        await self.answer(await asyncio.to_thread(_all))

    @permitted("execute")
    async def post(self) -> None:
        """Write one, {"probe": ID, "name", "replace"}, as `add` does. The answer: {name, …, notes, shadowed_by}."""
        body: Any = self.get_json_body() if len(self.request.body) <= MAX_BODY else None
        if not isinstance(body, dict) or not isinstance(body.get("name"), str):
            return await self.refuse(400, "the request has no name")
        probes: Probes = self.settings[PROBES]
        probe = probes.get(str(body.get("probe")))
        if probe is None or probe.settings is None:
            return await self.refuse(404, "there is no such probe, or it has not succeeded")
        name, replace = body["name"].strip(), body.get("replace") is True
        try:
            adding.refuse_impossible(probe.answer, probe.settings)
            written = await asyncio.to_thread(_write, name, probe.settings, replace)
        except _NameTaken as error:
            return await self.refuse_with(error, 409, field="name", replaceable=error.replaceable)
        except AgentError as error:
            error.remedy = "Request fewer GPUs, or use another machine."
            return await self.refuse_with(error, 400, field="gpus")
        except GpuKernelError as error:
            return await self.refuse_with(error, 400, field="name")
        self.set_status(201)
        await self.answer(written)


class KernelspecHandler(Handler):
    """One kernelspec of ours."""

    @permitted("execute")
    async def delete(self, name: str) -> None:
        """Remove it, as `remove` does: {removed: [folder], notes}. Running kernels keep running."""
        try:
            await self.answer(await asyncio.to_thread(_remove, name))
        except GpuKernelError as error:
            await self.refuse_with(error, 404)


class _NameTaken(SettingsError):
    """There is a kernelspec of that name. `replaceable`: it is ours."""

    replaceable = False


def _all() -> list[dict[str, Any]]:
    usable = [{**spec.to_json(), "problem": None} for spec in kernelspecs.find_all(lambda error: None)]
    broken = [
        {"name": name, "display_name": name, "path": str(path), "settings": None, "problem": error.cause}
        for name, (path, error) in kernelspecs.find_broken().items()
    ]
    return sorted([*usable, *broken], key=lambda row: str(row["name"]))


def _write(name: str, settings: KernelSettings, replace: bool) -> dict[str, Any]:
    try:
        kernelspecs.check_name(name, replace=replace)
    except SettingsError as error:
        raise _about_name(error, name) from None
    spec, notes = adding.write(name, settings, replace=replace)
    other = kernelspecs.shadowed_by(spec)
    return {**spec.to_json(), "notes": notes, "shadowed_by": str(other) if other else ""}


def _about_name(error: SettingsError, name: str) -> SettingsError:
    """The error with a remedy for the form, which has no --name and --replace."""
    known, replaceable = kernelspecs.is_known(name)
    if not known:
        remedy = "Choose a name of letters, digits, hyphens, dots and underscores."
        return SettingsError(error.cause, remedy=remedy)
    taken = _NameTaken(error.cause, remedy="Choose another name" + (", or replace it." * replaceable or "."))
    taken.replaceable = replaceable
    return taken


def _remove(name: str) -> dict[str, Any]:
    note = ""
    try:
        settings = kernelspecs.find(name).settings
        if settings.env_dir:
            note = adding.stays_note(settings.env_dir, settings.route[-1])
    except SettingsError:
        pass  # it is broken, or not there, which `remove` says
    return {"removed": [str(folder) for folder in kernelspecs.remove(name)], "notes": [note] if note else []}


HANDLERS = [
    (API + "/kernelspecs", KernelspecsHandler),
    (API + r"/kernelspecs/([^/]{1,300})", KernelspecHandler),
]
