"""Find and read kernelspecs, with their settings checked."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import SettingsError
from ..settings import Settings, read_env_file
from .files import KEY, all_files, foreign_error, load, our_files, quote_name

HOW_TO_ADD = "Add one, for example: jupyter gpu-kernel add alice@gpu2 -J alice@login"


@dataclass(frozen=True)
class Spec:
    """One remote kernel. `settings`: checked, as `Settings.to_json` returns them; `path`: the kernel.json with them."""

    name: str
    display_name: str
    settings: dict[str, Any]
    path: Path


def read(kernel_json: Path | str) -> Spec:
    """The kernelspec in this kernel.json, or in the one it points to, with the variables of its env file."""
    spec = read_file(Path(kernel_json))
    settings = dict(spec.settings)
    if file := settings.pop("env_file", None):
        settings["env"] = {**read_env_file(file), **settings.get("env", {})}
    return Spec(spec.name, spec.display_name, settings, spec.path)


def read_file(path: Path, is_target: bool = False) -> Spec:
    """The same without the env file. `is_target`: another kernel.json points to this one."""
    content = load(path)
    ours = content.get("metadata", {}).get(KEY)
    if not isinstance(ours, dict):
        raise SettingsError(
            f"{path} is not a remote GPU kernelspec: it has no “metadata”: {{“{KEY}”: …}}",
            remedy=HOW_TO_ADD,
        )
    if "settings" in ours and not is_target:
        return read_file(Path(str(ours["settings"])), is_target=True)
    settings = Settings.from_json(ours, where=str(path))
    name = path.parent.name.lower()
    return Spec(name, str(content.get("display_name", name)), settings.to_json(), path)


def find(name: str) -> Spec:
    """The kernelspec of ours with that name. SettingsError, with the nearest name, if there is none."""
    path = next((path for known, path in our_files() if known == name.lower()), None)
    if path is None:
        raise unknown_error(name)
    return read_file(path)


def find_all(on_broken: Callable[[SettingsError], None] | None = None) -> list[Spec]:
    """All kernelspecs of ours in this environment. The error of a broken one goes to `on_broken`, or is raised."""
    found: dict[str, Spec] = {}
    for name, path in our_files():
        if name in found:
            continue
        try:
            found[name] = read_file(path)
        except SettingsError as error:
            if on_broken is None:
                raise
            on_broken(error)
    return sorted(found.values(), key=lambda spec: spec.name)


def shadowed_by(spec: Spec) -> Path | None:
    """Another kernelspec of the same name that front ends of this environment use instead, if there is one."""
    first = next((path for known, path in all_files() if known == spec.name), None)
    with contextlib.suppress(SettingsError):  # it is another program's, or broken
        if first is not None and read_file(first).path.resolve() == spec.path.resolve():
            return None
    return first


def unknown_error(name: str) -> SettingsError:
    """The error about a name under which we have no kernelspec, with the names we have."""
    for known, path in all_files():
        if known == name.lower():
            return foreign_error(name, path)
    names = sorted({known for known, _ in our_files()})
    near = difflib.get_close_matches(name.lower(), names, 1)
    if near:
        remedy = f"Did you mean {near[0]}?"
    elif names:
        remedy = "Known kernelspecs: " + ", ".join(names) + "."
    else:
        remedy = f"There is none yet. {HOW_TO_ADD}"
    return SettingsError(f"there is no remote GPU kernelspec {quote_name(name)}", remedy=remedy)
