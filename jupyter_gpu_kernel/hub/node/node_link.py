"""The link of a kernel, as the kernel sees it: a real one, or the one of a kernel that has no node yet."""

from __future__ import annotations

from typing import Any, Protocol

from ...errors import AgentRefusal, GpuKernelError
from ...wire.endpoint import Endpoint
from .attachments import Attachment


class NodeLink(Protocol):
    """`link.py: Link` is the one to a node."""

    name: str
    """The node in messages."""

    @property
    def state(self) -> str:
        """`connecting`, `up`, `away` or `failed`."""

    @property
    def problem(self) -> GpuKernelError | None:
        """Why it is not up, if that is known."""

    @property
    def kernel_ids(self) -> list[str]:
        """The kernels that are attached, or about to be."""

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

    def hand_over(self, attachment: Attachment, to: Attachment) -> None:
        """Another attachment, which has taken over the endpoint, has this one's place."""

    def release(self, attachment: Attachment) -> None:
        """Stop to carry this kernel."""

    def pump(self, endpoint: Endpoint) -> None:
        """Write what attachments have to send, of which this endpoint has something new."""


class NoLink:
    """The link of a kernel that has no node yet: it carries nothing, and its agent has no kernel."""

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
        """There is no agent: refuse, as an agent without the kernel does."""
        raise AgentRefusal("the kernel has not been started yet", code="gone", hop=self.name)

    def attach(self, attachment: Attachment) -> None:
        """It is attached when it has a node."""

    def hand_over(self, attachment: Attachment, to: Attachment) -> None:
        """There is nothing to hand over."""

    def release(self, attachment: Attachment) -> None:
        """Nothing was attached."""

    def pump(self, endpoint: Endpoint) -> None:
        """Nothing can be written."""
