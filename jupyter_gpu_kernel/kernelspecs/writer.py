"""Write and remove kernelspecs."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from jupyter_core.paths import jupyter_data_dir, prefer_environment_over_user

from ..errors import SettingsError
from ..program import installed_program
from ..saved_answers import forget
from ..settings import check
from ..wire.files import replace_file
from ..wire.kernel_settings import KernelSettings
from .reader import (
    KEY,
    Kernelspec,
    all_files,
    foreign_error,
    is_ours,
    name_problem,
    our_files,
    path_below,
    quote_name,
    unknown_error,
)

_STANZA = {"provisioner_name": "remote-gpu", "config": {}}
_LOGOS = Path(__file__).parent / "logos"
"""What front ends show for a kernelspec: files with names that Jupyter looks for."""


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
    name: str,
    settings: KernelSettings,
    *,
    prefix: Path | str | None = None,
    replace: bool = False,
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
