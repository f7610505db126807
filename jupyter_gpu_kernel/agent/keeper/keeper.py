"""One kernel's keeper: starts the kernel, connects it with hubs, and cleans up when it has ended.

It outlives links, hubs and laptops, and ends with its kernel. This module connects the parts, and decides when the
kernel's process is started, stopped and restarted.
"""

from __future__ import annotations

import shutil
import signal
from functools import partial
from typing import Any, Dict, Optional

from ...wire.fields import FieldError
from ...wire.kernel_messages.compose import Parts, is_user_cell
from ...wire.messages import Channel, Lane, Message, MessageError
from ..exit.descendants import SETUP
from ..gpus.manager import GpuCallbacks, GpuManager
from ..job.member import Membership
from ..kernel_context import KernelContext
from ..kernel_settings import CurrentSettings, KernelSettings
from ..log.log import Log
from ..log.requests import request_type
from ..paths import Root
from ..pinned_code.kernel_code import KernelCode
from ..policy import Policy
from ..process.environment import kernel_environment
from ..process.kernel_sockets import Readiness
from ..process.signals import Pause
from ..relay.relay import Relay
from ..spare.client import Spare
from ..story import Story, read_story
from ..system.loop import Timer
from .commands import KernelCommands, read_unanswered
from .lifetime import EndRequest, Replacement, Shutdown
from .limits.hold_limit import HoldLimit
from .limits.housekeeping import Housekeeping
from .limits.idle_timer import IdleTimer
from .limits.job_notices import JobNotices
from .output_pace import OutputPace
from .server import HubEvents, KeeperServer, RejectedInput
from .status import Status
from .system import KeeperSystem

RESTART_WAIT = 60.0
"""Seconds that the keeper of an ended kernel waits for a restart."""


class Keeper:
    """`run()` until the kernel has ended and will not be restarted. `failover.successor` overrides some methods.

    Most attributes are the parts of the keeper, which read each other here: a part is given the keeper as a whole.
    """

    def __init__(
        self,
        system: KeeperSystem,
        root: Root,
        settings: KernelSettings,
        policy: Optional[Policy],
    ) -> None:
        """`policy`: None if its rules were applied to these settings before."""
        self.system = system
        self.loop = system.loop
        self._context = context = self._make_context(root, policy.apply(settings) if policy else settings)
        self.settings, self.folder, self.story = context.settings, context.folder, context.story
        if policy and str(policy):
            self.story.tell("policy", str(policy))
        self.job: Optional[Membership] = None
        if self.settings.now.job:
            self.job = Membership(self.loop, root, self.settings.now, self._job_event, self._job_over)
        self._make_kernel()
        self._make_relay()
        self.job_notices = None if self.job is None else JobNotices(self, self.job)
        self._commands = KernelCommands(self)
        if self.settings.now.longest_hold is not None:
            HoldLimit(self, self.settings.now.longest_hold)
        self._housekeeping = Housekeeping(self)
        self._end_request = EndRequest.NONE
        self._timer: Optional[Timer] = None  # a SIGKILL, or the end of the wait for a restart

    def _make_context(self, root: Root, settings: KernelSettings) -> KernelContext:
        runtime = self.loop.runtime
        settings = settings.replace(started=settings.started or runtime.time())  # a successor keeps it
        entries = read_story(root.story(settings.id))
        self._story_is_new = all(
            entry.get("event") == "setup" for entry in entries
        )  # the set-up lines' output
        story = Story(root.story(settings.id), runtime.time)
        current = CurrentSettings(settings, self._save_settings)
        folder = root.make_kernel(settings.id)
        return KernelContext(self.loop, self.system.processes, current, root, folder, story)

    def _make_kernel(self) -> None:
        """Make the kernel's process, which is still to be started, and what concerns its life."""
        context = self._context
        spare = Spare(context, self._reap)
        self.kernel = self.system.kernel(context, self._from_kernel, self._marked, spare)
        self.exit_report = self.system.exit_report(context)
        self.idle_timer = IdleTimer(context.settings.now, self.loop.time)
        self.pause = Pause(context, self.kernel)
        self.status = Status(self)

    def _make_relay(self) -> None:
        """Make the server for hubs, the relay between hubs and kernel, and what needs both."""
        loop, settings = self.loop, self.settings.now
        self.log = Log(loop.runtime, self.folder, settings, partial(self.story.tell, "journal"))
        self._rejected_input = RejectedInput(self.story, loop.time)
        events = HubEvents(
            self._from_hub, lambda request: self._commands.answer(request), self._attached, self._detached,
            self._rejected_input.report,
        )  # fmt: skip
        self.server = KeeperServer(loop, self.folder / "keeper", self.log, events, self.system.listen)
        self._output_pace = OutputPace(loop, self.server, self.log, self.kernel.return_mark)
        self._shutdown = Shutdown(loop, self.server, self.idle_timer, self.exit_report.cleanup)
        gpu_callbacks = GpuCallbacks(self._gpus_changed_state, self.status.brief, self.status.tell)
        self.relay = relay = Relay(
            self._context,
            self.log,
            self._to_kernel,
            self.server.send,
            lambda relay: GpuManager(self._context, relay, gpu_callbacks),
            lambda *request: self._code.pin(*request),
        )
        self.gpus: GpuManager = relay.gpus
        self._code = KernelCode(self._context, relay.internal_requests)
        self.ready = Readiness(loop, relay.internal_requests, self._kernel_up)
        self.replacement = Replacement(self._context, self.gpus, relay.greeting_text)
        self._signals = self.system.signals(
            self._context, self.kernel, relay.waiting, self._reap, self.exit_report.guard_switched
        )

    def _gpus_changed_state(self, state: str) -> None:
        self.status.become(state)
        if self.settings.now.held_since != self.gpus.acquisition.held_since:  # a successor goes on counting
            self.settings.change(held_since=self.gpus.acquisition.held_since)

    def run(self) -> None:
        """Start the kernel and serve it; return when it has ended and everything is cleaned up."""
        try:
            self.begin()
            self.loop.run()
        except Exception as error:  # a bug; the log has the traceback
            event = "fault" if self.kernel.pid else "end"
            self.story.tell(event, f"a fault of the keeper ended it: {type(error).__name__}: {error}")
            if not self.kernel.pid:  # else the kernel starts another keeper
                self.clean_up()
            raise
        self.clean_up()

    # -------------------------------------------------------------------------------------- start

    def begin(self) -> None:
        """Start the kernel. Everything else happens in the loop."""
        self._housekeeping.begin()
        self._begin()

    def _begin(self) -> None:
        if self.settings.now.placement:
            self.story.tell("host", self.settings.now.placement)
        notice = self._code.tell_story()
        self.relay.greeting_text.set_notice(notice)
        self.gpus.set_notice(notice)
        self._start()

    def _start(self) -> None:
        self.ready.reset()
        self._end_request = EndRequest.NONE
        self.log.add("requests.kernel_started")
        self.relay.kernel_starting()
        self.replacement.kernel_starting()
        settings = self.settings.now
        env = kernel_environment(self._context, self.gpus.acquisition.environment())
        try:
            self.kernel.start(settings.python, env, self._code.cwd, self.ready.begin)
        except OSError as error:
            self.status.become("ended", cause=f"the kernel cannot be started: {error}")
            return self._leave()
        pid = self.kernel.pid
        known = {"name": settings.name, "notebook": settings.notebook}
        facts = self.exit_report.process_started(pid, guard=settings.sigterm != "default")
        text = f"kernel process {pid} {'forked' if self.kernel.forked else 'started'}"
        self.story.tell("start", text, pid=pid, **known, **facts)
        self._save_settings()
        self.status.become("starting")
        self.gpus.kernel_started()

    def _kernel_up(self) -> None:
        self.status.become("busy" if self.relay.busy else "idle")
        self._code.kernel_up()
        self.relay.kernel_up(self.ready.kernel_info)
        self.replacement.kernel_up()
        self.gpus.kernel_up()

    def _save_settings(self) -> None:
        """Write the settings to the kernel, for the successor that the kernel starts if this keeper is killed."""
        if self.kernel.pid and not self.kernel.pipe.write_successor(self.settings.now):
            text = "the kernel does not read the pipe from its keeper: it cannot replace a killed keeper"
            self.story.tell("fault", text)

    # -------------------------------------------------------------------------------------- end

    def _reap(self) -> None:
        returncode = self.kernel.reap()
        if returncode is not None:
            self._ended(returncode)

    def _ended(self, returncode: int) -> None:
        """The process has ended. To find the reason may take seconds, in which requests wait."""
        stderr = "" if self.ready.up else self.kernel.stderr_tail()
        self.kernel.end()
        self.ready.reset()
        self.relay.kernel_gone()
        self._signals.read_reports()
        gpus = self.gpus.acquisition.uuids
        asked = self._end_request.word
        if asked == "restart":
            self.replacement.kernel_starting()
        else:
            self.replacement.kernel_ended()  # at once, before the reason is found
        self._cancel_timer()
        explained = partial(self._explained, returncode=returncode, stderr=stderr)
        self.exit_report.explain(returncode, asked, self._signals.last_sigterm, gpus, explained)

    def _explained(self, reason: str, returncode: int, stderr: str) -> None:
        request = self._end_request  # which may have been made since the process ended
        restarts = request is EndRequest.RESTART
        self.relay.kernel_ended(reason, for_good=not restarts)
        if restarts:
            return self._start()
        self.status.become("ended", returncode=returncode, asked=request.word, stderr=stderr)
        if request in (EndRequest.SHUTDOWN, EndRequest.JOB_OVER):
            return self._leave()
        self._timer = self.loop.later(RESTART_WAIT, self._leave)

    def _leave(self) -> None:
        """The kernel will not be restarted: release its GPUs at once, and then end."""
        self.replacement.kernel_ended()
        self.exit_report.cleanup.terminate(SETUP)
        self._shutdown.begin(asked=self._end_request is not EndRequest.NONE)

    def clean_up(self) -> None:
        """End what is left of the kernel, and remove its files: the loop has ended."""
        self.gpus.release()
        if self.kernel.pid:
            self.kernel.signal_group(signal.SIGKILL)
        self.exit_report.cleanup.kill()
        self.replacement.close()
        self.server.close()
        self.log.close()
        self._code.remove()
        if self.settings.now.reservation and self._story_is_new:  # the kernel runs on another host
            self.story.remove()
        shutil.rmtree(str(self.folder), ignore_errors=True)
        if self.job is not None:
            self.job.leave()

    # -------------------------------------------------------------------------------------- stop, restart

    def stop(self, why: str, replaced_by: Optional[str] = None) -> None:
        """Shut the kernel down, and end. `replaced_by`: the id of the kernel that gets the GPUs, "" if the GPUs are to
        be free; None keeps what an earlier request has set."""
        if replaced_by is not None:
            self.replacement.set_replaced_by(replaced_by)
        self.story.tell("stop", f"stopped: {why}")
        self.exit_report.stop_reason = why
        self.pause.end()
        if self.status.state != "ended" and self.ready.up:
            if self.replacement.replaced:
                self.relay.internal_requests.send(Channel.CONTROL, "interrupt_request", {})
            self.relay.internal_requests.send(Channel.CONTROL, "shutdown_request", {"restart": False})
        self._prepare_shutdown(restart=False)

    def restart(self, why: str) -> None:
        """Start a new process in place of the present one, or of one that has ended."""
        self._cancel_timer()
        self._shutdown.cancel()
        self.story.tell("restart", why)
        if self.status.state == "ended":
            return self._start()
        self._end_request = EndRequest.RESTART  # the rest follows when the process has ended
        self.relay.kernel_restarting()
        self.ready.reset()
        self.kernel.signal_group(signal.SIGKILL)

    def restart_after(self, cell: str) -> None:
        """Restart the kernel when the reply to the cell with this msg_id has been sent."""
        restart = partial(self.restart, "%gpu fresh: a new kernel")
        self.relay.after_reply(cell, lambda: self.loop.later(0, restart))

    def send_signal(self, number: int) -> None:
        """Send a signal to the kernel's process group for a front end."""
        self.exit_report.signal_sent = number
        self.kernel.signal_group(number)

    def _prepare_shutdown(self, restart: bool) -> None:
        """A shutdown_request is on its way to the kernel: see to it that the process ends."""
        if not restart:
            self._end_request = EndRequest.SHUTDOWN
        elif self._end_request is not EndRequest.RESTART:
            self._end_request = EndRequest.SHUTDOWN_FOR_RESTART
        self.relay.fail_first_cell("DeadKernelError", "the kernel was shut down")
        if self.status.state == "ended":
            if not restart:
                self._leave()
        elif self.ready.up:
            self._timer = self.loop.later(
                self.replacement.grace(restart), partial(self._kill, self.kernel.pid)
            )
        else:
            self.kernel.signal_group(signal.SIGKILL)

    def _kill(self, pid: int) -> None:
        if pid and self.kernel.pid == pid:
            self.kernel.signal_group(signal.SIGKILL)

    def _job_event(self, event: Dict[str, Any]) -> None:
        if self.job_notices is not None:
            self.job_notices.event(event)

    def _job_over(self) -> None:
        """The job's process was killed, and so the job is over: nothing may run on."""
        self.story.tell("job", "the job in which this kernel ran is over")
        self._cancel_timer()
        self._end_request = EndRequest.JOB_OVER
        if self.status.state == "ended":
            return self._leave()
        self.kernel.signal_group(signal.SIGKILL)
        self.exit_report.cleanup.kill()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    # -------------------------------------------------------------------------------------- hub

    def _attached(self) -> None:
        self._housekeeping.attached()
        self.pause.end()
        self.story.tell("attach", "a front end is connected")
        mark = self.relay.aborts.unseen_failures()
        if mark is not None:
            self.server.send(Lane.ORDERED, mark)
        ended = self.status.state == "ended"  # the hub learns of the end after all messages
        self.status.tell(Lane.ORDERED if ended else Lane.PROMPT)

    def _detached(self) -> None:
        self.story.tell("drop", "no front end is connected: it was closed, or the link is down")
        self._housekeeping.detached()

    def _from_hub(self, message: Message) -> None:
        if message.channel is Channel.KEEPER:
            return self._commands.execute(message.content())
        try:
            self._request(message)
        except (FieldError, MessageError) as error:  # the kernel would ignore it, too
            self._rejected_input.report(error)

    def _request(self, message: Message) -> None:
        """A front end's request to the kernel."""
        if request_type(message) == "shutdown_request":
            self._prepare_shutdown(bool(message.content().get("restart")))
        if is_user_cell(message):
            self.idle_timer.used()
        if self.relay.admit(message):
            self.relay.handle_request(message)
        self._signals.watch_cell()

    def set_unanswered(self, command: Dict[str, Any]) -> None:
        """The hub, whose predecessor was killed, lists the cells that have no reply. Handle those that never came."""
        for cell in read_unanswered(command):
            if self.log.receive(self.log.state.received_counts, cell):
                self._from_hub(cell)

    # -------------------------------------------------------------------------------------- kernel

    def _marked(self, total: int) -> None:
        """The kernel has sent so many bytes up to the last message."""
        if not self.relay.greeting.waiting:  # else that would be lost with this keeper
            self._output_pace.handled(total)

    def _to_kernel(self, channel: Channel, client: int, parts: Parts) -> None:
        self.log.flush()  # before the kernel gets a request
        self.kernel.send(channel, client, parts)

    def _from_kernel(self, channel: Channel, client: int, parts: Parts) -> None:
        if channel is Channel.IOPUB:
            self.ready.received_iopub()
        try:
            self.relay.handle_kernel_message(channel, client, parts)
        except Exception as error:  # a cell can make its kernel send anything
            self._rejected_input.report(error)
        if self.ready.up and self.relay.waiting.first_cell is None:  # the hub sees it in the same messages
            self.status.seen("busy" if self.relay.busy else "idle")
