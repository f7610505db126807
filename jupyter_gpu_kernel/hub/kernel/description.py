"""How a remote kernel is described to clients, and what it knows of the session of its launcher."""

from __future__ import annotations

from typing import Any, Protocol

from ...errors import GpuKernelError
from ...wire.messages import Message
from .states import LinkState


class Session(Protocol):
    """Finds out which notebook the kernel's launcher belongs to: see `vscode_sessions.py`."""

    @property
    def notebook(self) -> str:
        """The notebook, "" while it is not known."""

    @property
    def from_vs_code(self) -> bool:
        """Whether a request was seen that only VS Code sends."""

    def observe(self, remote: Any, request: Message) -> None:
        """Take note of a request on the shell channel of this RemoteKernel."""


def describe(
    settings: dict[str, Any],
    status: dict[str, Any],
    hop: str,
    link: LinkState,
    problem: GpuKernelError | None,
    away_since: float,
) -> dict[str, Any]:
    """Return {…the keeper's status, "kernel_id" (Jupyter's), "link", "hop", "error", "away_since"}, for clients."""
    described = {
        "node": hop,
        "name": settings.get("name", ""),
        **status,
        "link": link.value,
        "hop": hop,
        "error": problem.to_json() if problem else None,
        "away_since": away_since if link is LinkState.AWAY and away_since else None,
        "kernel_id": settings.get("kernel_id", ""),
    }
    if settings.get("hosts"):  # where it is now, for another hub, which adopts it
        described |= {key: settings[key] for key in ("route", "python")}
    return described
