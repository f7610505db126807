"""What a kernel uses of its link: the interface, and the link of a kernel that has no node yet."""

from __future__ import annotations

from typing import Any, Protocol

from ...errors import AgentRefusal, GpuKernelError
from ...wire.stream.endpoint import Endpoint
from .attachments import Attachment


class NodeLink(Protocol):
    """`link.py: Link` is a link to a node; `NoLink` stands for one that does not exist yet."""

    name: str
    """The node's name, for messages."""

    @property
    def state(self) -> str:
        """`connecting`, `up`, `away` or `failed`."""

    @property
    def problem(self) -> GpuKernelError | None:
        """Why the link is not up, if that is known."""

    @property
    def kernel_ids(self) -> list[str]:
        """The ids of the kernels that are attached, or about to be."""

    @property
    def round_trip(self) -> float | None:
        """The seconds that a message takes to the node and back; None if that is not known."""

    @property
    def connection(self) -> str:
        """What speaks SSH, and the verified host keys, in words; "" if that is not known."""

    @property
    def last_received(self) -> float:
        """The time of the event loop at which something was received from the node for the last time."""

    async def up(self) -> None:
        """Return once requests can be sent; raise the reason if they cannot be."""

    async def until_up(self) -> None:
        """Return once requests can be sent, over failed attempts, too; raise the reason if the link was given up."""

    async def request(self, do: str, timeout: float = 30.0, **more: Any) -> dict[str, Any]:
        """Return the agent's answer to a request."""

    def attach(self, attachment: Attachment) -> None:
        """Carry this kernel from now on."""

    def release(self, attachment: Attachment) -> None:
        """Stop to carry this kernel."""

    def pump(self, endpoint: Endpoint) -> None:
        """Write what attachments have to send, as this endpoint has something new."""


class NoLink:
    """The link of a kernel that has no node yet. It carries nothing, and refuses every request."""

    state = "connecting"
    problem = None
    round_trip = None
    connection = ""
    last_received = 0.0

    def __init__(self, name: str) -> None:
        """`name`: where the kernel will be started, for messages."""
        self.name = name
        self.kernel_ids: list[str] = []

    async def up(self) -> None:
        """There is nothing to wait for."""

    until_up = up

    async def request(self, do: str, timeout: float = 30.0, **more: Any) -> dict[str, Any]:
        """Refuse, as an agent does that does not have the kernel."""
        raise AgentRefusal("the kernel has not been started yet", code="gone", hop=self.name)

    def attach(self, attachment: Attachment) -> None:
        """The kernel is attached when it has a node."""

    def release(self, attachment: Attachment) -> None:
        """Nothing was attached."""

    def pump(self, endpoint: Endpoint) -> None:
        """Nothing can be written."""
