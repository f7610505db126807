"""The report of `check --report`: what a maintainer needs to know of one kernelspec, as text for an issue.

The names of the user and of the hops, addresses, the paths of homes, and the values of settings that may be private
are replaced. Names of other users and machines, which a node may print, stay: the user reads the report before sending.
"""

from __future__ import annotations

import getpass
import platform
import re
import socket
from collections.abc import Iterable, Sequence
from importlib import metadata
from typing import Any

from ...adding import hop_names
from ...wire.kernel_settings import KernelSettings
from ...wire.texts import printable
from . import tables

_PACKAGES = (
    *("jupyter-gpu-kernel", "ipykernel", "jupyter_client", "jupyter_server", "jupyterlab", "notebook"),
    *("paramiko", "pyzmq", "tornado", "traitlets"),
)
_SHOWN = {"transport", "sigterm", "spare", "gpu_type", "min_memory", "time", "mem", "warn_signal", "way"}
"""Settings whose texts are shown; of the others only numbers are."""
_PRIVATE = (
    (re.compile(r"(/\w+)?[/\\](home|Users)[/\\][^/\\\s]+"), "~"),
    (re.compile(r"\b\d{1,3}(\.\d{1,3}){3}\b|\b[0-9a-f]{1,4}(:[0-9a-f]{0,4}){3,7}\b"), "<address>"),
    (re.compile(r"SHA256:[\w+/=]+"), "SHA256:…"),
)


def report(settings: KernelSettings, steps: Sequence[dict[str, Any]], story: Sequence[dict[str, Any]]) -> str:
    """Return the report. steps: Of the operation `check`. story: Of the newest kernel, [] without any."""
    remedies = [f"{row['step']}: {row['remedy']}" for row in steps if row["remedy"]]
    parts = {
        "Versions": "\n".join(_versions()),
        "Settings": "\n".join(_settings(settings)),
        "Steps": "\n".join([tables.check(steps), *remedies]),
        "The newest kernel": tables.story(story) if story else "none",
    }
    text = "\n\n".join(f"### {title}\n\n```\n{part}\n```" for title, part in parts.items())
    return _without_names(printable(text), settings)


def _versions() -> Iterable[str]:
    yield f"Python {platform.python_version()} on {platform.platform()}"
    for name in _PACKAGES:
        try:
            yield f"{name} {metadata.version(name)}"
        except metadata.PackageNotFoundError:
            pass


def _settings(settings: KernelSettings) -> Iterable[str]:
    yield f"hops: {len(settings.route)}, hosts: {len(settings.hosts)}, commands: {len(settings.via)}"
    for name, value in settings.to_json().items():
        if name not in ("route", "hosts", "via"):
            yield f"{name}: {value if name in _SHOWN or isinstance(value, int | float) else '…'}"


def _without_names(text: str, settings: KernelSettings) -> str:
    """Replace the names of this computer, of the user, and of the hops with their users."""
    names = {getpass.getuser(): "<user>", socket.gethostname(): "<this computer>"}
    for number, hop in enumerate([*hop_names(settings), *settings.hosts], 1):
        user, _, host = re.sub(r":\d+$", "", hop).rpartition("@")
        names |= {hop: f"<hop {number}>", host: f"<hop {number}>", user: "<user>"}
    for name in sorted(filter(None, names), key=len, reverse=True):
        text = re.sub(rf"(?<![\w-]){re.escape(name)}(\.[a-z][\w.-]*\w)?(?![\w-])", names[name], text)
    for pattern, replacement in _PRIVATE:
        text = pattern.sub(replacement, text)
    return text
