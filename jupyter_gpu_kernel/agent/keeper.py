"""One kernel's keeper: starts it, is its only client, holds what it says until a hub has it, frees what
it took.

It outlives links, hubs and laptops, and ends with its kernel. The parts: kernel (process and sockets),
door (the hub's way in), allotment (user cells wait for GPUs), cells, questions, story. This file
joins them; it knows no SSH and no laptop.
"""

from __future__ import annotations

import shutil
import signal
import socket
import sys
import time
from functools import partial
from typing import Any, Dict, List, Optional

from ..wire.jupyter import Parts, is_user_cell, make
from ..wire.messages import Channel, Lane, Message, MessageError, lane_of, word
from .absence import Absence
from .cells import Cells
from .clocks import IdleClock, cuda_is_open, tree_cpu
from .door import Door
from .ears import Ears
from .end.ending import Ending
from .environment import kernel_environment
from .gpus.allotment import Allotment
from .journal.backlog import Backlog
from .journal.spill import folders
from .kernel import Kernel
from .loop import Loop, Timer
from .places import Root
from .policy import Policy, read_policy
from .questions import Questions
from .readiness import Readiness
from .story import Story

RESTART_WAIT = 60.0
"""Seconds an ended kernel's GPUs are kept for a restart."""
SHUTDOWN_GRACE = 5.0
FAREWELL = 3.0
"""Seconds a hub has to take the last words."""


class Keeper:
    """`run()` until the kernel is gone for good."""

    def __init__(self, root: Root, settings: Dict[str, Any], policy: Optional[Policy] = None) -> None:
        policy = policy or read_policy()
        self.settings = settings = policy.apply(settings)
        self.id = str(settings["id"])
        self.state = "starting"
        self.since = time.time()
        self.loop = Loop()
        self.folder = root.make_kernel(self.id)
        self.story = Story(root.story(self.id))
        if str(policy):
            self.story.tell("policy", str(policy))
        self.kernel = Kernel(self.loop, self.folder, self._from_kernel)
        self.backlog = Backlog(folders(self.folder), settings, partial(self.story.tell, "journal"))
        self.door = Door(self.loop, self.folder / "keeper", self._from_hub, self._asked, self.backlog)
        self.cells = Cells(self._say)
        self.questions = Questions(self.kernel.send)
        line = root.path / "line"
        self.gpus = Allotment(
            self.loop,
            settings,
            line,
            self._say,
            self._to_kernel,
            self.questions,
            self.story,
            self._tell_state,
        )
        self.door.on_attached = self._attached
        self.door.on_left = lambda: self.story.tell("drop", "the link is down, or nobody is there")
        self._told: Dict[str, Any] = {}
        self.absence = Absence(self._say)
        self.clock = IdleClock(settings)
        self.ending = Ending(self.loop, self.folder, self.story)
        self.ready = Readiness(self.loop, self.questions, self._is_up)
        self._early: List[Message] = []  # what came before the kernel could hear
        self._ending = ""  # "", "restart" or "shutdown": what was asked for
        self._start_again = False  # a restart waits for the old process to be gone
        self._timer: Optional[Timer] = None

    def run(self) -> None:
        """Starts the kernel and serves it; returns when all is over and cleaned up."""
        self._ears = Ears(self.loop, self.folder / "story", self.story, self._reap)
        self.loop.later(self.clock.tick, self._tick)
        self._start()
        try:
            self.loop.run()
        except Exception as error:  # ours; the log has the traceback
            self.story.tell("end", f"a fault of the keeper ended the kernel: {type(error).__name__}: {error}")
            raise
        finally:
            self._clean_up()

    # -------------------------------------------------------------------------------------- the kernel's life

    def _start(self) -> None:
        self.ready.reset()
        self._ending = ""
        self.questions.forget()
        env = kernel_environment(self.settings, self.folder, self.gpus.environment())
        python = str(self.settings.get("python") or sys.executable)
        try:
            self.kernel.start(python, env, None, self.ready.begin)
        except OSError as error:
            self._tell_state("ended", cause=f"the kernel cannot be started: {error}")
            return self._leave()
        pid = self.kernel.pid
        self.story.tell("start", f"kernel process {pid} started", pid=pid, **self.ending.witness.began(pid))
        self._tell_state("starting")
        self.gpus.begin()

    def _is_up(self) -> None:
        self._tell_state("idle")
        early, self._early = self._early, []
        for message in early:
            self._from_hub(message)

    def _reap(self) -> None:
        returncode = self.kernel.reap()
        if returncode is not None:
            self._ended(returncode)

    def _tick(self) -> None:
        """Now and then: is it idle for too long, does its GPU lie unused?"""
        self.loop.later(self.clock.tick, self._tick)
        if not self.ready.up:
            return
        pid = self.kernel.pid
        advice = self.clock.advise(
            busy=self.state != "idle",
            attached=self.door.attached,
            cpu=tree_cpu(pid),
            has_gpu=self.gpus.returnable,
            cuda_open=cuda_is_open(pid),
        )
        if advice.warn:
            self.story.tell("idle", advice.warn)
        if advice.give_back:
            self.gpus.lend_back()
        if advice.end:
            self._stop(advice.end)

    def _ended(self, returncode: int) -> None:
        stderr = "" if self.ready.up else self.kernel.stderr_tail()
        self.kernel.end()
        self.ready.reset()
        asked, again = self._ending, self._start_again
        self._start_again = False
        self._ears.hear_guard()
        text = self.ending.explain(returncode, asked, self._ears.term, self.gpus.uuids)
        self._send_all(self.cells.end())
        self.cells.fail_all(text)
        self.gpus.give_up("DeadKernelError", text)
        if self._timer is not None:
            self._timer.cancel()
        if again:
            return self._start()
        self._fail_early()
        self._tell_state("ended", returncode=returncode, asked=asked, stderr=stderr)
        if asked == "shutdown":
            return self._leave()
        self._timer = self.loop.later(RESTART_WAIT, self._leave)  # unless somebody restarts it

    def _leave(self) -> None:
        """All is over: the GPUs go back at once, the last words wait a moment for the hub.

        Much longer if it ended by itself while nobody was there: its front end may only be out of reach.
        """
        self.gpus.give_back()
        if not self._ending and not self.door.attached and self.clock.waits_for_somebody():
            self._timer = self.loop.later(1.0, self._leave)
            return
        owed, deadline = self.door.flow.owes, time.monotonic() + FAREWELL

        def wait() -> None:
            nonlocal owed, deadline
            if self.door.flow.owes < owed and not self._ending:  # a hub takes what a crashed kernel said
                owed, deadline = self.door.flow.owes, time.monotonic() + FAREWELL
            listens = self.door.attached or not self._ending  # who asked for the end needs no last words
            owes = (listens and self.door.flow.owes) or self.ending.remains.alive
            if not owes or time.monotonic() > deadline:
                self.loop.stop()
            else:
                self.loop.later(0.02, wait)

        wait()

    def _clean_up(self) -> None:
        self.gpus.give_back()
        if self.kernel.pid:
            self.kernel.signal_group(signal.SIGKILL)
        self.ending.remains.kill()
        self.door.close()
        self.backlog.close()
        shutil.rmtree(str(self.folder), ignore_errors=True)

    # -------------------------------------------------------------------------------------- from the hub

    def _from_hub(self, message: Message) -> None:
        if message.channel is Channel.KEEPER:
            return self._command(message.content())
        try:
            msg_type = str(message.header().get("msg_type"))
        except MessageError:
            return  # a front end signed what is no message; the kernel would drop it too
        if msg_type == "interrupt_request" and (self.gpus.held or not self.ready.up):
            return self._interrupt_here(message)
        if msg_type == "shutdown_request":
            self._shut_down(bool(message.content().get("restart")))
        if self.state == "ended":
            return self.cells.refuse(message, f"the kernel has ended: {self.ending.death}")
        if not self.ready.up:
            return self._early.append(message)
        if msg_type == "execute_request":
            if is_user_cell(message.content()):
                self.clock.used()
                self.absence.greet(message)
            if not self.gpus.passes(message):
                return
        self._to_kernel(message)

    def _to_kernel(self, message: Message) -> None:
        if message.channel is Channel.SHELL and message.header().get("msg_type") == "execute_request":
            self.cells.sent(message)
        self.kernel.send(message.channel, message.client, message.parts)

    def _command(self, command: Dict[str, Any]) -> None:
        do = command.get("do")
        if do == "interrupt":
            if not self.gpus.give_up("KeyboardInterrupt", "gave up waiting for a GPU") and self.ready.up:
                self.questions.ask(Channel.CONTROL, "interrupt_request", {})
        elif do == "restart":
            self._restart()
        elif do in ("kill", "signal"):
            self.ending.witness.sent = number = int(command.get("number", signal.SIGKILL))
            self.kernel.signal_group(number)
        elif do == "stop":
            self._stop(str(command.get("why", "asked to")))
        elif do == "notebook":
            self.settings["notebook"] = str(command["notebook"])

    def _interrupt_here(self, message: Message) -> None:
        """A cell waits at the gate, or the kernel is still starting: nothing in it could be interrupted."""
        header = message.parts[0]
        self._say(Channel.IOPUB, 0, "status", {"execution_state": "busy"}, header)
        self.gpus.give_up("KeyboardInterrupt", "gave up waiting for a GPU")
        for early in list(self._early):
            if early.header().get("msg_type") == "execute_request":
                self._early.remove(early)
                self.cells.fail(early, "interrupted before the kernel was up", "KeyboardInterrupt")
        self._say(Channel.CONTROL, message.client, "interrupt_reply", {"status": "ok"}, header)
        self._say(Channel.IOPUB, 0, "status", {"execution_state": "idle"}, header)

    def _shut_down(self, restart: bool) -> None:
        """A front end asked the kernel to end. The request itself goes on to the kernel, if that hears."""
        self._ending = "restart" if restart else "shutdown"
        self.gpus.give_up("DeadKernelError", "the kernel was shut down")
        if self.state == "ended":
            if not restart:
                self._leave()
        elif self.ready.up:
            self._kill_later()
        else:
            self.kernel.signal_group(signal.SIGKILL)

    def _kill_later(self) -> None:
        pid = self.kernel.pid

        def kill() -> None:
            if pid and self.kernel.pid == pid:
                self.kernel.signal_group(signal.SIGKILL)

        self._timer = self.loop.later(SHUTDOWN_GRACE, kill)

    def _stop(self, why: str) -> None:
        self.story.tell("stop", f"stopped: {why}")
        self.ending.witness.why = why
        if self.state != "ended" and self.ready.up:
            self.questions.ask(Channel.CONTROL, "shutdown_request", {"restart": False})
        self._shut_down(restart=False)

    def _restart(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.story.tell("restart", "restarted by the user")
        if self.kernel.pid:
            self._ending, self._start_again = "restart", True
            self._fail_early()
            self.ready.reset()  # what comes now is for the new one
            self.kernel.signal_group(signal.SIGKILL)
        else:
            self._start()

    def _fail_early(self) -> None:
        """What waited for this kernel to come up will not be heard by it."""
        early, self._early = self._early, []
        for message in early:
            self.cells.refuse(message, f"the kernel has ended: {self.ending.death}")

    def _returned(self, request: Dict[str, Any]) -> None:
        """Another front end comes to this kernel, which the one before left: what that one did not hear is kept."""
        self.story.tell("return", f"back in {request.get('notebook') or 'another front end'}")
        self.settings["notebook"] = request.get("notebook", "")
        self.clock.used()
        waiting = [*self.cells.open(), *self.gpus.held]
        self.absence.begin(self.door.withdraw(), waiting, self.cells.recent, self.status())

    # -------------------------------------------------------------------------------------- from the kernel

    def _from_kernel(self, channel: Channel, client: int, parts: Parts) -> None:
        message = Message(channel, client, parts)
        try:
            msg_type = str(message.header().get("msg_type"))
            parent = str(message.parent().get("msg_id", ""))
        except MessageError:
            return
        if channel is Channel.IOPUB:
            self.ready.heard_iopub()
        if self.questions.mine(message, msg_type, parent) or msg_type == "iopub_welcome":
            return
        if msg_type == "execute_reply":
            return self._send_all(self.cells.replied(parent, client, parts))
        self._send(lane_of(message, msg_type), message, parent)
        if channel is Channel.IOPUB and msg_type == "status":
            self._status(str(message.content().get("execution_state")), parent)

    def _status(self, state: str, parent: str) -> None:
        if state == "idle":
            self._send_all(self.cells.went_idle(parent))
        if self.ready.up and not self.gpus.held:
            self.state, self.since = (
                ("busy" if state == "busy" else "idle"),
                time.time(),
            )  # the hub hears it itself

    def _send_all(self, messages: List[Message]) -> None:
        for message in messages:
            self._send(Lane.ORDERED, message, str(message.parent().get("msg_id", "")))

    def _send(self, lane: Lane, message: Message, parent: str) -> None:
        if not self.absence.keeps(message, parent):
            self.door.send(lane, message)

    # -------------------------------------------------------------------------------------- saying

    def _say(
        self, channel: Channel, client: int, msg_type: str, content: Dict[str, Any], parent: bytes
    ) -> None:
        message = Message(channel, client, make(msg_type, content, parent, self.questions.session))
        self._send(lane_of(message, msg_type), message, str(message.parent().get("msg_id", "")))

    def _tell_state(self, state: str, **more: Any) -> None:
        self.state, self.since, self._told = state, time.time(), more
        self._tell()

    def _attached(self) -> None:
        self.story.tell("attach", "a front end is there")
        self._tell(Lane.ORDERED if self.state == "ended" else Lane.PROMPT)  # an end comes after what was said

    def _tell(self, lane: Lane = Lane.ORDERED) -> None:
        """What there is to know of us; also to every hub that comes in."""
        self.door.send(lane, word(event="state", **dict(self.status(), **self._told)))

    def status(self) -> Dict[str, Any]:
        """What `ps` shows: {id, name, node, state, gpus, pid, notebook, attached, since}, at the end its why."""
        why = self.ending.death._asdict() if self.state == "ended" else {}
        return {
            **why,
            "id": self.id,
            "name": self.settings.get("name", ""),
            "node": socket.gethostname(),
            "state": self.state,
            "gpus": self.gpus.uuids,
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
        if do == "return":
            self._returned(request)
            return {"ok": True}
        if do == "missed":
            return {"cells": self.absence.show(str(request.get("parent") or "").encode())}
        return {"error": {"code": "unknown", "text": f"a keeper knows no {do!r}"}}
