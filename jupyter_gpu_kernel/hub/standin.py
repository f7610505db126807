"""The stand-in: says what a front end must hear while no kernel can answer. Never claims what is not known.

It answers kernel_info from what the kernel itself once said, and greets new subscribers of iopub.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from ..wire.jupyter import make
from ..wire.messages import Channel, Message


class StandIn:
    """`answers(request)` says whether it did; `saw` learns from what the kernel says; `welcome` greets."""

    def __init__(
        self, say: Callable[[Message], None], known: bytes | None, learn: Callable[[bytes], None]
    ) -> None:
        """`known`: what a kernel like this one said of itself before; `learn` hears what this one says."""
        self._say = say
        self._kernel_info = known
        self._learn = learn
        self._session = ""
        self.state = "starting"

    def saw(self, message: Message) -> None:
        """A message of the real kernel on its way to a front end."""
        if message.channel is Channel.IOPUB:
            if b'"status"' in message.parts[0]:
                self.state = str(message.content().get("execution_state", self.state))
        elif b'"kernel_info_reply"' in message.parts[0]:
            self._kernel_info = message.parts[3]
            self._learn(message.parts[3])
            self._session = str(message.header().get("session", ""))

    def answers(self, request: Message) -> bool:
        """kernel_info is answered, once it is known, in the state the kernel was last heard in."""
        if self._kernel_info is None or request.header().get("msg_type") != "kernel_info_request":
            return False
        header = request.parts[0]
        content: dict[str, Any] = json.loads(self._kernel_info)
        self._status("busy", header)
        reply = make("kernel_info_reply", content, header, self._session)
        self._say(Message(request.channel, request.client, reply))
        self._status(self.state if self.state == "busy" else "idle", header)
        return True

    def became(self, state: str) -> None:
        """The keeper says so: of a kernel that has just come up front ends have heard nothing yet."""
        if state != self.state and (state == "starting" or self.state == "starting"):
            self.state = state
            self._status(state, b"{}")

    def welcome(self) -> None:
        """For every new subscriber: the welcome that newer protocols wait for, and the kernel's state."""
        self._say(
            Message(Channel.IOPUB, 0, make("iopub_welcome", {"subscription": ""}, b"{}", self._session))
        )
        self._status(self.state, b"{}")

    def _status(self, state: str, parent: bytes) -> None:
        parts = make("status", {"execution_state": state}, parent, self._session)
        self._say(Message(Channel.IOPUB, 0, parts))
