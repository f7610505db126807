"""One kernel's keeper: starts it, is its only client, holds what it says until a hub has it, frees what
it took.

It outlives links, hubs and laptops, and ends with its kernel. The parts: kernel (process and sockets),
door (the hub's way in), conversation (what goes between them), allotment (user cells wait for GPUs), status
(what others are told), story. This file joins them; it knows no SSH and no laptop.
"""

from __future__ import annotations

import shutil
import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, Optional

from ...wire import PROTOCOL
from ...wire.compose import Parts
from ...wire.fields import FieldError, items, number, text
from ...wire.messages import Channel, Lane, Message, MessageError
from ..exit.processes import SETUP
from ..exit.report import ExitReport
from ..failover.respawn import Heritage
from ..failover.takeover import MOST_CELLS, Succession
from ..gpus.manager import GpuManager
from ..loop import Loop, Timer
from ..paths import Root
from ..policy import Policy, read_policy
from ..process.environment import kernel_environment
from ..process.kernel_process import KernelProcess
from ..process.pause import Pause
from ..process.readiness import Readiness
from ..process.signals import PendingSigterm, Signals
from ..relay.aborts import FEATURE as HEARD
from ..relay.output.backlog import Backlog
from ..relay.output.spill import folders
from ..relay.relay import Relay
from ..story import Limited, Story
from .idle import IdleTimer, cuda_is_open, tree_cpu
from .malloc import return_large_blocks
from .replacement import Replacement
from .server import KeeperServer, RejectedInput
from .setup import trim
from .shutdown import Shutdown
from .status import Status

_OF_WHOM = ("notebook", "owner", "by")
RESTART_WAIT = 60.0
"""Seconds an ended kernel's GPUs are kept for a restart."""


class Keeper:
    """`run()` until the kernel is gone for good."""

    def __init__(
        self,
        root: Root,
        settings: Dict[str, Any],
        policy: Optional[Policy] = None,
        heritage: Optional[Heritage] = None,
    ) -> None:
        """`heritage`: of a keeper that was killed, whose kernel runs."""
        policy = policy or read_policy()
        self.settings = settings = policy.apply(settings)
        settings.setdefault("started", time.time())  # a successor keeps it
        self.loop = Loop()
        self.folder = root.make_kernel(str(settings["id"]))
        self.story = Story(root.story(str(settings["id"])))
        if str(policy):
            self.story.tell("policy", str(policy))
        self.kernel = KernelProcess(self.loop, self.folder, self._from_kernel)
        self.backlog = Backlog(folders(self.folder), settings, partial(self.story.tell, "journal"))
        self._rejected_input, self._of_others = RejectedInput(self.story), Limited(self.story)
        self.server = KeeperServer(
            self.loop,
            self.folder / "keeper",
            self.backlog,
            self._from_hub,
            self._asked,
            self._attached,
            self._detached,
            self._rejected_input.report,
        )
        self.exit_report = ExitReport(self.loop, self.folder, self.story)
        self.status = Status(settings, self.kernel, self.exit_report, self.server, lambda: self.gpus)
        self.idle_timer = IdleTimer(settings)
        self.relay = relay = Relay(
            self.kernel.send,
            self.server.send,
            self.loop.later,
            self.status.facts,
            partial(self._gpu_manager, root.path / "line"),
            on_user_cell=self.idle_timer.used,
            on_reply=self._replied,
            on_message=lambda *message: self.succession.observe(*message),
        )
        self.gpus = relay.gpus
        self._shutdown = Shutdown(self.loop, self.server, self.idle_timer, self.exit_report.cleanup)
        self.ready = Readiness(self.loop, relay.internal_requests, self._is_up)
        self._ending = ""  # "", "restart" or "shutdown": what was asked for
        self._fresh = ""  # the msg_id of the cell after which the kernel is to be a new one
        self._start_again = False  # a restart waits for the old process to be gone
        self._explaining = False  # the process is gone, and it is not yet known why
        self._timer: Optional[Timer] = None
        self._heritage = heritage
        self.replacement = Replacement(root, settings, self.loop, self.gpus, relay.reattach, self.story)
        self.pause = Pause(self.loop, self.kernel, self.story)
        self.succession = Succession(
            self.loop, self.kernel, relay, self.server, self.story, self.status.become
        )

    def _gpu_manager(self, line: Path, relay: Relay) -> GpuManager:
        return GpuManager(
            self.loop, self.settings, line, relay.say, relay.answers, relay.release, relay.internal_requests,
            self.story, self.status.become, self.status.json,
        )  # fmt: skip

    def run(self) -> None:
        """Starts the kernel and serves it; returns when all is over and cleaned up."""
        self._signals = Signals(self.loop, self.folder / "story", self.story, self._reap)
        self._pending_sigterm = PendingSigterm(
            self.loop, self.kernel, self.relay.cells, self._signals.sigterm_is_pending
        )
        self.loop.later(self.idle_timer.tick, self._tick)
        self.succession.keep_fresh(self.folder, self.story.path)
        return_large_blocks()
        try:
            self._begin()
            self.loop.run()
        except Exception as error:  # ours; the log has the traceback
            event = "fault" if self.kernel.pid else "end"
            self.story.tell(event, f"a fault of the keeper ended it: {type(error).__name__}: {error}")
            if not self.kernel.pid:  # else the kernel has another keeper start
                self._clean_up()
            raise
        self._clean_up()

    # -------------------------------------------------------------------------------------- the kernel's life

    def _begin(self) -> None:
        if self._heritage is None:
            return self._start()
        self.ready.reset()
        self.relay.starts()
        self.gpus.inherit(self._heritage.gpus)  # before others see that nobody has them
        place = self.exit_report.collector.began(self._heritage.kernel)
        self.succession.take_over(self._heritage, self._reap, place)
        self.gpus.begin()
        self.ready.begin()

    def _start(self) -> None:
        self.ready.reset()
        self._ending = ""
        self.relay.starts()
        env = kernel_environment(self.settings, self.folder, self.gpus.environment())
        python = str(self.settings.get("python") or sys.executable)
        try:
            self.kernel.start(python, env, None, self.ready.begin)
        except OSError as error:
            self.status.become("ended", cause=f"the kernel cannot be started: {error}")
            return self._leave()
        pid = self.kernel.pid
        known = {key: str(self.settings.get(key) or "") for key in ("name", "notebook")}
        place = self.exit_report.collector.began(pid)
        self.story.tell("start", f"kernel process {pid} started", pid=pid, **known, **place)
        self.succession.bequeath(self.settings)
        self.status.become("starting")
        self.gpus.begin()

    def _is_up(self) -> None:
        if not self.succession.is_up():
            self.status.become("idle")
        self.relay.begin(self.ready.kernel_info)
        self.replacement.is_up()

    def _reap(self) -> None:
        returncode = self.kernel.reap()
        if returncode is not None:
            self._ended(returncode)

    def _tick(self) -> None:
        """Now and then: is it idle for too long, does its GPU lie unused?"""
        self.loop.later(self.idle_timer.tick, self._tick)
        trim(self.folder / "log")
        if not self.ready.up:
            return
        pid = self.kernel.pid
        advice = self.idle_timer.advise(
            busy=self.status.state != "idle",
            attached=self.server.attached,
            cpu=tree_cpu(pid),
            has_gpu=self.gpus.returnable,
            cuda_open=cuda_is_open(pid),
            named=bool(self.settings.get("notebook")),
        )
        if advice.warn:
            self.story.tell("idle", advice.warn)
        if advice.give_back:
            self.gpus.lend_back()
        if advice.end:
            self._stop(advice.end)

    def _ended(self, returncode: int) -> None:
        """The process is gone; the look for the cause may take seconds, in which requests wait."""
        stderr = "" if self.ready.up else self.kernel.stderr_tail()
        self.kernel.end()
        self.ready.reset()
        self.relay.pauses()
        self._signals.read_reports()
        gpus = self.gpus.uuids
        if self._ending != "restart":
            self.replacement.part_with_gpus()  # at once: the look for the cause takes a moment
        if self._timer is not None:
            self._timer.cancel()
        self._explaining = True
        explained = partial(self._explained, returncode=returncode, stderr=stderr)
        self.exit_report.explain(returncode, self._ending, self._signals.last_sigterm, gpus, explained)

    def _explained(self, text: str, returncode: int, stderr: str) -> None:
        asked, again = self._ending, self._start_again  # perhaps since it ended
        self._explaining = self._start_again = False
        self.relay.end(text, for_good=not again)
        self.succession.ended()
        if again:
            return self._start()
        self.status.become("ended", returncode=returncode, asked=asked, stderr=stderr)
        if asked == "shutdown":
            return self._leave()
        self._timer = self.loop.later(RESTART_WAIT, self._leave)  # unless somebody restarts it

    def _leave(self) -> None:
        """All is over: the GPUs go back at once."""
        self.gpus.give_back()
        self.exit_report.cleanup.end(SETUP)
        self._shutdown.begin(asked=bool(self._ending))

    def _clean_up(self) -> None:
        self.gpus.give_back()
        if self.kernel.pid:
            self.kernel.signal_group(signal.SIGKILL)
        self.exit_report.cleanup.kill()
        self.server.close()
        self.backlog.close()
        shutil.rmtree(str(self.folder), ignore_errors=True)

    # -------------------------------------------------------------------------------------- from the hub

    def _from_hub(self, message: Message) -> None:
        if message.channel is Channel.KEEPER:
            return self._command(message.content())
        try:
            self._request(message)
        except (FieldError, MessageError) as error:  # the kernel would pass over it, too
            self._rejected_input.report(error)

    def _request(self, message: Message) -> None:
        """A front end's request to the kernel."""
        if self.relay.type_of(message) == "shutdown_request":
            self._shut_down(bool(message.content().get("restart")))
        if self.relay.admits(message) and not self.succession.waits(message):
            self.relay.heard(message)
        self._pending_sigterm.watch()

    def _command(self, command: Dict[str, Any]) -> None:
        do = text(command, "do")
        if do == "interrupt":
            cells = map(str, items(command, "cells", MOST_CELLS, default=[]))
            self.relay.interrupt(cells, late=command.get("late") is True)
        elif do == "heard":
            self.relay.aborts.heard(text(command, "reply"))
        elif do == "restart":
            self._restart("restarted by the user")
        elif do == "revive":
            if self.status.state == "ended":
                self._restart("started anew by its user")
        elif do in ("kill", "signal"):
            sent = number(command, "number", signal.SIGKILL, least=1, most=signal.NSIG - 1)
            self.exit_report.collector.sent = sent
            self.kernel.signal_group(sent)
        elif do == "stop":
            self._stop(text(command, "why", "asked to"))
        elif do == "tell":
            self._of_others.tell(text(command, "event", most=64), text(command, "text"))
        elif do == "notebook":
            self.settings["notebook"] = notebook = text(command, "notebook")
            self._of_others.tell("notebook", f"its notebook is {notebook}", notebook=notebook)
            self.succession.bequeath(self.settings)
            self.status.tell()
        elif do == "unanswered":
            self.succession.unanswered(command)

    def _shut_down(self, restart: bool) -> None:
        """A front end asked the kernel to end. The request itself goes on to the kernel, if that hears."""
        self._ending = "restart" if restart else "shutdown"
        self._start_again = self._start_again and restart
        self.gpus.give_up("DeadKernelError", "the kernel was shut down")
        if self.status.state == "ended":
            if not restart:
                self._leave()
        elif self.ready.up:
            self._kill_later(self.replacement.grace)
        else:
            self.kernel.signal_group(signal.SIGKILL)

    def _kill_later(self, grace: float) -> None:
        pid = self.kernel.pid

        def kill() -> None:
            if pid and self.kernel.pid == pid:
                self.kernel.signal_group(signal.SIGKILL)

        self._timer = self.loop.later(grace, kill)

    def _stop(self, why: str) -> None:
        self.story.tell("stop", f"stopped: {why}")
        self.exit_report.collector.why = why
        self.pause.end()
        if self.status.state != "ended" and self.ready.up:
            if self.replacement.by:
                self.relay.internal_requests.ask(Channel.CONTROL, "interrupt_request", {})
            self.relay.internal_requests.ask(Channel.CONTROL, "shutdown_request", {"restart": False})
        self._shut_down(restart=False)

    def _restart(self, why: str) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._shutdown.stay()
        self.story.tell("restart", why)
        if self.kernel.pid or self._explaining:
            self._ending, self._start_again = "restart", True
            self.relay.restarts()
            self.ready.reset()
            self.kernel.signal_group(signal.SIGKILL)
        else:
            self._start()

    # -------------------------------------------------------------------------------------- from the kernel

    def _from_kernel(self, channel: Channel, client: int, parts: Parts) -> None:
        if channel is Channel.IOPUB:
            self.ready.heard_iopub()
        try:
            self.relay.said(channel, client, parts)
        except Exception as error:  # a cell can have its kernel say anything
            self._rejected_input.report(error)
        if self.ready.up and not self.gpus.held:  # the hub hears it itself
            self.status.seen("busy" if self.relay.busy else "idle")

    def _replied(self, msg_id: str) -> None:
        if self._fresh and msg_id == self._fresh:
            self._fresh = ""
            self.loop.later(0, lambda: self._restart("%gpu fresh: a new kernel"))

    def _attached(self) -> None:
        self.pause.end()
        self.story.tell("attach", "a front end is there")
        if HEARD not in self.server.endpoint.features:
            self.relay.aborts.forget()
        self.succession.attached()
        mark = self.relay.aborts.mark()
        if mark is not None:
            self.server.send(Lane.ORDERED, mark)
        self.status.tell(
            Lane.ORDERED if self.status.state == "ended" else Lane.PROMPT
        )  # an end, after all else

    def _detached(self) -> None:
        self.story.tell("drop", "the link is down, or nobody is there")

    # -------------------------------------------------------------------------------------- requests

    def _asked(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """A question at the door: from the agent's office, or from the kernel itself."""
        answers: Dict[Any, Callable[[Dict[str, Any]], Optional[Dict[str, Any]]]] = {
            "status": lambda _: {**self.status.json(), **self._owner()},
            "stop": self._asked_to_stop,
            "pause": lambda _: self.pause.begin() if self.relay.busy and not self.server.attached else None,
            "resume": lambda _: self.pause.end(),
            "return": self._returned,
            "owner": lambda _: self._owner(),
            "missed": self.relay.reattach.asked,
            "fresh": self._renewed,
            "journal": self.relay.reattach.journal,
        }
        do = text(request, "do")
        if do not in answers:
            return {"error": {"code": "unknown", "text": f"a keeper knows no {do!r}"}}
        return answers[do](request) or {"ok": True}

    def _owner(self) -> Dict[str, Any]:
        """Who has this kernel, and in which protocol this keeper speaks with it."""
        return {"protocol": PROTOCOL, **{key: self.settings.get(key, "") for key in _OF_WHOM[1:]}}

    def _asked_to_stop(self, request: Dict[str, Any]) -> None:
        """`replaced_by`: the kernel that its notebook has instead, and that gets the GPUs."""
        self.replacement.by = text(request, "replaced_by", "")
        self._stop(text(request, "why", "asked to"))

    def _returned(self, request: Dict[str, Any]) -> None:
        """Another front end comes to this kernel: what the one before did not hear is kept, and if that is still
        there, it is there no longer."""
        said: Dict[str, Any] = {key: text(request, key) for key in _OF_WHOM if key in request}
        by = said.get("by") or "another front end"
        if self.server.attached:
            self.story.tell("takeover", f"taken over by {by}")
            self.server.detach()
        else:
            notebook = said.get("notebook") or self.settings.get("notebook", "")
            self.story.tell("return", f"back in {said.get('notebook') or by}", notebook=notebook)
        self.settings.update(said)
        self.succession.bequeath(self.settings)
        self.idle_timer.used()
        self.pause.end()
        self.relay.returned(self.server.withdraw(), list(map(str, request.get("others", []))))

    def _renewed(self, request: Dict[str, Any]) -> None:
        """The kernel wants to be a new one, once the cell that says so has its answer."""
        self._fresh = text(request, "cell")
