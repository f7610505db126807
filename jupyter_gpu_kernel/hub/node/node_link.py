"""The link that a kernel uses: that of its node, or one that carries nothing while the kernel has no node."""

from __future__ import annotations

from typing import Any

from ...errors import AgentRefusal, GpuKernelError
from ...wire.stream.endpoint import Endpoint
from .attachments import Attachment
from .link import Link


class NoLink:
    """The link of a kernel that has no node yet. It carries nothing, and refuses every request."""

    state = "connecting"
    problem: GpuKernelError | None = None
    round_trip = None
    connection = ""
    last_received = float("inf")

    def __init__(self, name: str) -> None:
        """`name`: where the kernel will be started, for messages."""
        self.name = name
        self.kernel_ids: list[str] = []

    async def up(self) -> None:
        """Return at once: there is nothing to wait for."""

    until_up = up

    async def request(self, do: str, timeout: float = 30.0, **more: Any) -> dict[str, Any]:
        """Refuse, as an agent does that does not have the kernel."""
        raise AgentRefusal("the kernel has not been started yet", code="gone", hop=self.name)

    def attach(self, attachment: Attachment) -> None:
        """Do nothing: the kernel is attached when it has a node."""

    def release(self, attachment: Attachment) -> None:
        """Do nothing, as nothing was attached."""

    def pump(self, endpoint: Endpoint) -> None:
        """Write nothing, as there is no node."""


NodeLink = Link | NoLink
"""What a kernel uses to reach its node."""


async def stop_kernel(link: NodeLink, kernel_id: str, why: str, **more: Any) -> bool:
    """Have the agent end a kernel. Return False if the agent has not answered. `more`: see the request `stop`."""
    try:
        await link.request("stop", kernel=kernel_id, why=why, **more)
    except AgentRefusal:  # the kernel has ended by itself, or another computer has it
        return True
    except GpuKernelError:
        return False
    return True
