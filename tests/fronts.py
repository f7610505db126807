"""A front end on a kernel's five ports, and what one of its cells brought.

It passes over nothing: what a kernel's client would drop as seen before, it sees again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import zmq
from jupyter_client.blocking.client import BlockingKernelClient
from waiting import DEADLINE

Message = dict[str, Any]


class Cell(NamedTuple):
    """What a cell brought: the reply's content, and all of iopub that has it as parent, in order."""

    reply: dict[str, Any]
    messages: list[dict[str, Any]]

    @property
    def outputs(self) -> list[tuple[str, Any]]:
        """(type, what it says), neighbouring stream texts joined: how they are cut is not promised."""
        found: list[tuple[str, Any]] = []
        for message in self.messages:
            kind, content = message["msg_type"], message["content"]
            if kind == "stream":
                kind = str(content["name"])
                if found and found[-1][0] == kind:
                    content = {"text": found.pop()[1] + content["text"]}
            found.append((kind, _essence(kind, content)))
        return found

    @property
    def shown(self) -> list[tuple[str, Any]]:
        """What the notebook holds at the end: updates and clear_output applied, neighbouring texts joined.

        Also that the cell began once, and how often it became busy and idle.
        """
        found: list[tuple[str, Any]] = []
        displays: dict[str, int] = {}
        for message in self.messages:
            kind, content = message["msg_type"], message["content"]
            name = content.get("transient", {}).get("display_id", "")
            if kind == "clear_output":
                found = [entry for entry in found if entry[0] in ("status", "execute_input")]
            elif kind == "update_display_data":
                if name in displays:
                    found[displays[name]] = ("display_data", content["data"])
            elif kind == "stream" and found and found[-1][0] == content["name"]:
                found[-1] = (content["name"], found[-1][1] + content["text"])
            else:
                if kind == "display_data":
                    displays[name] = len(found)
                kind = str(content["name"]) if kind == "stream" else kind
                found.append((kind, _essence(kind, content)))
        return found

    @property
    def text(self) -> str:
        """What it printed."""
        return "".join(printed for kind, printed in self.outputs if kind in ("stdout", "stderr"))


def _essence(kind: str, content: dict[str, Any]) -> Any:
    if kind == "error":
        return content["ename"], content["evalue"]
    for key in ("text", "execution_state", "data", "code", "wait"):
        if key in content:
            return content[key]
    return content


class Front:
    """A front end on a kernel's five ports. `on_message` hears all that comes, whoever it is for."""

    def __init__(
        self, connection: dict[str, Any], on_message: Callable[[Message], object] = lambda message: None
    ) -> None:
        self._replies: dict[
            str, dict[str, Any]
        ] = {}  # by request; those that came before they were asked for
        self.client: Any = BlockingKernelClient(context=zmq.Context())
        self._on_message = on_message
        self.client.load_connection_info(connection)
        self.client.session.digest_history_size = 0  # nothing is passed over because it was seen before
        self.client.start_channels()
        try:
            self.client.wait_for_ready(timeout=DEADLINE)
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self) -> Front:
        return self

    def __exit__(self, *exception: object) -> None:
        self.client.stop_channels()
        self.client.context.destroy(linger=0)

    def run(self, code: str, answers: Iterable[str] = (), **how: Any) -> Cell:
        """Runs a cell to its end; `answers` are what its input() gets."""
        return self.finish(self.client.execute(code, **how), answers)

    def finish(self, request: str, answers: Iterable[str] = ()) -> Cell:
        """The rest of a cell: everything on iopub until idle, and the reply."""
        messages = list(self.iopub(request, iter(answers)))
        return Cell(self.reply(request), messages)

    def reply(self, request: str) -> dict[str, Any]:
        """The content of the request's reply on shell."""
        while request not in self._replies:
            message = self._got(self.client.get_shell_msg(timeout=DEADLINE))
            self._replies[str(message["parent_header"].get("msg_id"))] = dict(message["content"])
        return self._replies.pop(request)

    def iopub(self, request: str, answers: Iterator[str] | None = None) -> Iterator[dict[str, Any]]:
        """What the request brings on iopub, until its idle."""
        poller = zmq.Poller()
        for channel in (self.client.iopub_channel, self.client.stdin_channel):
            poller.register(channel.socket, zmq.POLLIN)
        last = "nothing"
        while True:
            ready = dict(poller.poll(DEADLINE * 1000))
            assert ready, f"nothing more came for {request} after {last}"
            if self.client.stdin_channel.socket in ready:
                self._got(self.client.get_stdin_msg(timeout=1))
                self.client.input(next(answers or iter(())))
            if self.client.iopub_channel.socket not in ready:
                continue
            message = self._got(self.client.get_iopub_msg(timeout=1))
            if message["parent_header"].get("msg_id") != request:
                continue
            last = f"{message['msg_type']} {str(message['content'])[-200:]}"
            yield message
            if message["content"].get("execution_state") == "idle":
                return

    def until_text(self, request: str, text: str) -> str:
        """Everything the request printed until `text` is in it."""
        printed = ""
        for message in self.iopub(request):
            printed += message["content"].get("text", "")
            if text in printed:
                return printed
        raise AssertionError(f"{text!r} did not come, but {printed!r}")

    def control(self, msg_type: str, **content: Any) -> dict[str, Any]:
        """A control request's reply."""
        return self.control_reply(self.ask("control", msg_type, **content))

    def ask(self, channel: str, msg_type: str, **content: Any) -> str:
        """Sends a request on shell or control; returns its id, for `reply` or `control_reply`."""
        message = self.client.session.msg(msg_type, content)
        getattr(self.client, f"{channel}_channel").send(message)
        return str(message["header"]["msg_id"])

    def control_reply(self, request: str) -> dict[str, Any]:
        """The content of the request's reply on control."""
        while True:
            reply = self._got(self.client.get_control_msg(timeout=DEADLINE))
            if reply["parent_header"].get("msg_id") == request:
                return dict(reply["content"])

    def _got(self, message: Message) -> Message:
        self._on_message(message)
        return message
