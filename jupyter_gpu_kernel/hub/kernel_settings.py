"""The settings of kernels as clients of the hub send them. They are parsed once, where a call comes in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ..errors import SettingsError
from ..wire.fields import FieldError
from ..wire.kernel_settings import KernelSettings as KernelSettings

WARN_BEFORE = 300.0
"""Seconds before its time limit at which a job gets the warning signal, unless the setting says otherwise."""


def settings_from(data: Mapping[str, Any]) -> KernelSettings:
    """Read a client's object. Raises SettingsError for a value of a wrong type."""
    try:
        return KernelSettings.from_json(data)
    except FieldError as error:
        raise SettingsError(str(error)) from None


class Spec(NamedTuple):
    """A kernelspec: its settings and its name, "" if no kernelspec is known."""

    settings: KernelSettings
    name: str = ""

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Spec:
        """Read a client's {"settings", "name"}."""
        return cls(settings_from(data["settings"]), str(data.get("name") or ""))
