"""The files `kernel.json`: where they are, which names their folders can have, and whether they are ours.

This module does not know the settings in them.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jupyter_core.paths import jupyter_path

from ..errors import SettingsError

KEY = "jupyter_gpu_kernel"
"""The key of our settings in a kernelspec's metadata."""
_NAME = re.compile(r"[a-z0-9._-]+")  # jupyter_client's rule
_RESERVED = re.compile(r"(con|prn|aux|nul|(com|lpt)\d)(\..*)?")  # devices of Windows, with any suffix
_LONGEST_NAME = 100  # a name is the name of a folder, and front ends show it


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
    """The content of a kernel.json. SettingsError if it cannot be read, or is not a kernelspec."""
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
