"""The pure core of a keeper: what it decides about its kernel's messages, without any input or output.

`handle` takes what has happened, and returns what is to be done, in this order. The same events have the same effects:
the core has no clock, no random numbers and no files, and calls nothing outside.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Sequence, Type

from ...wire.fields import FieldError
from ...wire.kernel_messages.compose import is_user_cell
from ...wire.messages import Channel, Lane, Message, MessageError
from ..kernel_settings import KernelSettings
from ..log.requests import request_type
from . import events
from .effects import CommandReceived, Effect, InputRejected, RequestReceived
from .log import Log
from .message_limit import limit_size
from .relay import Relay


class KeeperCore:
    """`handle` each event, and carry out the effects. The other attributes are there to be read."""

    def __init__(self, log: Log, settings: KernelSettings, node: str) -> None:
        """`settings`: the kernel's. `node`: the name of this machine."""
        self.log = log
        self.relay = relay = Relay(log, settings, node)
        self._handlers: Dict[Type[Any], Callable[..., object]] = {
            events.HubAttached: self._hub_attached,
            events.HubDetached: log.hub_detached,
            events.HubReads: log.hub_reads,
            events.QueueRead: log.queue_read,
            events.HubSent: self._hub_sent,
            events.Tell: log.send,
            events.FrontEndReturned: relay.front_end_returned,
            events.InterruptRequested: relay.interrupt,
            events.HistoryRead: relay.reattach.history_read,
            events.MissedRequested: relay.show_missed,
            events.KernelStarting: relay.kernel_starting,
            events.LogCompleted: lambda is_complete: log.add("set_complete", is_complete),
            events.KernelUp: relay.kernel_up,
            events.KernelRestarting: relay.kernel_restarting,
            events.KernelGone: relay.kernel_gone,
            events.KernelEnded: relay.kernel_ended,
            events.KernelSent: self._kernel_sent,
            events.CodePinned: relay.code_pinned,
            events.GpusChanged: relay.gpus_changed,
            events.CellsFailed: relay.fail_cells,
            events.GreetingChanged: relay.greeting_text.change,
            events.TimerDue: relay.timer_due,
        }

    def __repr__(self) -> str:
        return f"<KeeperCore {self.relay!r} {self.log!r}>"

    def validate(self) -> None:
        """Raise AssertionError if something is not as it must be after every event."""
        assert not self.log.effects, f"effects that nobody has seen: {self.log.effects}"
        self.relay.validate()

    def handle(self, event: events.Event, monotonic: float, time: float) -> List[Effect]:
        """Return the effects of an event, in the order in which they have to be carried out.

        monotonic, time: When the event has happened, in seconds: by a monotonic clock, and since 1970.
        """
        self.log.runtime.clocks = (monotonic, time)
        self._handlers[type(event)](*event)
        effects = list(self.log.effects)
        self.log.effects.clear()
        return effects

    def _hub_attached(self, hub: str, counts: Sequence[int]) -> None:
        self.log.hub_attached(hub, counts)
        mark = self.log.state.requests.aborts.unseen_failures()
        if mark is not None:
            self.log.send(Lane.ORDERED, mark)

    def _hub_sent(self, counts: Sequence[int], message: Message) -> None:
        if not self.log.receive(counts, message):
            return
        if message.channel is Channel.KEEPER:
            return self.log.effects.append(CommandReceived(message))
        try:
            request_type(message)
        except (FieldError, MessageError) as error:  # the kernel would ignore it, too
            return self.log.effects.append(InputRejected(error))
        self.log.effects.append(RequestReceived(message, is_user_cell(message)))
        if self.relay.admit(message):
            self.relay.handle_request(message)

    def _kernel_sent(self, message: Message) -> None:
        try:
            for one in limit_size(self.log.runtime, message):
                self.relay.handle_kernel_message(one)
        except Exception as error:  # a cell can make its kernel send anything
            self.log.effects.append(InputRejected(error))
