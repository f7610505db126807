"""The remote kernelspecs of this server: listed, written from a probe, and removed."""

from __future__ import annotations

import asyncio
from typing import Any

from ... import adding, kernelspecs
from ...errors import AgentError, SettingsError
from ...wire.kernel_settings import KernelSettings
from ..api import Handler, JsonAnswer, RequestRefused, refusing, route
from .probes import MachineProbe


@route("GET", "kernelspecs")
async def list_all(handler: Handler) -> list[dict[str, Any]]:
    """All kernelspecs of ours, as `list --json`: [{name, display_name, path, settings, problem}].

    `problem`: null, or what is wrong with a kernelspec that cannot be used, and so has no settings.
    """
    return await asyncio.to_thread(_all)


@route("POST", "kernelspecs")
async def write(handler: Handler) -> JsonAnswer:
    """Write one, {"probe": ID, "name", "replace"}, as `add` does. The answer: {name, …, shadowed_by}."""
    body = handler.body("probe", "name", "replace")
    if not isinstance(body.get("name"), str):
        raise SettingsError("the request has no name")
    probe = handler.state.probes.get(str(body.get("probe")))
    if probe is None or probe.settings is None:
        raise RequestRefused(404, "there is no such probe, or it has not succeeded")
    _refuse_impossible(probe, probe.settings)
    name, replace = body["name"].strip(), body.get("replace") is True
    with refusing(400, field="name"):
        return JsonAnswer(await asyncio.to_thread(_write, name, probe.settings, replace), 201)


@route("DELETE", "kernelspecs/([^/]{1,300})")
async def remove(handler: Handler, name: str) -> dict[str, Any]:
    """Remove one, as `remove` does: {removed: [folder], notes}. Running kernels keep running."""
    with refusing(404):
        removed, notes = await asyncio.to_thread(adding.remove, name)
    return {"removed": removed, "notes": notes}


def _all() -> list[dict[str, Any]]:
    usable = [{**spec.to_json(), "problem": None} for spec in kernelspecs.find_all()]
    broken = [
        {"name": name, "display_name": name, "path": str(path), "settings": None, "problem": error.cause}
        for name, (path, error) in kernelspecs.find_broken().items()
    ]
    return sorted([*usable, *broken], key=lambda row: str(row["name"]))


def _refuse_impossible(probe: MachineProbe, settings: KernelSettings) -> None:
    """Refuse settings that no kernel on the machine can have."""
    try:
        adding.refuse_impossible(probe.answer, settings)
    except AgentError as error:
        error.remedy = "Request fewer GPUs, or use another machine."
        raise RequestRefused(400, error, field="gpus") from None


def _write(name: str, settings: KernelSettings, replace: bool) -> dict[str, Any]:
    try:
        kernelspecs.check_name(name, replace=replace)
    except SettingsError as error:
        raise _name_refused(error, name) from None
    spec = kernelspecs.write(name, settings, replace=replace)
    other = kernelspecs.shadowed_by(spec)
    return {**spec.to_json(), "shadowed_by": str(other) if other else ""}


def _name_refused(error: SettingsError, name: str) -> RequestRefused:
    """Return the refusal with a remedy for the form, which has no --name and --replace. `replaceable`: the kernelspec
    of that name is ours."""
    known, replaceable = kernelspecs.is_known(name)
    if not known:
        remedy = "Choose a name of letters, digits, hyphens, dots and underscores."
        return RequestRefused(400, SettingsError(error.cause, remedy=remedy), field="name")
    remedy = "Choose another name" + (", or replace it." * replaceable or ".")
    taken = SettingsError(error.cause, remedy=remedy)
    return RequestRefused(409, taken, field="name", replaceable=replaceable)
