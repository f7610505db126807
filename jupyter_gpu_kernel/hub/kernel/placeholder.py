"""The stand-in: says what a front end must hear while no kernel can answer. Never claims what is not known.

It answers kernel_info from what the kernel itself once said, greets new subscribers of iopub, and ends the cells of a
kernel that cannot answer any more.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from ...wire.answers import Answers
from ...wire.compose import make
from ...wire.messages import Channel, Message
from .requests import type_of

_INFO = 64 * 1024
"""Bytes of a kernel_info_reply that is remembered."""
_STATES = ("starting", "restarting", "idle", "busy")
_MOST = 1000
"""Requests at work that are remembered; of more the oldest are forgotten."""


class Placeholder:
    """`answers(request)` says whether it did; `saw` learns from what the kernel says; `welcome` greets."""

    def __init__(
        self, say: Callable[[Message], None], known: bytes | None, learn: Callable[[bytes], None]
    ) -> None:
        """`known`: what a kernel like this one said of itself before; `learn` hears what this one says."""
        self._say = say
        self._kernel_info = known
        self._learn = learn
        self._session = ""
        self._answers = Answers(self._make)
        self.state = "starting"
        self._reported_busy = (
            False  # front ends have heard a busy of no request, so no idle follows by itself
        )
        self._busy_with: dict[str, None] = {}  # msg_ids: while a cell runs, requests on control come and go

    @property
    def count(self) -> int:
        """The number of the last cell that front ends have heard of."""
        return self._answers.count

    def now(self, state: str) -> str:
        """The state of a kernel of which the keeper has told this one: what it says itself is newer."""
        return self.state if state in ("idle", "busy") else state

    def saw(self, message: Message) -> None:
        """A message of the real kernel on its way to a front end."""
        header = message.parts[0]
        if message.channel is Channel.IOPUB and b'"status"' in header:
            self._heard_state(
                str(message.content().get("execution_state")), str(message.parent().get("msg_id") or "")
            )
        elif b'"kernel_info_reply"' in header and len(message.parts[3]) <= _INFO:
            message.content()  # MessageError: what is remembered is JSON
            self._kernel_info = message.parts[3]
            self._learn(message.parts[3])
            self._session = str(message.header().get("session", ""))
        if b'"status"' in header or b'"execute_' in header:
            self._answers.observe(message)

    def answers(self, request: Message) -> bool:
        """kernel_info is answered, once it is known, in the state the kernel was last heard in."""
        if self._kernel_info is None or request.header().get("msg_type") != "kernel_info_request":
            return False
        self._answers.reply(request, json.loads(self._kernel_info))
        self._still_busy()
        return True

    def fails(self, cells: list[Message], why: str) -> None:
        """Nobody is left who could answer these: they end with an error."""
        self._busy_with.clear()
        for request in cells:
            self._answers.fail(request, "DeadKernelError", why)

    def refuses(self, request: Message, why: str) -> None:
        """A request on the control channel, of a front end that does not own the kernel."""
        if (
            request.header().get("msg_type") == "shutdown_request"
        ):  # it leaves; the kernel's end is not its to say
            restart = bool(request.content().get("restart"))
            self._answers.reply(request, {"status": "ok", "restart": restart})
        else:
            self._answers.fail(request, "NotOwner", why)
        self._still_busy()

    def rejects(self, request: Message, why: str) -> None:
        """There is no room for a request; messages that have no answer are dropped, with a word to the user."""
        if type_of(request).endswith("_request"):
            self._answers.fail(request, "QueueFull", why)
            self._still_busy()
        else:
            content = {"name": "stderr", "text": f"{type_of(request)} was dropped: {why}\n"}
            self._make(Channel.IOPUB, 0, "stream", content, request.parts[0])

    def agrees(self, request: Message) -> None:
        """To an interrupt of what waits here, or of what is interrupted when the link is back."""
        self._answers.reply(request, {"status": "ok"})
        self._still_busy()

    def cancels(self, cells: list[Message]) -> None:
        """An interrupt reached them before they were sent. The first one takes the others along if it asks for that."""
        for cell in cells:
            if cell is not cells[0] and cells[0].content().get("stop_on_error", True):
                self._answers.abort(cell)
            else:
                self._answers.fail(cell, "KeyboardInterrupt", "it had not been sent to the node yet")

    def announces(self, request: Message, text: str) -> None:
        """In the cell that is asked for."""
        content: dict[str, Any] = {"data": {"text/plain": text}, "metadata": {}, "transient": {}}
        self._make(Channel.IOPUB, 0, "display_data", content, request.parts[0])

    def _heard_state(self, state: str, parent: str) -> None:
        if state not in _STATES:
            return
        if state == "idle" and parent:
            self._busy_with.pop(parent, None)
        elif state != "busy":
            self._busy_with.clear()  # another process, or the keeper reports that the kernel does nothing
        elif parent:  # else the keeper reports it, and no idle for that will follow
            self._busy_with[parent] = None
            if len(self._busy_with) > _MOST:
                del self._busy_with[next(iter(self._busy_with))]
        self.state = "busy" if self._busy_with else state
        if not parent:
            self._reported_busy = state == "busy"
        elif (
            self.state == "idle" and self._reported_busy
        ):  # JupyterLab passes over the idle of a kernel_info_request
            self._status("idle")

    def became(self, state: str) -> None:
        """The keeper says so: of a kernel that has just come up front ends have heard nothing yet."""
        if state in ("starting", "idle"):  # what ended while the front ends were away they may not have heard
            self._busy_with.clear()
        if state != self.state and (state == "starting" or self.state == "starting"):
            self.state = state
            self._status(state)
        elif state == "idle":  # front ends hear it behind the output that may still be on its way
            self.state = state

    def switched(self) -> None:
        """The front ends have another kernel: what the one before was busy with is over."""
        self._busy_with.clear()

    def welcome(self) -> None:
        """For every new subscriber: the welcome that newer protocols wait for, and the kernel's state."""
        self._make(Channel.IOPUB, 0, "iopub_welcome", {"subscription": ""}, b"{}")
        self._status(self.state)

    def _still_busy(self) -> None:
        """A request is over; the kernel may be busy all the same."""
        if self.state == "busy":
            self._status("busy")

    def _status(self, state: str) -> None:
        self._reported_busy = state == "busy"
        self._make(Channel.IOPUB, 0, "status", {"execution_state": state}, b"{}")

    def _make(
        self, channel: Channel, client: int, msg_type: str, content: dict[str, Any], parent: bytes
    ) -> None:
        self._say(Message(channel, client, make(msg_type, content, parent, self._session)))
