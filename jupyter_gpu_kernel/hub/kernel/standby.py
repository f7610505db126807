"""A kernel with several hosts: on the host where it was created, it is on standby until the hub confirms it."""

from __future__ import annotations

from typing import Any

from ...wire.messages import Lane, keeper_message
from ..kernel_settings import KernelSettings
from .kernel_state import KernelState
from .messages.relay import HubRelay
from .states import LinkState, Phase


class Standby:
    """Whether one kernel may still move to another host, and the hub's decision that the kernel stays."""

    def __init__(self, kernel: KernelState, relay: HubRelay, settings: KernelSettings) -> None:
        self._kernel = kernel
        self._relay = relay
        self.begin(settings)

    def begin(self, settings: KernelSettings) -> None:
        """The kernel is created with these settings, for the first time or anew."""
        self.unconfirmed = bool(settings.standby)
        """Whether the keeper runs no cell of the user until the hub confirms the kernel."""
        self._confirmed = False

    @property
    def waits_for_host(self) -> bool:
        """Whether the kernel's cells wait for GPUs, on this host or another one."""
        kernel = self._kernel
        return self.unconfirmed and kernel.status["state"] == "waiting" and kernel.phase is Phase.RUN

    @property
    def can_move(self) -> bool:
        """Whether a kernel on another host can replace this kernel, which has run no cell of its user."""
        return self.waits_for_host and self._relay.can_move

    def reported(self, status: dict[str, Any]) -> None:
        """The keeper has reported this status."""
        self.unconfirmed = bool(status.get("standby")) and not self._confirmed

    def renew(self, elsewhere: str) -> None:
        """Let the kernel wait on. `elsewhere`: what the waiting cell shows of the other hosts."""
        if self._kernel.link_state is LinkState.UP:
            self._relay.send(Lane.URGENT, keeper_message(do="standby", elsewhere=elsewhere))

    def confirm(self) -> None:
        """The kernel stays on this host, and runs its user's cells there."""
        if self.unconfirmed:
            self.settled()
            self._relay.settle()
            self._relay.send(Lane.URGENT, keeper_message(do="confirm"))

    def settled(self) -> None:
        """The kernel is confirmed."""
        self.unconfirmed, self._confirmed = False, True

    def confirm_if_waiting(self) -> None:
        """No front end is left that would wait on several hosts: let the kernel wait on its present host only."""
        if self.waits_for_host and self._kernel.link_state is LinkState.UP:
            self.confirm()
