"""The stand-in: says what a front end must hear while no kernel can answer. Never claims what is not known.

It answers kernel_info from what the kernel itself once said, greets new subscribers of iopub, and ends the cells of a
kernel that cannot answer any more.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from ..wire.jupyter import error_content, error_reply, make
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
        self._ends(header)
        return True

    def fails(self, cells: list[Message], why: str) -> None:
        """Nobody is left who could answer these: they end with an error."""
        for request in cells:
            header = request.parts[0]
            error = make("error", error_content("DeadKernelError", why), header, self._session)
            self._say(Message(Channel.IOPUB, 0, error))
            reply = make("execute_reply", error_reply("DeadKernelError", why), header, self._session)
            self._say(Message(request.channel, request.client, reply))
            self._status("idle", header)

    def refuses(self, request: Message, why: str) -> None:
        """A request on the control channel, of a front end that does not own the kernel."""
        header = request.parts[0]
        kind = str(request.header().get("msg_type")).replace("request", "reply")
        content: dict[str, Any] = dict(error_content("NotOwner", why), status="error")
        if kind == "shutdown_reply":  # it leaves; whether the kernel ends is not its to say
            content = {"status": "ok", "restart": bool(request.content().get("restart"))}
        self._status("busy", header)
        self._say(Message(Channel.CONTROL, request.client, make(kind, content, header, self._session)))
        self._ends(header)

    def announces(self, request: Message, text: str) -> None:
        """In the cell that is asked for."""
        content: dict[str, Any] = {"data": {"text/plain": text}, "metadata": {}, "transient": {}}
        self._say(Message(Channel.IOPUB, 0, make("display_data", content, request.parts[0], self._session)))

    def became(self, state: str) -> None:
        """The keeper says so: of a kernel that has just come up front ends have heard nothing yet."""
        if state != self.state and (state == "starting" or self.state == "starting"):
            self.state = state
            self._status(state, b"{}")

    def welcome(self) -> None:
        """For every new subscriber: the welcome that newer protocols wait for, and the kernel's state."""
        welcome = make("iopub_welcome", {"subscription": ""}, b"{}", self._session)
        self._say(Message(Channel.IOPUB, 0, welcome))
        self._status(self.state, b"{}")

    def _ends(self, header: bytes) -> None:
        """The request is over; the kernel may be busy all the same."""
        self._status("idle", header)
        if self.state == "busy":
            self._status("busy", b"{}")

    def _status(self, state: str, parent: bytes) -> None:
        parts = make("status", {"execution_state": state}, parent, self._session)
        self._say(Message(Channel.IOPUB, 0, parts))
