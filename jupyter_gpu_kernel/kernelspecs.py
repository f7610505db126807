"""Our kernelspecs on disk: which there are, and reading, writing, removing them.

One remote kernel can be two specs of one name. The one in the user's Jupyter folder has argv alone, so that
every program and every environment can use it, and holds the settings. Where this environment is the user's
own, one under `sys.prefix` points to it, with the provisioner's stanza (which hides a spec wherever our
package is not installed). What settings mean, and what a route is, is not known here.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import re
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jupyter_core.paths import jupyter_data_dir, jupyter_path, prefer_environment_over_user

from .errors import SettingsError
from .settings import Settings, read_env_file
from .wire.texts import COMMAND, as_typed

__all__ = [
    "HOW_TO_ADD",
    "Settings",
    "Spec",
    "all",
    "check_name",
    "command",
    "find",
    "found_before",
    "read",
    "remove",
    "settings_of",
    "write",
]

_KEY = "jupyter_gpu_kernel"
_STANZA = {"provisioner_name": "remote-gpu", "config": {}}
_NAME = re.compile(r"[a-z0-9._-]+")  # jupyter_client's rule for names
_RESERVED = re.compile(r"(con|prn|aux|nul|(com|lpt)\d)(\..*)?")  # devices of Windows, with any ending
HOW_TO_ADD = "Add one, for example: jupyter gpu-kernel add alice@gpu2 -J alice@login"
_LONGEST_NAME = 100  # a name is a folder's name, and is shown in front ends


@dataclass(frozen=True)
class Spec:
    """One remote kernel. `settings`: checked, as of `Settings.to_json`; `path`: the kernel.json with them."""

    name: str
    display_name: str
    settings: dict[str, Any]
    path: Path


def read(kernel_json: Path | str) -> Spec:
    """What a start needs: the spec in this kernel.json or the one it points to, with the env file read in."""
    spec = _read(Path(kernel_json))
    settings = dict(spec.settings)
    if file := settings.pop("env_file", None):
        settings["env"] = {**read_env_file(file), **settings.get("env", {})}
    return Spec(spec.name, spec.display_name, settings, spec.path)


def settings_of(kernel_spec: Any, settings_path: str = "") -> Spec:
    """`read`, for jupyter_client's KernelSpec; `settings_path` wins over what it says itself."""
    return read(settings_path or Path(kernel_spec.resource_dir, "kernel.json"))


def find(name: str) -> Spec:
    """Our kernelspec of that name. SettingsError, with the nearest name, if there is none."""
    path = next((path for known, path in _ours() if known == name.lower()), None)
    if path is None:
        raise _unknown(name)
    return _read(path)


def all(broken: Callable[[SettingsError], None] | None = None) -> list[Spec]:
    """All of ours that this environment sees. An error in one goes to `broken`, or else is raised."""
    found: dict[str, Spec] = {}
    for name, path in _ours():
        if name in found:
            continue
        try:
            found[name] = _read(path)
        except SettingsError as error:
            if broken is None:
                raise
            broken(error)
    return sorted(found.values(), key=lambda spec: spec.name)


def write(
    name: str,
    settings: Settings | Mapping[str, Any],
    *,
    prefix: Path | str | None = None,
    replace: bool = False,
) -> Spec:
    """Write the spec; with `prefix`, a single one under its share/jupyter, and no other is touched. SettingsError for a
    taken name."""
    name = name.lower()
    check_name(name, prefix=prefix, replace=replace)
    checked = settings if isinstance(settings, Settings) else Settings.from_json(settings)
    before = [path for path in _named(name, prefix) if _is_ours(path)]
    if prefix is not None:
        path = _below(Path(prefix), name)
        written = {path: _kernel_json(name, path, checked.to_json(), provisioner=True)}
    else:
        path = Path(jupyter_data_dir(), "kernels", name, "kernel.json")
        written = {path: _kernel_json(name, path, checked.to_json())}
        if _own_environment():
            pointer = {"settings": str(path)}
            written[_below(Path(sys.prefix), name)] = _kernel_json(name, path, pointer, provisioner=True)
    for file, content in written.items():
        _write_file(file, content)
    kept = {file.resolve() for file in written}
    if not _own_environment():
        kept.add(_below(Path(sys.prefix), name).resolve())
    for file in before:
        if file.resolve() not in kept:
            _remove_folder(file.parent)
    return Spec(name, str(written[path]["display_name"]), checked.to_json(), path)


def command() -> str:
    """How one types our command on this computer: with its full path, as PATH may lack it."""
    try:
        return as_typed([str(_program())])
    except SettingsError:  # it was installed in another way
        return COMMAND


def remove(name: str) -> list[Path]:
    """Remove it wherever this environment can see it: the folders that are gone."""
    folders = [path.parent for known, path in _ours() if known == name.lower()]
    if not folders:
        raise _unknown(name)
    for folder in folders:
        _remove_folder(folder)
    return folders


def found_before(spec: Spec) -> Path | None:
    """The kernelspec of the same name that front ends of this environment find in place of this one, if they do."""
    first = next((path for known, path in _files() if known == spec.name), None)
    with contextlib.suppress(SettingsError):  # it is another program's, or broken
        if first is not None and _read(first).path.resolve() == spec.path.resolve():
            return None
    return first


def check_name(name: str, *, prefix: Path | str | None = None, replace: bool = False) -> None:
    """SettingsError if no kernelspec may be written under that name; with `prefix`, there."""
    if problem := _problem(name.lower()):
        raise SettingsError(
            f"{_shown(name)} cannot be a kernelspec's name: {problem}",
            remedy="Choose a name of letters, digits, hyphens, dots and underscores with --name.",
        )
    for path in _named(name.lower(), prefix):
        if not _is_ours(path):
            raise _foreign(name, path)
        if not replace:
            raise SettingsError(
                f"there is a kernelspec {name} already: {path}",
                remedy="Overwrite it with --replace, or choose another name with --name.",
            )


def _problem(name: str) -> str:
    """Why this cannot be the name of a folder that jupyter_client reads as a kernelspec, on any system."""
    if not name:
        return "it is empty"
    if not _NAME.fullmatch(name):
        return "it has other characters than letters, digits, hyphens, dots and underscores"
    if name[0] in ".-" or name[-1] == ".":
        return "it begins with a dot or a hyphen, or ends with a dot"
    if _RESERVED.fullmatch(name):
        return "Windows reserves it for a device"
    return f"it is longer than {_LONGEST_NAME} characters" if len(name) > _LONGEST_NAME else ""


def _shown(name: str) -> str:
    """A name that a user gave, in a message: whole if it is one, else in quotes and cut."""
    text = ascii(name)
    return name if not _problem(name.lower()) else text if len(text) <= 60 else f"{text[:57]}…'"


# --- reading


def _read(path: Path, pointed: bool = False) -> Spec:
    content = _load(path)
    ours = content.get("metadata", {}).get(_KEY)
    if not isinstance(ours, dict):
        raise SettingsError(
            f"{path} is no remote GPU kernelspec: it has no “metadata”: {{“{_KEY}”: …}}",
            remedy=HOW_TO_ADD,
        )
    if "settings" in ours and not pointed:
        return _read(Path(str(ours["settings"])), pointed=True)
    settings = Settings.from_json(ours, where=str(path))
    name = path.parent.name.lower()
    return Spec(name, str(content.get("display_name", name)), settings.to_json(), path)


def _load(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}", remedy=_rewrite(path)) from error
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"{path} is not JSON: {error}", remedy=_rewrite(path)) from error
    if not isinstance(content, dict) or not isinstance(content.get("metadata", {}), dict):
        raise SettingsError(f"{path} is not a kernelspec", remedy=_rewrite(path))
    return content


def _rewrite(path: Path) -> str:
    name = path.absolute().parent.name
    if path.name != "kernel.json" or _problem(name.lower()):
        return "Give the path of a kernel.json that “jupyter gpu-kernel add” has written."
    return f"Write it again with “jupyter gpu-kernel add … --name {name} --replace”."


def _files() -> Iterator[tuple[str, Path]]:
    """(name, kernel.json) of every kernelspec, in Jupyter's order: of one name the first counts."""
    for folder in jupyter_path("kernels"):
        with contextlib.suppress(OSError):  # many of these folders do not exist
            for entry in sorted(Path(folder).iterdir()):
                if (entry / "kernel.json").is_file():
                    yield entry.name.lower(), entry / "kernel.json"


def _named(name: str, prefix: Path | str | None) -> list[Path]:
    """The kernelspecs of that name; with `prefix`, the one below it."""
    if prefix is None:
        return [path for known, path in _files() if known == name]
    path = _below(Path(prefix), name)
    return [path] if path.is_file() else []


def _ours() -> Iterator[tuple[str, Path]]:
    return ((name, path) for name, path in _files() if _is_ours(path))


def _is_ours(path: Path) -> bool:
    """Also when its settings are wrong: so that it can be removed."""
    try:
        return _KEY in _load(path).get("metadata", {})
    except SettingsError:
        return False  # not for us to judge


def _unknown(name: str) -> SettingsError:
    """Why there is no kernelspec of ours with that name, and which was perhaps meant."""
    for known, path in _files():
        if known == name.lower():
            return _foreign(name, path)
    names = sorted({known for known, _ in _ours()})
    near = difflib.get_close_matches(name.lower(), names, 1)
    if near:
        remedy = f"Did you mean {near[0]}?"
    elif names:
        remedy = "There are: " + ", ".join(names) + "."
    else:
        remedy = f"There is none yet. {HOW_TO_ADD}"
    return SettingsError(f"there is no remote GPU kernelspec {_shown(name)}", remedy=remedy)


def _foreign(name: str, path: Path) -> SettingsError:
    """A kernelspec that we did not write, or cannot tell."""
    try:
        _load(path)
    except SettingsError as error:
        remedy = f"Remove the folder {path.parent} by hand, or choose another name with --name."
        return SettingsError(f"the kernelspec {name} is broken: {error.cause}", remedy=remedy)
    return SettingsError(
        f"{name} is another program's kernelspec: {path}",
        remedy="“jupyter gpu-kernel list” shows ours. To add one, choose another name with --name.",
    )


# --- writing


def _kernel_json(name: str, path: Path, ours: dict[str, Any], provisioner: bool = False) -> dict[str, Any]:
    """`path` is the kernel.json with the settings.

    jupyter_client makes CurveZMQ keys only for kernels that declare that they support them.
    """
    metadata: dict[str, Any] = {"supported_encryption": "curve", _KEY: ours}
    if provisioner:
        metadata["kernel_provisioner"] = _STANZA
    return {
        "argv": [str(_program()), "launch", str(path.absolute()), "-f", "{connection_file}"],
        "display_name": f"Remote GPU ({name})",
        "language": "python",
        "interrupt_mode": "message",
        "metadata": metadata,
    }


def _program() -> Path:
    """Our own program: beside this Python, or where pip puts programs."""
    name = "jupyter-gpu-kernel.exe" if sys.platform == "win32" else "jupyter-gpu-kernel"
    user_scheme = sysconfig.get_preferred_scheme("user")
    folders = [
        Path(sys.executable).parent,
        Path(sysconfig.get_path("scripts")),
        Path(sysconfig.get_path("scripts", user_scheme)),
    ]
    for folder in folders:
        if (folder / name).is_file():
            return (folder / name).absolute()
    raise SettingsError(
        f"the program {name} is not in {folders[0]}, where front ends would start it",
        remedy=f"Install it again: {sys.executable} -m pip install --force-reinstall jupyter-gpu-kernel",
    )


def _own_environment() -> bool:
    """Whether a spec under sys.prefix would come before the user's, and may be written.

    Whoever sets JUPYTER_DATA_DIR wants a world apart: nothing is written outside it.
    """
    return (
        prefer_environment_over_user()
        and os.access(sys.prefix, os.W_OK)
        and not os.environ.get("JUPYTER_DATA_DIR")
    )


def _below(prefix: Path, name: str) -> Path:
    return prefix.absolute() / "share" / "jupyter" / "kernels" / name / "kernel.json"


def _remove_folder(folder: Path) -> None:
    try:
        folder.unlink() if folder.is_symlink() else shutil.rmtree(folder)
    except OSError as error:
        raise SettingsError(
            f"{folder} cannot be removed: {error.strerror}",
            remedy="Allow writing there, or remove it by hand.",
        ) from error


def _write_file(path: Path, content: dict[str, Any]) -> None:
    """Whole or not at all, for the owner alone (mkstemp's 0600)."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fd, scratch = tempfile.mkstemp(prefix="kernel-", suffix=".tmp", dir=path.parent)
        try:
            with os.fdopen(fd, "w", encoding="utf-8") as file:
                json.dump(content, file, indent=2, ensure_ascii=False)
                file.write("\n")
            os.replace(scratch, path)
        except BaseException:
            os.unlink(scratch)
            raise
    except OSError as error:
        raise SettingsError(
            f"{path} cannot be written: {error.strerror}",
            remedy="Make room on the disk or allow writing there, or choose another folder with --prefix DIR.",
        ) from error
