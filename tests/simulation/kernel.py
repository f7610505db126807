"""The kernel's process as a model of ipykernel, and the keeper's end of its sockets.

A cell's code is a JSON list of actions: ["print", NAME, TEXT], ["prints", COUNT, SIZE], ["display", ID, TEXT],
["update", ID, TEXT], ["comm", ID, VALUE], ["sleep", SECONDS], ["hold", SECONDS], ["input"], ["error"],
["comment", TEXT], ["open GPUs"], ["crash"], and ["crash", "replied"]: between its reply and its idle status.

Shell requests run one after another, control requests at once, unless a cell holds the interpreter's lock. A reply and
the output before it leave on different sockets, so either may arrive first. A cell that fails aborts the cells that the
kernel has received until then. Idle statuses and some of the other messages of iopub have a mark; what has no returned
mark behind it is sent again to the successor of a killed keeper, as are the last replies.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from jupyter_gpu_kernel.agent.kernel_protocol import REPEAT_INPUT, SESSION, TAKEN_OVER
from jupyter_gpu_kernel.agent.kernel_settings import KernelSettings
from jupyter_gpu_kernel.wire.messages import Channel

from .world import Event, Process

if TYPE_CHECKING:
    from .kernel_end import KernelEnd

KILLED, EXITED, CRASHED = -9, 0, -11
_MARK_EVERY = 4096
_KEPT_REPLIES = 100
_OWN = f'"session": "{SESSION}"'.encode()
Parts = tuple[bytes, ...]


class Executed:
    """What truly became of one execution of a cell. `outputs`: what the kernel published, see `essence`."""

    def __init__(self, kernel: ModelKernel, began: float) -> None:
        self.kernel, self.began = kernel, began
        self.outputs: list[tuple[str, str]] = []
        self.status = ""
        self.ended = 0.0


class _Request:
    def __init__(self, client: int, parts: Parts) -> None:
        self.client, self.header, self.parts = client, parts[0], parts
        header = json.loads(parts[0])
        self.name, self.msg_type = str(header.get("date")), str(header["msg_type"])
        self.own = header["session"] == SESSION
        self.content: dict[str, Any] = json.loads(parts[3])
        self.aborted = False


class ModelKernel(Process):
    """One process. `executed`: its executions by the names of requests, shared with the processes before it."""

    def __init__(self, end: KernelEnd, executed: dict[str, list[Executed]]) -> None:
        node = end.process.node
        super().__init__(node.world, "kernel")
        self.pid = node.new_process(self)
        self.node, self.executed = node, executed
        self.job_id = end.process.job_id
        self.leases = end.lease_queue.inherited(self)
        """Its descriptor of the socket in which its keepers keep the leases of its GPUs."""
        self.end: KernelEnd | None = end
        self.running = True
        self.returncode: int | None = None
        self.gpus: list[str] = []
        self.opened_gpus = False
        self.lost_keeper_at = 0.0
        self.count = 0
        self.on_end: Callable[[], Any] = lambda: None
        self.successor_settings: KernelSettings | None = None
        self.ended_before: Sequence[str] = ()
        self.random = self.world.random(f"kernel {node.started}")
        self._queue: deque[_Request] = deque()
        self._current: _Request | None = None
        self._execution: Executed | None = None
        self._actions: deque[list[Any]] = deque()
        self._timer: Event | None = None
        self._interrupted = self._dies_replied = False
        self._messages = 0  # that it has made
        self._received: set[Parts] = set()
        self._asks: tuple[_Request, Parts] | None = None
        self._late: list[_Request] | None = None
        """Control requests that have come while a cell holds the interpreter's lock."""
        self._holds = False  # no keeper reads: what it publishes waits for the successor
        self._sent = self._marked = 0  # bytes on iopub: all, and until the last mark
        self._unread: deque[tuple[int, Parts, int]] = deque()
        """What the keeper has not said that it has read: the bytes until its end, the message, and its mark or 0."""
        self._replies: dict[Channel, deque[tuple[int, Parts]]] = {
            channel: deque(maxlen=_KEPT_REPLIES) for channel in (Channel.SHELL, Channel.CONTROL)
        }

    def poll(self) -> int | None:
        """Return None while it runs, then its return code."""
        return self.returncode

    @property
    def busy(self) -> bool:
        """Whether it executes something, or has something to execute."""
        return self._current is not None or bool(self._queue)

    @property
    def asks(self) -> str:
        """The name of the cell that waits for an answer to input(); "" if none does."""
        return "" if self._asks is None else self._asks[0].name

    # ------------------------------------------------------------------------------------ requests

    def receive(self, channel: Channel, client: int, parts: Parts) -> None:
        """A request has arrived."""
        if not self.running:
            return
        if channel is not Channel.STDIN and parts in self._received:
            return  # it knows the signature
        self._received.add(parts)
        request = _Request(client, parts)
        if channel is Channel.CONTROL:
            return self._control(request) if self._late is None else self._late.append(request)
        if channel is Channel.STDIN:
            return self._stdin(request)
        self._queue.append(request)
        if self._current is None:
            self._next()

    def _next(self) -> None:
        if self._queue and self.running and self._current is None:
            self._current = self._queue.popleft()
            self._later(0.0002, self._begin)

    def _begin(self) -> None:
        request = self._current
        assert request is not None
        self._status("busy", request)
        if request.msg_type == "execute_request":
            if request.aborted:
                return self._finish(request, {"status": "aborted"})
            return self._execute(request)
        self._finish(request, self._answer(request))

    def _answer(self, request: _Request) -> dict[str, Any] | None:
        kind = request.msg_type
        if kind == "kernel_info_request":
            return {"status": "ok", "protocol_version": "5.3", "implementation": "model", "banner": ""}
        if kind == TAKEN_OVER:
            return self._taken_over()
        if kind == "comm_msg":
            content = {"comm_id": request.content["comm_id"], "data": {"echo": request.content["data"]}}
            self._publish("comm_msg", content, request)
        return {"status": "ok"} if kind.endswith("_request") else None

    def _control(self, request: _Request) -> None:
        self._status("busy", request)
        if request.msg_type == "interrupt_request":
            self._interrupt()
        answer = self._answer(request)
        if answer is not None:
            self._send(Channel.CONTROL, request.client, request.msg_type, answer, request)
        self._status("idle", request)
        if request.msg_type == "shutdown_request":
            self._later(0.02, self.die, EXITED)

    def _stdin(self, request: _Request) -> None:
        if request.msg_type == REPEAT_INPUT:
            if self._asks is not None:
                asked, parts = self._asks
                self._emit(Channel.STDIN, asked.client, parts)
        elif self._asks is not None:
            self._asks = None
            self._output("stream", {"name": "stdout", "text": f"answer {request.content['value']}\n"})
            self._later(0.001, self._act)

    # ------------------------------------------------------------------------------------ cells

    def _execute(self, request: _Request) -> None:
        content = request.content
        if request.own:  # the keeper evaluates an expression
            return self._finish(request, self._evaluated(content["user_expressions"]["value"]))
        if self.node.gpus is not None:
            self.node.gpus.check_cell(self, request.name, by_user=bool(content["store_history"]))
        if not content["silent"]:
            self.count += bool(content["store_history"])
            self._publish("execute_input", {"code": content["code"], "execution_count": self.count}, request)
        self._execution = Executed(self, self.world.now)
        self.executed.setdefault(request.name, []).append(self._execution)
        self._actions = deque(json.loads(content["code"]))
        self._interrupted = False
        self._later(0.001, self._act)

    def _evaluated(self, expression: str) -> dict[str, Any]:
        call = expression.partition("gpu_kernel').")[2]
        if call.startswith("skip("):
            self.count = max(self.count, int(call[5:-1]))
        elif call.startswith("take_gpus("):
            self.use_gpus(json.loads(call[10:-1].replace("'", '"')))
        value = {"status": "ok", "data": {"text/plain": "None"}, "metadata": {}}
        reply = {
            "status": "ok",
            "execution_count": self.count,
            "payload": [],
            "user_expressions": {"value": value},
        }
        return reply

    def use_gpus(self, uuids: list[str], *, starts: bool = False) -> None:
        """The process has these GPUs from now on."""
        if self.node.gpus is not None:
            self.node.gpus.kernel_has(self, uuids, starts=starts)

    def _act(self) -> None:
        """Do the cell's next action."""
        self._timer = None
        request = self._current
        assert request is not None
        if not self._actions:
            return self._end("ok")
        kind, *more = self._actions.popleft()
        if kind == "comment":
            return self._act()
        if kind == "open GPUs":
            self.opened_gpus = True
            return self._act()
        if kind == "sleep":
            self._timer = self._later(more[0], self._act)
            return
        if kind == "hold":
            self._late = []
            self._later(more[0], self._release)
            return
        if kind == "input":
            return self._ask(request)
        if kind == "error":
            return self._end("error", "ValueError", "an error")
        if kind == "crash":
            self._dies_replied = bool(more)
            return self._end("ok") if more else self.die(CRASHED)
        if kind == "print":
            self._output("stream", {"name": more[0], "text": more[1]})
        elif kind == "prints":
            for number in range(more[0]):
                self._output("stream", {"name": "stdout", "text": f"{number} {'.' * more[1]}\n"})
        elif kind == "comm":
            self._output(
                "comm_msg", {"comm_id": more[0], "data": {"method": "update", "state": {"value": more[1]}}}
            )
        else:
            msg_type = "display_data" if kind == "display" else "update_display_data"
            content = {"data": {"text/plain": more[1]}, "metadata": {}, "transient": {"display_id": more[0]}}
            self._output(msg_type, content)
        self._later(self.random.uniform(0.0002, 0.004), self._act)

    def _release(self) -> None:
        """The cell does not hold the interpreter's lock any more."""
        late, self._late = self._late, None
        for request in late or ():
            self._control(request)
        self._act()

    def _ask(self, request: _Request) -> None:
        parts = self._parts("input_request", {"prompt": "? ", "password": False}, request)
        self._asks = (request, parts)
        self._emit(Channel.STDIN, request.client, parts)

    def _output(self, msg_type: str, content: dict[str, Any]) -> None:
        assert self._current is not None and self._execution is not None
        self._execution.outputs.append(essence(msg_type, content))
        self._publish(msg_type, content, self._current)

    def _interrupt(self) -> None:
        if self._execution is None or self._execution.status:
            return
        self._actions.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        elif self._asks is not None:
            self._asks = None
        else:  # it is between two actions, where nothing waits
            self._interrupted = True
            return
        self._end("error", "KeyboardInterrupt", "")

    def _end(self, status: str, name: str = "", value: str = "") -> None:
        request, execution = self._current, self._execution
        assert request is not None and execution is not None
        if self._interrupted and status == "ok":
            status, name = "error", "KeyboardInterrupt"
        execution.status, execution.ended, self._execution = status, self.world.now, None
        content: dict[str, Any] = {"status": status, "execution_count": self.count, "payload": []}
        if status == "ok":
            content["user_expressions"] = {}
        else:
            error = {"ename": name, "evalue": value, "traceback": [f"{name}: {value}"]}
            content |= error
            execution.outputs.append(essence("error", error))
            if not request.content["silent"]:
                self._publish("error", error, request)
            if request.content["stop_on_error"] and not request.content["silent"]:
                for waiting in self._queue:
                    waiting.aborted = True
                    self.world.aborted.setdefault(waiting.name, request.name)
        self._finish(request, content)

    def _finish(self, request: _Request, content: dict[str, Any] | None) -> None:
        if content is not None:
            self._send(Channel.SHELL, request.client, request.msg_type, content, request)
        if self._dies_replied:
            self._later(0.001, self.die, CRASHED)
            return
        self._status("idle", request)
        self._current = None
        self._next()

    # ------------------------------------------------------------------------------------ messages

    def publish_start(self) -> None:
        """As ipykernel does when its main thread begins."""
        self._emit(Channel.IOPUB, 0, self._parts("status", {"execution_state": "starting"}, None))

    def _status(self, state: str, request: _Request) -> None:
        self._publish("status", {"execution_state": state}, request)

    def _publish(self, msg_type: str, content: dict[str, Any], request: _Request) -> None:
        self._emit(Channel.IOPUB, 0, self._parts(msg_type, content, request))

    def _send(
        self, channel: Channel, client: int, asked: str, content: dict[str, Any], request: _Request
    ) -> None:
        self._emit(channel, client, self._parts(asked.replace("_request", "_reply"), content, request))

    def _parts(self, msg_type: str, content: dict[str, Any], request: _Request | None) -> Parts:
        self._messages += 1
        header = f'{{"msg_id": "{self.pid}-{self._messages}", "msg_type": "{msg_type}", "session": "kernel"}}'
        return (
            header.encode(),
            b"{}" if request is None else request.header,
            b"{}",
            json.dumps(content).encode(),
        )

    def _emit(self, channel: Channel, client: int, parts: Parts) -> None:
        self.world.largest = max(self.world.largest, sum(map(len, parts)))
        own = _OWN in parts[1]
        if channel is Channel.IOPUB and not (own and b'"status"' in parts[0]):
            return self._emit_unread(parts)
        if channel in self._replies and not own:
            self._replies[channel].append((client, parts))
        if self.end is not None:
            self.end.arrives(channel, client, parts)

    def _emit_unread(self, parts: Parts) -> None:
        mark = 0
        self._sent += sum(map(len, parts))
        if self._sent - self._marked >= _MARK_EVERY or b'"idle"' in parts[3]:
            mark = self._marked = self._sent
        self._unread.append((self._sent, parts, mark))
        if self.end is not None and not self._holds:
            self.end.arrives(Channel.IOPUB, 0, parts, mark)

    def marks_read(self, total: int) -> None:
        """The keeper has returned a mark."""
        while self._unread and self._unread[0][0] <= total:
            self._unread.popleft()

    def _later(self, seconds: float, callback: Callable[..., Any], *args: Any) -> Event:
        return self.world.later(seconds, callback, *args, process=self)

    # ------------------------------------------------------------------------------------ its life

    def die(self, returncode: int) -> None:
        """The process ends."""
        if not self.running:
            return
        self.world.note("kernel ends", self.pid, returncode)
        self.running = self.alive = False
        self.node.sockets.close_all(self)
        self.returncode = returncode
        notebook = self.successor_settings.notebook if self.successor_settings is not None else ""
        self.node.on_death("crash" if returncode == CRASHED else "ended", notebook)
        if self._holds:
            self.node.on_death("ended without a keeper", notebook)
            self.world.times["kernel gone"].append(self.world.now)
        self.on_end()

    def keeper_killed(self) -> None:
        """It has no keeper: what it publishes is held, and it starts another keeper."""
        self.end, self._holds = None, True
        self.lost_keeper_at = self.world.now
        self.on_end = lambda: None
        self._later(self.node.delay(0.1, 1.0), self.node.succeed, self)

    def _taken_over(self) -> dict[str, Any]:
        """The successor receives: it gets what the killed keeper may not have read."""
        if self._holds and self.end is not None:
            for _, parts, mark in self._unread:
                self.end.arrives(Channel.IOPUB, 0, parts, mark)
        self._holds = False
        kept = {
            channel.name.lower(): [
                [str(client), *(part.decode() for part in parts)] for client, parts in replies
            ]
            for channel, replies in self._replies.items()
        }
        return {"status": "ok", **kept}


def essence(msg_type: str, content: dict[str, Any]) -> tuple[str, str]:
    """Return what a message shows."""
    if msg_type == "stream":
        return str(content["name"]), str(content["text"])
    if msg_type == "comm_msg":
        return f"comm {content['comm_id']}", json.dumps(content["data"])
    if msg_type == "error":
        return "error", f"{content['ename']}: {content['evalue']}"
    if msg_type in ("display_data", "update_display_data"):
        kind = "display" if msg_type == "display_data" else "update"
        return f"{kind} {content.get('transient', {}).get('display_id', '')}", str(
            content["data"].get("text/plain")
        )
    return msg_type, json.dumps(content)
