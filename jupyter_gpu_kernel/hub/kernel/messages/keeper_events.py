"""The events that a keeper sends besides the kernel's messages: the kernel's state, the begin and end of a replay, and
what the keeper has to be told."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from ....hub import validate
from ....wire.messages import Lane, Message, MessageError, keeper_message
from .pacing import Pacer
from .placeholder import Placeholder
from .relayed_kernel import RelayedKernel
from .request_table import RequestTable

_RUNS = ("starting", "waiting", "idle", "busy")
"""The states in which the placeholder answers for the kernel."""


class KeeperEvents:
    """Validates each event, and passes it on to the objects that need it."""

    def __init__(
        self,
        kernel: RelayedKernel,
        pacer: Pacer,
        placeholder: Placeholder,
        table: RequestTable,
        send: Callable[[Lane, Message], None],
        log: logging.Logger,
    ) -> None:
        """`table`: the requests that the keeper must answer. `send`: to the keeper."""
        self._kernel = kernel
        self._pacer = pacer
        self._placeholder = placeholder
        self._table = table
        self._send = send
        self._log = log

    def handle(self, message: Message, node: str) -> None:
        """Handle the event that the keeper on this node has sent."""
        try:
            event = {"event": "", **validate.keeper_event(message.content())}
        except (validate.Malformed, MessageError) as error:
            kernel_id = self._kernel.kernel_id
            text = "%s: kernel %s: ignored a malformed event of the keeper: %s"
            return self._log.warning(text, node, kernel_id, error)
        kind = event.pop("event")
        if kind == "mark":  # these replies were delivered before, here or by a hub that was killed
            for reply in event["replies"]:
                self._send(Lane.ORDERED, keeper_message(do="failure_seen", reply=reply))
        elif kind == "successor":  # it does not know which cells its killed predecessor got
            self.send_unanswered()
        elif kind == "replay":
            (self._pacer.begin_replay if event["state"] == "begin" else self._pacer.end_replay)()
        elif kind == "state" and event["state"]:
            self._state(event)

    def send_unanswered(self) -> None:
        """Send the keeper a list of the cells that have no reply."""
        cells, count = self._table.describe_cells(), self._placeholder.count
        self._send(Lane.ORDERED, keeper_message(do="unanswered", cells=cells, count=count))

    def _state(self, event: dict[str, Any]) -> None:
        if event.get("cause"):
            event["cause"] = f"the node says: {event['cause']}"
        if event["state"] in _RUNS:
            self._placeholder.update_state(event["state"])
        self._kernel.status_reported(event)
