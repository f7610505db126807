"""One kernel's keeper: starts it, is its only client, holds what it says until a hub has it, frees what it took.

It outlives links, hubs and laptops, and ends with its kernel. The parts: kernel (process and sockets), door (the
hub's way in), gate and taking (user cells wait for GPUs), story. This file joins them; it knows no SSH and no laptop.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

from ..wire.jupyter import Parts, error_content, error_reply, make
from ..wire.messages import Channel, Lane, Message, MessageError, lane_of, word
from .door import Door
from .environment import kernel_environment
from .gate import Gate
from .kernel import Kernel, describe_end
from .loop import Loop, Timer
from .places import Root
from .story import Story
from .taking import Taking

NUDGE = 0.1
RESTART_WAIT = 60.0
"""Seconds an ended kernel's GPUs are kept for a restart that somebody announced."""
SHUTDOWN_GRACE = 5.0
FAREWELL = 3.0
"""Seconds a hub has to take the last words."""
REVEAL = 1.0
"""Seconds a cell waits for GPUs before it shows so."""
_OURS = 0
"""The client number of the keeper itself."""


class Keeper:
    """`run()` until the kernel is gone for good."""

    def __init__(self, root: Root, settings: Dict[str, Any]) -> None:
        self.settings = settings
        self.id = str(settings["id"])
        self.state = "starting"
        self.since = time.time()
        self.loop = Loop()
        self.folder = root.make_kernel(self.id)
        self.story = Story(root.story(self.id))
        self.kernel = Kernel(self.loop, self.folder, self._from_kernel)
        self.door = Door(self.loop, self.folder / "keeper", self._from_hub, self._asked)
        self.taking = Taking(self.loop, settings, root.path / "line", self._gpus_taken, self._gpus_waiting)
        self.gate = Gate(self._say, self._to_kernel, is_open=self.taking.done)
        self._kernel_session = ""
        self._up = False
        self._early: List[Message] = []  # what came before the kernel could hear
        self._open_cells: Dict[str, Message] = {}
        self._held_replies: Dict[str, Tuple[int, Parts]] = {}
        self._idle: Set[str] = set()
        self._ours: Dict[str, Optional[Callable[[Dict[str, Any]], None]]] = {}
        self._nudged = [False, False]  # a reply came, an iopub message came
        self._ending = ""  # "", "restart" or "shutdown": what was asked for
        self._after_end = False  # a restart waits for the old process to be gone
        self._timer: Optional[Timer] = None

    def run(self) -> None:
        """Starts the kernel and serves it; returns when all is over and cleaned up."""
        self._signals()
        self._story_socket()
        self._start()
        try:
            self.loop.run()
        finally:
            self._clean_up()

    # -------------------------------------------------------------------------------------- the kernel's life

    def _start(self) -> None:
        self._up, self._ending = False, ""
        self._nudged = [False, False]
        self._ours.clear()
        env = kernel_environment(self.settings, self.folder, self.taking.environment())
        try:
            self.kernel.start(self._python(), env, self.settings.get("cwd") or None, self._nudge)
        except OSError as error:
            self._set_state("ended", cause=f"the kernel cannot be started: {error}")
            return self._leave()
        self.story.tell("start", f"kernel process {self.kernel.pid} started", pid=self.kernel.pid)
        self._set_state("starting")
        self.taking.begin()

    def _python(self) -> str:
        import sys

        return str(self.settings.get("python") or sys.executable)

    def _nudge(self) -> None:
        """The kernel's sockets are bound; asks until our subscription and its answers are known to work."""
        if self._up or not self.kernel.pid:
            return
        self._request(Channel.CONTROL, "kernel_info_request", {}, self._nudge_answered)
        self.loop.later(NUDGE, self._nudge)

    def _nudge_answered(self, content: Dict[str, Any]) -> None:
        self._nudged[0] = True
        self._check_up()

    def _check_up(self) -> None:
        if self._up or not all(self._nudged):
            return
        self._up = True
        self._set_state("idle")
        early, self._early = self._early, []
        for message in early:
            self._from_hub(message)

    def _kernel_ended(self, returncode: int, tell: bool = True) -> None:
        early = "" if self._up else self.kernel.stderr_tail()
        self.kernel.end()
        self._up = False
        asked = self._ending
        cause = asked or describe_end(returncode)
        self.story.tell("end", f"the kernel ended: {cause}", returncode=returncode, asked=asked)
        for reply_to, parts in self._held_replies.values():  # their idle will not come
            self.door.send(Lane.ORDERED, Message(Channel.SHELL, reply_to, parts))
        self._held_replies.clear()
        for message in list(self._open_cells.values()):
            self._fail_cell(message, f"the kernel ended: {cause}")
        self.gate.give_up("DeadKernelError", f"the kernel ended: {cause}")
        self._early.clear()
        if tell:
            self._set_state("ended", returncode=returncode, cause=cause, asked=asked, stderr=early)
        if self._timer is not None:
            self._timer.cancel()
        if asked == "shutdown":
            self._leave()
        else:  # whoever watches may restart it; nobody does: free the GPUs
            self._timer = self.loop.later(RESTART_WAIT, self._leave)

    def _leave(self) -> None:
        """All is over: the GPUs go back at once, the last words wait a moment for the hub."""
        self.taking.give_back()
        deadline = time.monotonic() + FAREWELL

        def wait() -> None:
            if not self.door.connection.outbox.size or time.monotonic() > deadline:
                self.loop.stop()
            else:
                self.loop.later(0.02, wait)

        wait()

    def _clean_up(self) -> None:
        self.taking.give_back()
        if self.kernel.pid:
            self.kernel.signal_group(signal.SIGKILL)
        self.door.close()
        for name in os.listdir(str(self.folder)):
            os.unlink(str(self.folder / name))
        os.rmdir(str(self.folder))

    # -------------------------------------------------------------------------------------- from the hub

    def _from_hub(self, message: Message) -> None:
        if message.channel is Channel.KEEPER:
            return self._command(message.content())
        try:
            msg_type = str(message.header().get("msg_type"))
        except MessageError:
            return  # a front end signed what is no message; the kernel would drop it too
        if msg_type == "interrupt_request" and self._interrupt(message):
            return
        if msg_type == "shutdown_request":
            self._shutdown_asked(message)
        if not self._up:
            if self.state == "ended":
                return self._answer_for_the_dead(message, msg_type)
            return self._early.append(message)
        if msg_type == "execute_request" and not self.gate.passes(message):
            self._set_state("waiting")
            self.loop.later(REVEAL, self.gate.reveal)
            return self.taking.want()
        self._to_kernel(message)

    def _to_kernel(self, message: Message) -> None:
        if message.channel is Channel.SHELL and message.header().get("msg_type") == "execute_request":
            self._open_cells[str(message.header().get("msg_id"))] = message
        self.kernel.send(message.channel, message.client, message.parts)

    def _command(self, command: Dict[str, Any]) -> None:
        do = command.get("do")
        if do == "interrupt":
            if self.gate.holding:
                self.gate.give_up("KeyboardInterrupt", "gave up waiting for a GPU")
            elif self._up:
                self._request(Channel.CONTROL, "interrupt_request", {}, None)
        elif do == "restart":
            self._restart()
        elif do == "kill":
            self.kernel.signal_group(signal.SIGKILL)
        elif do == "signal":
            self.kernel.signal_group(int(command["number"]))
        elif do == "stop":
            self._stop(str(command.get("why", "asked to")))

    def _interrupt(self, message: Message) -> bool:
        """Whether an interrupt was answered here: a cell waits at the gate, or the kernel is still starting."""
        if self._up and not self.gate.holding:
            return False
        header = message.parts[0]
        self._say(Channel.IOPUB, 0, "status", {"execution_state": "busy"}, header)
        if self.gate.holding:
            self.gate.give_up("KeyboardInterrupt", "gave up waiting for a GPU")
            self._set_state("idle")
        for cell in [m for m in self._early if m.channel is Channel.SHELL]:
            if cell.header().get("msg_type") == "execute_request":
                self._early.remove(cell)
                self._fail_cell(cell, "interrupted before the kernel was up", "KeyboardInterrupt")
        self._say(Channel.CONTROL, message.client, "interrupt_reply", {"status": "ok"}, header)
        self._say(Channel.IOPUB, 0, "status", {"execution_state": "idle"}, header)
        return True

    def _shutdown_asked(self, message: Message) -> None:
        restart = bool(message.content().get("restart"))
        self._ending = "restart" if restart else "shutdown"
        self.gate.give_up("DeadKernelError", "the kernel was shut down")
        if self.state == "ended" and not restart:
            self._leave()
        elif not self._up and self.kernel.pid:
            self.kernel.signal_group(signal.SIGKILL)
        else:
            self._kill_later()

    def _kill_later(self) -> None:
        pid = self.kernel.pid
        self._timer = self.loop.later(SHUTDOWN_GRACE, lambda: self._kill_if(pid))

    def _kill_if(self, pid: int) -> None:
        if pid and self.kernel.pid == pid:
            self.kernel.signal_group(signal.SIGKILL)

    def _stop(self, why: str) -> None:
        self.story.tell("stop", f"stopped: {why}")
        if self.state == "ended":
            return self._leave()
        self._ending = "shutdown"
        if self._up:
            self._request(Channel.CONTROL, "shutdown_request", {"restart": False}, None)
            self._kill_later()
        else:
            self.kernel.signal_group(signal.SIGKILL)

    def _restart(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.story.tell("restart", "restarted by the user")
        if self.kernel.pid:
            self.kernel.signal_group(signal.SIGKILL)
            self._ending = "restart"
            self._after_end = True
            return
        self._start()

    def _answer_for_the_dead(self, message: Message, msg_type: str) -> None:
        if msg_type == "execute_request":
            self._fail_cell(message, "the kernel has ended; restart it")
        elif msg_type == "shutdown_request":
            reply = {"status": "ok", "restart": bool(message.content().get("restart"))}
            self._say(Channel.CONTROL, message.client, "shutdown_reply", reply, message.parts[0])

    def _fail_cell(self, message: Message, reason: str, name: str = "DeadKernelError") -> None:
        msg_id = str(message.header().get("msg_id"))
        self._open_cells.pop(msg_id, None)
        self._idle.discard(msg_id)
        header = message.parts[0]
        self._say(Channel.IOPUB, 0, "error", error_content(name, reason), header)
        self._say(Channel.SHELL, message.client, "execute_reply", error_reply(name, reason), header)
        self._say(Channel.IOPUB, 0, "status", {"execution_state": "idle"}, header)

    # -------------------------------------------------------------------------------------- from the kernel

    def _from_kernel(self, channel: Channel, client: int, parts: Parts) -> None:
        message = Message(channel, client, parts)
        try:
            msg_type = str(message.header().get("msg_type"))
            parent = str(message.parent().get("msg_id", ""))
        except MessageError:
            return
        if parent in self._ours:
            return self._to_us(message, msg_type, parent)
        if channel is Channel.IOPUB:
            if msg_type == "iopub_welcome":
                return
            self._nudged[1] = True
            if msg_type == "status":
                return self._status(message, parent)
        elif msg_type == "execute_reply":
            self._open_cells.pop(parent, None)
            if parent not in self._idle:  # its output comes on another socket: idle says that it is all there
                self._held_replies[parent] = (client, parts)
                return
            self._idle.discard(parent)
        self.door.send(lane_of(message, msg_type), message)

    def _status(self, message: Message, parent: str) -> None:
        state = str(message.content().get("execution_state"))
        self.door.send(Lane.ORDERED, message)
        if state == "idle" and parent in self._open_cells:
            self._idle.add(parent)  # the reply is on its way, on the other socket
        elif state == "idle" and parent in self._held_replies:
            client, parts = self._held_replies.pop(parent)
            self.door.send(Lane.ORDERED, Message(Channel.SHELL, client, parts))
        if self._up and self.state in ("idle", "busy", "waiting") and not self.gate.holding:
            self.state, self.since = ("busy" if state == "busy" else "idle"), time.time()  # the hub hears it itself

    def _to_us(self, message: Message, msg_type: str, parent: str) -> None:
        self._kernel_session = str(message.header().get("session", ""))
        if message.channel is Channel.IOPUB:
            self._nudged[1] = True
            self._check_up()
        else:
            answered = self._ours[parent]
            self._ours[parent] = None  # its idle is still to come: keep the id
            if answered is not None:
                answered(message.content())

    def _request(
        self,
        channel: Channel,
        msg_type: str,
        content: Dict[str, Any],
        answered: Optional[Callable[[Dict[str, Any]], None]],
    ) -> None:
        """A request of our own; front ends see nothing of it."""
        parts = make(msg_type, content, session="keeper")
        self._ours[str(json.loads(parts[0])["msg_id"])] = answered
        self.kernel.send(channel, _OURS, parts)

    # -------------------------------------------------------------------------------------- GPUs

    def _gpus_waiting(self, text: str) -> None:
        self.gate.show(text)

    def _gpus_taken(self, uuids: List[str], problem: str) -> None:
        """The GPUs are ours, or (`problem`) will never be: tells the kernel, then opens the gate."""
        if problem:
            self.story.tell("gpu", problem)
            self.gate.give_up("GpuError", problem)
            return self._set_state("idle")
        self.story.tell("gpu", "took " + ", ".join(uuids), gpus=uuids)
        code = "__import__('gpu_kernel').take_gpus(%r)" % (uuids,)
        content = {"code": "", "silent": True, "store_history": False, "user_expressions": {"taken": code}}
        content.update(allow_stdin=False, stop_on_error=False)
        self._request(Channel.SHELL, "execute_request", content, self._gpus_told)

    def _gpus_told(self, reply: Dict[str, Any]) -> None:
        taken = reply.get("user_expressions", {}).get("taken", {})
        if taken.get("status") != "ok":
            self.story.tell("gpu", f"the kernel could not be told its GPUs: {taken}")
        self._set_state("idle")
        self.gate.open()

    # -------------------------------------------------------------------------------------- saying

    def _say(self, channel: Channel, client: int, msg_type: str, content: Dict[str, Any], parent: bytes) -> None:
        parts = make(msg_type, content, parent, self._kernel_session)
        message = Message(channel, client, parts)
        self.door.send(lane_of(message, msg_type), message)

    def _set_state(self, state: str, **more: Any) -> None:
        if state != self.state or more:
            self.state, self.since = state, time.time()
            self.door.send(Lane.ORDERED, word(event="state", **dict(self.status(), **more)))

    def status(self) -> Dict[str, Any]:
        """What `ps` shows: {id, name, state, gpus, pid, notebook, attached, since}."""
        return {
            "id": self.id,
            "name": self.settings.get("name", ""),
            "node": socket.gethostname(),
            "state": self.state,
            "gpus": self.taking.uuids,
            "pid": self.kernel.pid,
            "notebook": self.settings.get("notebook", ""),
            "attached": self.door.attached,
            "since": self.since,
        }

    def _asked(self, request: Dict[str, Any]) -> Dict[str, Any]:
        do = request.get("do")
        if do == "status":
            return self.status()
        if do == "stop":
            self._stop(str(request.get("why", "asked to")))
            return {"ok": True}
        return {"error": f"a keeper knows no {do!r}"}

    # -------------------------------------------------------------------------------------- signals

    def _signals(self) -> None:
        """Children's ends wake the loop; a stray SIGTERM or SIGHUP is a line in the story, not an end."""
        read_fd, write_fd = os.pipe()
        for fd in (read_fd, write_fd):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, lambda number, frame: None)
        self.loop.watch(read_fd, lambda _: self._signalled(os.read(read_fd, 512)))

    def _signalled(self, numbers: bytes) -> None:
        for number in set(numbers) - {signal.SIGCHLD}:
            self.story.tell("signal", f"the keeper got {signal.Signals(number).name} and stays")
        returncode = self.kernel.reap()
        if returncode is not None:
            restart, self._after_end = self._after_end, False
            self._kernel_ended(returncode, tell=not restart)
            if restart:
                self._restart()

    def _story_socket(self) -> None:
        """Where the guard in the kernel tells of signals, one datagram each."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        sock.bind(str(self.folder / "story"))
        sock.setblocking(False)
        self._story_sock = sock
        self.loop.watch(sock.fileno(), lambda _: self._heard(sock.recv(65536)))

    def _heard(self, datagram: bytes) -> None:
        try:
            event = json.loads(datagram.decode())
        except ValueError:
            return
        if isinstance(event, dict) and "event" in event:
            who = "{user} (pid {pid}, {command})".format_map(_Unknown(event))
            event.setdefault("text", f"{event['event']} from {who}: {event.get('action', '')}")
            self.story.tell(event.pop("event"), event.pop("text"), **{k: v for k, v in event.items() if k != "time"})


class _Unknown(Dict[str, Any]):
    def __missing__(self, key: str) -> str:
        return "?"
