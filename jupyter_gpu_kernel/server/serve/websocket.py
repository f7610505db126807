"""The websocket of one page. While no page is there, nothing reads the kernel's messages, which stay in its log; the
next page gets them, behind what earlier pages have got of the cell, as VS Code may not have saved that.

A page confirms by the pong to a ping that is sent behind a message. VS Code resumes the output of the last cell
after its window was loaded anew: when a message of that cell comes, VS Code begins to listen, and shows what comes
later. So a page that follows another one gets a busy status of the cell a few times, then a `clear_output`, and then
the messages.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from jupyter_server.services.kernels.connection.base import deserialize_msg_from_ws_v1
from jupyter_server.services.kernels.connection.channels import ZMQChannelsWebsocketConnection
from jupyter_server.services.kernels.websocket import KernelWebsocketHandler
from tornado.web import Finish
from traitlets import Float

from ...hub.background import BackgroundTasks
from ...hub.kernel.vscode.notebook import is_file, title_of
from ...wire.kernel_messages.compose import is_user_cell
from ...wire.messages import Channel, Message, id_of
from .delivery import CellDelivery

CONFIRM = b"confirm"
_MOST_HELD = 1000
"""Messages of a cell that are read before the page is ready."""
_BUSY_INTERVAL = 0.5
"""Seconds between two busy statuses: the first may come before VS Code listens."""


class PageConnection(ZMQChannelsWebsocketConnection):
    """Joins the websocket to the kernel's sockets."""

    resume_pause = Float(3.0, config=True, help="Seconds in which a new window of VS Code begins to listen.")
    kernel_info_timeout = Float(60.0, config=True, help="Seconds in which a kernel answers a new page.")
    ping_interval = Float(30.0, config=True, help="Seconds between pings to a page.")
    delivery: CellDelivery
    """What this page, or the page before it, has not received of its last cell."""
    _tasks = BackgroundTasks()
    _to_confirm = 0
    """How many messages the page is asked to confirm."""
    _resumes = _holds = False
    """Whether this page has an earlier page's sockets; whether the cell's messages wait until the page is ready."""

    def connect(self) -> Any:
        """Join the websocket, which is open now, to the kernel."""
        self.websocket_handler.set_nodelay(True)
        self.limit_rate = not self.subprotocol  # a page with it gets output as it confirms it
        self._resumes = self.kernel_id in self.multi_kernel_manager.left
        self.delivery = self.multi_kernel_manager.deliveries.pop(self.kernel_id, None) or CellDelivery()
        self._holds = not self.delivery.is_finished
        self.delivery.continue_at(self.session.session)
        connected = super().connect()
        if connected and self._holds:
            connected.add_done_callback(lambda _: self._tasks.spawn(self._resume()))
        return connected

    def disconnect(self) -> None:  # type: ignore[override]
        """The page has left: the next page gets what this one has not confirmed."""
        if not self.channels:  # it has not connected, or this is the second call
            return
        if self.kernel_id in self.multi_kernel_manager:
            self.multi_kernel_manager.deliveries[self.kernel_id] = self.delivery
        super().disconnect()  # type: ignore[no-untyped-call]
        self.channels = {}  # the next page has them

    def nudge(self) -> Any:
        """jupyter_server takes a message of a new socket to know that it is subscribed; an earlier page's socket is. If
        the kernel does not answer in time, the page gets what comes later: after an error it would stay counted."""
        subscribed = [] if self._resumes else [super().nudge()]
        return asyncio.gather(*subscribed, return_exceptions=True)

    def handle_incoming_message(self, incoming_msg: Any) -> None:
        """The page sends a request."""
        if self.subprotocol and b"execute_request" in incoming_msg:
            request = Message(Channel.SHELL, 0, tuple(deserialize_msg_from_ws_v1(incoming_msg)[1]))  # type: ignore[no-untyped-call]
            if is_user_cell(request):
                self.delivery.sent_cells[id_of(request)] = None
            if is_file(notebook := title_of(request)):
                self._tasks.spawn(self.kernel_manager.provisioner.name_notebook(notebook))
        super().handle_incoming_message(incoming_msg)

    def handle_outgoing_message(self, stream: Any, outgoing_msg: list[Any]) -> None:
        """The kernel sends a message."""
        parts: list[Any] = self.session.feed_identities(outgoing_msg)[1]
        header, parent, delivery = json.loads(parts[1]), json.loads(parts[2]), self.delivery
        cell, is_input = parent.get("msg_id", ""), header["msg_type"] == "execute_input"
        is_idle = header["msg_type"] == "status" and json.loads(parts[4]).get("execution_state") == "idle"
        if cell in delivery.sent_cells and (is_input or is_idle):  # an aborted cell has no input
            self._holds = False  # a page that runs a cell is ready
            clear = "iopub", self._of_cell("clear_output", {"wait": True}, parent, header["session"])
            for channel, rest in delivery.begin(parent, header["session"], clear):
                super().handle_outgoing_message(self.channels[channel], rest)
        if cell in delivery.sent_cells and stream.channel == "shell":
            delivery.sent_cells[cell] = (stream.channel, outgoing_msg)
        elif cell == delivery.request.get("msg_id") and stream.channel != "stdin" and not is_input:
            delivery.add((stream.channel, outgoing_msg), is_idle)
            self._deliver()
        elif not (is_idle and self._is_of_another_page(parent)):  # which would end VS Code's resumed cell
            super().handle_outgoing_message(stream, outgoing_msg)

    def _is_of_another_page(self, request: dict[str, Any]) -> bool:
        """Whether another page has sent this request, and this page has not received all of its cell."""
        page = self.session.session
        return request.get("session", page) != page and not self.delivery.is_finished

    def _deliver(self) -> None:
        """Send the messages of the cell, and ask the page to confirm them. No more output is read until then."""
        messages = self.delivery.unconfirmed
        if self._holds and len(messages) >= _MOST_HELD:
            self.channels["iopub"].stop_on_recv()
        if self._holds or self._to_confirm or not messages:
            return
        for channel, parts in messages:
            super().handle_outgoing_message(self.channels[channel], parts)
        self._to_confirm = len(messages)
        self.channels["iopub"].stop_on_recv()
        self.websocket_handler.ping(CONFIRM)

    def confirmed(self) -> None:
        """The page has received the messages. A pong that was not asked for confirms nothing."""
        if not self._to_confirm:
            return
        self.delivery.confirm(self._to_confirm)
        self._to_confirm = 0
        if self.channels:
            self.channels["iopub"].on_recv_stream(self.handle_outgoing_message)
            self._deliver()

    async def _resume(self) -> None:
        """Send the busy status of the cell until the page is ready, then what no page has received."""
        for _ in range(int(self.resume_pause / _BUSY_INTERVAL)):
            state = {"execution_state": "busy"}
            busy = self._of_cell("status", state, self.delivery.request, self.delivery.session)
            if self.channels and self._holds:
                super().handle_outgoing_message(self.channels["iopub"], busy)
            await asyncio.sleep(_BUSY_INTERVAL)
        self._holds = False
        if self.channels:
            self._deliver()

    def _of_cell(self, msg_type: str, content: Any, cell: dict[str, Any], session: str) -> list[bytes]:
        """Return a message of a cell, as it comes from the kernel. Pages drop messages of another session."""
        message = self.session.msg(msg_type, content, parent=cell)
        message["header"]["session"] = session
        return self.session.serialize(message)


class PageHandler(KernelWebsocketHandler):
    """Serves the websocket of a kernel, which may be one that another front end has started."""

    connection: Any = None

    @property
    def ping_interval(self) -> float:
        """In ms. tornado, which sends pings of its own, takes the number for seconds."""
        return float(1000 * self.connection.ping_interval)

    @property
    def ping_timeout(self) -> float:
        """In ms, once the websocket is open. Before, tornado reads it, and reports one above the interval."""
        return self.ping_interval * (3 if self.ws_connection else 1)

    async def pre_get(self) -> None:
        """The page is signed in. A page that leaves meanwhile gets no websocket: no second `on_close` would come."""
        await self.kernel_manager.attach(self.kernel_id)  # type: ignore[attr-defined]
        await super().pre_get()  # type: ignore[no-untyped-call]
        if self.request.connection.stream.closed():  # type: ignore[union-attr]
            raise Finish

    def on_close(self) -> None:
        """The page has left, maybe while it was connecting."""
        if self.connection is not None:
            super().on_close()  # type: ignore[no-untyped-call]

    def on_pong(self, data: bytes) -> None:
        """The page has answered a ping."""
        super().on_pong(data)  # type: ignore[no-untyped-call]
        if data == CONFIRM and self.connection is not None:
            self.connection.confirmed()


default_handlers = [(r"/api/kernels/(?P<kernel_id>\w+-\w+-\w+-\w+-\w+)/channels", PageHandler)]
"""jupyter_server reads this name."""
