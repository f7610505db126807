"""The settings of one kernel on this node: what the hub sends for it, as the site allows it.

They are parsed once, where they come in. A process that is started for the kernel gets them as JSON.
"""

from __future__ import annotations

import sys
from typing import Any, Callable, Mapping

from ..wire.kernel_settings import KernelSettings as KernelSettings


def settings_from(data: Mapping[str, Any]) -> KernelSettings:
    """Read a hub's object; without a Python, the kernel runs on the agent's own. Raises FieldError for a value of a
    wrong type."""
    settings = KernelSettings.from_json(data)
    return settings if settings.python else settings.replace(python=sys.executable)


class CurrentSettings:
    """The settings of a running kernel. Some change while it runs; `on_change` is called after each change."""

    def __init__(self, settings: KernelSettings, on_change: Callable[[], None] = lambda: None) -> None:
        self.now = settings
        self._on_change = on_change

    def change(self, **changes: Any) -> None:
        """Replace some of the values."""
        self.now = self.now.replace(**changes)
        self._on_change()
