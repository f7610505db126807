"""The site's limit for the GPUs of one user. Pure: it reads and takes nothing."""

from __future__ import annotations

from ..kernel_settings import SiteRules
from .sharing.queue_view import gpu_count


def wait_reason(rules: SiteRules, count: int, others: int) -> str:
    """Why a kernel that wants `count` GPUs must wait, whatever is free; "" if it need not.

    `others`: the GPUs of this user's other kernels, and of those that get theirs first.
    """
    most = rules.gpus_per_user
    if most is None or others + count <= most:
        return ""
    return (
        f"The site's policy allows a user {gpu_count(most)} on this node, "
        f"and your other kernels have {others} or get them first."
    )
