"""The kernelspecs of this package on disk: where the files kernel.json are, which of them are ours, what is in them,
checked; and how they are written and removed.

One remote kernel can have two kernelspecs of the same name. The one in the user's Jupyter folder holds the settings and
has only an argv, so that every program and every environment can use it. Where the user owns this environment, another
one under `sys.prefix` points to the first and has the provisioner's stanza. jupyter_client hides a kernelspec with a
stanza wherever this package is not installed.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from jupyter_core.paths import jupyter_data_dir, jupyter_path, prefer_environment_over_user

from ..errors import SettingsError
from ..program import installed_program
from ..saved_answers import forget
from ..settings import check, parse, read_env_file
from ..wire.files import replace_file
from ..wire.kernel_settings import KernelSettings

HOW_TO_ADD = "Add one, for example: jupyter gpu-kernel add alice@gpu2 -J alice@login"
KEY = "jupyter_gpu_kernel"
"""The key of our settings in a kernelspec's metadata."""
_NAME = re.compile(r"[a-z0-9._-]+")  # jupyter_client's rule
_RESERVED = re.compile(r"(con|prn|aux|nul|(com|lpt)\d)(\..*)?")  # devices of Windows, with any suffix
_LONGEST_NAME = 100  # a name is the name of a folder, and front ends show it
_STANZA = {"provisioner_name": "remote-gpu", "config": {}}
_LOGOS = Path(__file__).parent / "logos"
"""What front ends show for a kernelspec: files with names that Jupyter looks for."""


def name_problem(name: str) -> str:
    """Why this lower-case name cannot be that of a kernelspec's folder on every system; "" if it can."""
    if not name:
        return "it is empty"
    if not _NAME.fullmatch(name):
        return "it contains a character that is not a letter, digit, hyphen, dot or underscore"
    if name[0] in ".-" or name[-1] == ".":
        return "it begins with a dot or a hyphen, or ends with a dot"
    if _RESERVED.fullmatch(name):
        return "Windows reserves it for a device"
    return f"it is longer than {_LONGEST_NAME} characters" if len(name) > _LONGEST_NAME else ""


def quote_name(name: str) -> str:
    """A name for a message: unchanged if it is valid, else in quotes, escaped and cut."""
    text = ascii(name)
    return name if not name_problem(name.lower()) else text if len(text) <= 60 else f"{text[:57]}…'"


def all_files() -> Iterator[tuple[str, Path]]:
    """(name, kernel.json) of every kernelspec, in Jupyter's order: the first one of a name is used."""
    for folder in jupyter_path("kernels"):
        with contextlib.suppress(OSError):  # many of these folders do not exist
            for entry in sorted(Path(folder).iterdir()):
                if (entry / "kernel.json").is_file():
                    yield entry.name.lower(), entry / "kernel.json"


def our_files() -> Iterator[tuple[str, Path]]:
    """(name, kernel.json) of every kernelspec of ours."""
    return ((name, path) for name, path in all_files() if is_ours(path))


def path_below(prefix: Path, name: str) -> Path:
    """The kernel.json of that name in the environment `prefix`."""
    return prefix.absolute() / "share" / "jupyter" / "kernels" / name / "kernel.json"


def load(path: Path) -> dict[str, Any]:
    """The content of a kernel.json. Raises SettingsError if it cannot be read, or is not a kernelspec."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(
            f"{path} cannot be read: {error.strerror}", remedy=_how_to_rewrite(path)
        ) from error
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"{path} is not JSON: {error}", remedy=_how_to_rewrite(path)) from error
    if not isinstance(content, dict) or not isinstance(content.get("metadata", {}), dict):
        raise SettingsError(f"{path} is not a kernelspec", remedy=_how_to_rewrite(path))
    return content


def is_ours(path: Path) -> bool:
    """Whether `add` wrote it; True also if its settings are wrong, so that it can be removed."""
    try:
        return KEY in load(path).get("metadata", {})
    except SettingsError:
        return False  # it cannot be known


def foreign_error(name: str, path: Path) -> SettingsError:
    """The error about a kernelspec that is not ours, or cannot be read."""
    try:
        load(path)
    except SettingsError as error:
        remedy = f"Remove the folder {path.parent} by hand, or choose another name with --name."
        return SettingsError(f"the kernelspec {name} is broken: {error.cause}", remedy=remedy)
    return SettingsError(
        f"{name} is another program's kernelspec: {path}",
        remedy="“jupyter gpu-kernel list” shows those of this package. To add one, choose another name with --name.",
    )


def _how_to_rewrite(path: Path) -> str:
    name = path.absolute().parent.name
    if path.name != "kernel.json" or name_problem(name.lower()):
        return "Give the path of a kernel.json that “jupyter gpu-kernel add” has written."
    return f"Write it again with “jupyter gpu-kernel add … --name {name} --replace”."


# --- with their settings


@dataclass(frozen=True)
class Kernelspec:
    """The kernelspec of one remote kernel. `settings`: checked; `path`: the kernel.json with them."""

    name: str
    display_name: str
    settings: KernelSettings
    path: Path

    @property
    def for_hub(self) -> dict[str, Any]:
        """The name and the settings, as the hub's operations take them."""
        return {"name": self.name, "settings": self.settings.to_json()}

    def to_json(self) -> dict[str, Any]:
        """The kernelspec for programs: {"name", "display_name", "path", "settings"}."""
        return {**self.for_hub, "display_name": self.display_name, "path": str(self.path)}


def read(kernel_json: Path | str) -> Kernelspec:
    """The kernelspec in this kernel.json, or in the one it points to, with the variables of its env file."""
    spec = read_file(Path(kernel_json))
    settings = spec.settings
    if not settings.env_file:
        return spec
    env = {**read_env_file(settings.env_file), **settings.env}
    return replace(spec, settings=settings.replace(env=env, env_file=""))


def read_file(path: Path, is_target: bool = False) -> Kernelspec:
    """The kernelspec in this kernel.json, or in the one that it points to, as the file says. `is_target`: whether
    another kernel.json points to this one."""
    content = load(path)
    ours = content.get("metadata", {}).get(KEY)
    if not isinstance(ours, dict):
        raise SettingsError(
            f"{path} is not a remote GPU kernelspec: it has no “metadata”: {{“{KEY}”: …}}",
            remedy=HOW_TO_ADD,
        )
    if "settings" in ours and not is_target:
        return read_file(Path(str(ours["settings"])), is_target=True)
    name = path.parent.name.lower()
    return Kernelspec(name, str(content.get("display_name", name)), parse(ours, where=str(path)), path)


def find(name: str) -> Kernelspec:
    """The kernelspec of ours with that name. Raises SettingsError, with the nearest name, if there is none."""
    path = next((path for known, path in our_files() if known == name.lower()), None)
    if path is None:
        raise unknown_error(name)
    return read_file(path)


def find_all(on_broken: Callable[[SettingsError], None] = lambda error: None) -> list[Kernelspec]:
    """All kernelspecs of ours in this environment. `on_broken` is called with the error of each broken one."""
    found: dict[str, Kernelspec] = {}
    for name, path in our_files():
        if name in found:
            continue
        try:
            found[name] = read_file(path)
        except SettingsError as error:
            on_broken(error)
    return sorted(found.values(), key=lambda spec: spec.name)


def find_broken() -> dict[str, tuple[Path, SettingsError]]:
    """The kernelspecs of ours of which `find_all` returns none, by name: the kernel.json, and what is wrong with it."""
    found: dict[str, tuple[Path, SettingsError]] = {}
    usable = set[str]()
    for name, path in our_files():
        try:
            read_file(path)
            usable.add(name)
        except SettingsError as error:
            found.setdefault(name, (path, error))
    return {name: found[name] for name in sorted(found.keys() - usable)}


def is_known(name: str) -> tuple[bool, bool]:
    """Whether there is a kernelspec of that name, and whether those of that name are all ours."""
    paths = [path for known, path in all_files() if known == name.lower()]
    return bool(paths), all(map(is_ours, paths))


def all_for_hub() -> list[dict[str, Any]]:
    """All kernelspecs of ours, as the hub takes them to find a kernel."""
    return [spec.for_hub for spec in find_all()]


def shadowed_by(spec: Kernelspec) -> Path | None:
    """Another kernelspec of the same name that front ends of this environment use instead, if there is one."""
    first = next((path for known, path in all_files() if known == spec.name), None)
    with contextlib.suppress(SettingsError):  # it is another program's, or broken
        if first is not None and read_file(first).path.resolve() == spec.path.resolve():
            return None
    return first


def unknown_error(name: str, nodes: Iterable[str] = ()) -> SettingsError:
    """The error about a name under which we have no kernelspec, with the names we have.

    `nodes`: the names of nodes, if they could have been given, too.
    """
    for known, path in all_files():
        if known == name.lower():
            return foreign_error(name, path)
    names = sorted({known for known, _ in our_files()})
    nodes = sorted(set(nodes).difference(names))
    near = difflib.get_close_matches(name.lower(), [*names, *nodes], 1)
    if near:
        remedy = f"Did you mean {near[0]}?"
    elif names:
        remedy = "Known kernelspecs: " + ", ".join(names) + "."
        remedy += f" Known nodes: {', '.join(nodes)}." if nodes else ""
    else:
        remedy = f"There is none yet. {HOW_TO_ADD}"
    return SettingsError(f"there is no remote GPU kernelspec {quote_name(name)}", remedy=remedy)


# --- written and removed


def check_name(name: str, *, prefix: Path | str | None = None, replace: bool = False) -> None:
    """Raise SettingsError if no kernelspec may be written under that name; with `prefix`, there."""
    if problem := name_problem(name.lower()):
        raise SettingsError(
            f"{quote_name(name)} cannot be a kernelspec's name: {problem}",
            remedy="Choose a name of letters, digits, hyphens, dots and underscores with --name.",
        )
    for path in _existing(name.lower(), prefix):
        if not is_ours(path):
            raise foreign_error(name, path)
        if not replace:
            raise SettingsError(
                f"the kernelspec {name} already exists: {path}",
                remedy="Overwrite it with --replace, or choose another name with --name.",
            )


def write(
    name: str, settings: KernelSettings, *, prefix: Path | str | None = None, replace: bool = False
) -> Kernelspec:
    """Write a kernelspec with its logos. With `prefix`, write one under its share/jupyter, and change no other.

    Raises SettingsError if `check_name` refuses the name, or a file cannot be written.
    """
    name = name.lower()
    check_name(name, prefix=prefix, replace=replace)
    check(settings)
    replaced = [path for path in _existing(name, prefix) if is_ours(path)]
    if prefix is not None:
        path = path_below(Path(prefix), name)
        written = {path: _kernel_json(name, path, settings.to_json(), provisioner=True)}
    else:
        path = Path(jupyter_data_dir(), "kernels", name, "kernel.json")
        written = {path: _kernel_json(name, path, settings.to_json())}
        if _own_environment():
            pointer = {"settings": str(path)}
            written[path_below(Path(sys.prefix), name)] = _kernel_json(name, path, pointer, provisioner=True)
    for file, content in written.items():
        text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
        _write_file(file, text.encode())
        for logo in _LOGOS.iterdir():
            _write_file(file.with_name(logo.name), logo.read_bytes())
    kept = {file.resolve() for file in written}
    if not _own_environment():
        kept.add(path_below(Path(sys.prefix), name).resolve())
    for file in replaced:
        if file.resolve() not in kept:
            _remove_folder(file.parent)
    return Kernelspec(name, str(written[path]["display_name"]), settings, path)


def remove(name: str) -> list[Path]:
    """Remove the kernelspec wherever this environment finds it, and what the system keyring has stored for it. Return
    the removed folders."""
    folders = [path.parent for known, path in our_files() if known == name.lower()]
    if not folders:
        raise unknown_error(name)
    for folder in folders:
        _remove_folder(folder)
    forget(name.lower())
    return folders


def _existing(name: str, prefix: Path | str | None) -> list[Path]:
    """The kernel.json files of that name; with `prefix`, only the one below it."""
    if prefix is None:
        return [path for known, path in all_files() if known == name]
    path = path_below(Path(prefix), name)
    return [path] if path.is_file() else []


def _kernel_json(name: str, path: Path, ours: dict[str, Any], provisioner: bool = False) -> dict[str, Any]:
    """The content of a kernel.json. `path`: the one with the settings.

    jupyter_client makes CurveZMQ keys only for kernels that declare that they support them.
    """
    metadata: dict[str, Any] = {"supported_encryption": "curve", KEY: ours}
    if provisioner:
        metadata["kernel_provisioner"] = _STANZA
    return {
        "argv": [str(installed_program()), "launch", str(path.absolute()), "-f", "{connection_file}"],
        "display_name": f"Remote GPU ({name})",
        "language": "python",
        "interrupt_mode": "message",
        "metadata": metadata,
    }


def _own_environment() -> bool:
    """Whether a kernelspec under sys.prefix takes precedence over the user's, and may be written.

    Who sets JUPYTER_DATA_DIR wants a separate environment, so nothing is written outside it.
    """
    return (
        prefer_environment_over_user()
        and os.access(sys.prefix, os.W_OK)
        and not os.environ.get("JUPYTER_DATA_DIR")
    )


def _remove_folder(folder: Path) -> None:
    try:
        folder.unlink() if folder.is_symlink() else shutil.rmtree(folder)
    except OSError as error:
        raise SettingsError(
            f"{folder} cannot be removed: {error.strerror}",
            remedy="Allow writing there, or remove it by hand.",
        ) from error


def _write_file(path: Path, content: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, content)
    except OSError as error:
        raise SettingsError(
            f"{path} cannot be written: {error.strerror}",
            remedy="Free disk space or allow writing there, or choose another folder with --prefix DIR.",
        ) from error
