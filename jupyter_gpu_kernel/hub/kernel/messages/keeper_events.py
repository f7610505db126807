"""The events that a keeper sends besides the kernel's messages: the kernel's state, the begin and end of a replay, and
what the keeper has to be told."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ....hub import validate
from ....wire.messages import Lane, Message, MessageError, keeper_message
from .pacing import Pacer
from .placeholder import Placeholder
from .relayed_kernel import RelayedKernel
from .request_table import RequestTable

_RUNS = ("starting", "waiting", "idle", "busy")
"""The states in which the placeholder answers for the kernel."""


@dataclass(frozen=True)
class KeeperEvents:
    """Validates each event, and passes it on to the objects that need it. `table`: the requests that the keeper must
    answer. `send`: sends to the keeper."""

    kernel: RelayedKernel
    pacer: Pacer
    placeholder: Placeholder
    table: RequestTable
    send: Callable[[Lane, Message], None]
    log: logging.Logger

    def handle(self, message: Message, node: str) -> None:
        """Handle the event that the keeper on this node has sent."""
        try:
            event = {"event": "", **validate.keeper_event(message.content())}
        except (validate.Malformed, MessageError) as error:
            kernel_id = self.kernel.kernel_id
            text = "%s: kernel %s: ignored a malformed event of the keeper: %s"
            return self.log.warning(text, node, kernel_id, error)
        kind = event.pop("event")
        if kind == "mark":  # these replies were delivered before, here or by a hub that was killed
            for reply in event["replies"]:
                self.send(Lane.ORDERED, keeper_message(do="failure_seen", reply=reply))
        elif kind == "successor":  # it does not know which cells its killed predecessor got
            self.send_unanswered()
        elif kind == "replay":
            (self.pacer.begin_replay if event["state"] == "begin" else self.pacer.end_replay)()
        elif kind == "state" and event["state"]:
            self._state(event)

    def send_unanswered(self) -> None:
        """Send the keeper a list of the cells that have no reply."""
        cells, count = self.table.describe_cells(), self.placeholder.count
        self.send(Lane.ORDERED, keeper_message(do="unanswered", cells=cells, count=count))

    def _state(self, event: dict[str, Any]) -> None:
        if event.get("cause"):
            event["cause"] = f"the node says: {event['cause']}"
        if event["state"] in _RUNS:
            self.placeholder.update_state(event["state"])
        self.kernel.status_reported(event)
