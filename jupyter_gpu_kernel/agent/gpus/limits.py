"""The site's limits: how many GPUs a user has, and how long a kernel keeps them. Pure: it reads and takes nothing."""

from __future__ import annotations

from typing import Any, Mapping, NamedTuple, Optional

from ..policy import SETTING
from .sharing.queue_view import gpu_count


class SiteLimits(NamedTuple):
    """The limits of the site's policy (policy.py); None: no limit."""

    gpus_per_user: Optional[int] = None
    longest_hold: Optional[float] = None  # seconds

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> SiteLimits:
        """Return the limits that the policy has added to a kernel's settings."""
        site = settings.get(SETTING) or {}
        return cls(site.get("gpus_per_user"), site.get("longest_hold"))

    def wait_reason(self, count: int, others: int) -> str:
        """Why a kernel that wants `count` GPUs must wait, whatever is free; "" if it need not.

        `others`: the GPUs of this user's other kernels, and of those that get theirs first.
        """
        most = self.gpus_per_user
        if most is None or others + count <= most:
            return ""
        return (
            f"The site's policy allows a user {gpu_count(most)} on this node, "
            f"and your other kernels have {others} or get them first."
        )
