"""One kernel's keeper: starts the kernel, connects it with hubs, and cleans up when it has ended.

It outlives links, hubs and laptops, and ends with its kernel. This module connects the parts, and decides when the
kernel's process is started, stopped and restarted.
"""

from __future__ import annotations

import shutil
import signal
import socket
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, Optional, Sequence, Type

from ...wire.messages import Channel, Lane, Message
from ..core import effects, events
from ..exit.descendants import SETUP
from ..gpus.manager import GpuCallbacks, GpuManager
from ..gpus.sharing.lease_transfer import new_queue
from ..kernel_context import KernelContext
from ..kernel_settings import CurrentSettings, KernelSettings
from ..paths import Root
from ..pinned_code.kernel_code import KernelCode
from ..policy import Policy
from ..process.environment import kernel_environment
from ..process.kernel_requests import KernelRequests
from ..spare.client import Spare
from ..story import Story, read_story
from ..system.loop import Timer
from .commands import KernelCommands, Status, read_unanswered
from .core_runner import CoreRunner
from .lifetime import EndRequest, Replacement, Shutdown
from .limits.housekeeping import Housekeeping
from .limits.idle_timer import IdleTimer
from .server import HubEvents, KeeperServer, OutputPace, RejectedInput
from .system import KeeperSystem

RESTART_WAIT = 60.0
"""Seconds that the keeper of an ended kernel waits for a restart."""
_MAX_ENDED = 500
"""Ended requests of which the kernel's process is told: the pipe to it has to take their keys."""


class Keeper:
    """`run()` until the kernel has ended and will not be restarted. `failover.successor` overrides some methods.

    Most attributes are the parts of the keeper, which read each other here: a part is given the keeper as a whole.
    """

    def __init__(
        self, system: KeeperSystem, root: Root, settings: KernelSettings, policy: Optional[Policy]
    ) -> None:
        """`policy`: None if its rules were applied to these settings before."""
        self.system = system
        self.loop = system.loop
        self._context = context = self._make_context(root, policy.apply(settings) if policy else settings)
        self.settings, self.folder, self.story = context.settings, context.folder, context.story
        if policy and str(policy):
            self.story.tell("policy", str(policy))
        self._make_kernel()
        self._make_core()
        self.job = system.job(self, root) if self.settings.now.job else None
        self._commands = KernelCommands(self)
        self._housekeeping = Housekeeping(self)
        self._end_request = EndRequest.NONE
        self._ended_before: Sequence[str] = ()  # the kernel's process started: see `RunningKernel.ended`
        self._restarts_after = ""  # the msg_id of the cell that has asked for a restart
        self._timer: Optional[Timer] = None  # a SIGKILL, or the end of the wait for a restart

    def _make_context(self, root: Root, settings: KernelSettings) -> KernelContext:
        runtime = self.loop.runtime
        settings = settings.replace(started=settings.started or runtime.time())  # a successor keeps it
        entries = read_story(root.story(settings.id))
        # The output of the set-up lines is told before.
        self._story_is_new = all(entry.get("event") == "setup" for entry in entries)
        story = Story(root.story(settings.id), runtime.time)
        current = CurrentSettings(settings, self._save_settings)
        folder = root.make_kernel(settings.id)
        return KernelContext(self.loop, current, root, folder, story, self._lease_queue(folder))

    def _lease_queue(self, folder: Path) -> socket.socket:
        """Return the socket that keeps the leases of the kernel with this folder."""
        return new_queue(self.loop.runtime, folder)

    def _make_kernel(self) -> None:
        """Make the kernel's process, which is still to be started, and what concerns its life."""
        context = self._context
        spare = Spare(context, self._reap)
        self.kernel = self.system.kernel(context, self._from_kernel, self._marked, spare)
        self.exit_report = self.system.exit_report(context)
        self.idle_timer = IdleTimer(context.settings.now, self.loop.time)
        self.status = Status(self)

    def _make_core(self) -> None:
        """Make the core, and what asks it or carries out its effects."""
        loop, context = self.loop, self._context
        self.runner = CoreRunner(loop, self.folder, self.settings.now, partial(self.story.tell, "journal"))
        self.core, self.handle = self.runner.core, self.runner.handle
        self.requests = KernelRequests(loop, self._to_kernel, self._kernel_up)
        self._rejected_input = RejectedInput(self.story, loop.time)
        hub_events = HubEvents(
            lambda request: self._commands.answer(request), self._attached, self._detached, self._rejected_input.report,
            lambda: self.settings.now.owner,
        )  # fmt: skip
        self.server = KeeperServer(loop, self.folder / "keeper", self.runner, hub_events, self.system.listen)
        self._output_pace = OutputPace(loop, self.server, self.runner, self.kernel.return_mark)
        self._shutdown = Shutdown(self.server, self.idle_timer, self.exit_report.cleanup)
        callbacks = GpuCallbacks(
            self.requests.evaluate, self.handle, self.status.become, self.status.brief, self.status.tell
        )
        self.gpus = GpuManager(context, callbacks)
        self._code = KernelCode(context, self.requests.evaluate, self.handle)
        self.replacement = Replacement(context, self.gpus, self.handle)
        self._signals = self.system.signals(
            context, self.kernel, self.core.relay.waiting, self._reap, self.exit_report.guard_switched
        )
        self.runner.actions.update(self._actions())

    def _actions(self) -> Dict[Type[Any], Callable[..., object]]:
        return {
            effects.ToKernel: self._to_kernel,
            effects.CommandReceived: lambda command: self._commands.execute(command),
            effects.RequestReceived: self._request_received,
            effects.ReplySent: self._reply_sent,
            effects.Want: self._want,
            effects.InputRejected: self._rejected_input.report,
        }

    def _want(self, code: Optional[Message], gpus: Optional[Message]) -> None:
        self._code.want(code)
        self.gpus.want(gpus is not None)

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
        self.handle(events.GreetingChanged("notice", notice))
        self.gpus.notice = notice
        self._start()

    def _start(self) -> None:
        self.requests.reset()
        self._end_request = EndRequest.NONE
        self.handle(events.KernelStarting())
        self.runner.log_file.flush()  # a successor must not send the new process what the old one has run
        ended = self.core.log.state.ended_requests(self.runner.log_file.queue.parents)
        self._ended_before = [*ended, *self._ended_before][:_MAX_ENDED]
        self.replacement.kernel_starting()
        settings = self.settings.now
        env = kernel_environment(self._context, self.gpus.acquisition.environment())
        try:
            self.kernel.start(settings.python, env, self._code.cwd, self.requests.begin)
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
        self.status.become("busy" if self.core.relay.busy else "idle")
        self._code.kernel_up()
        self.handle(events.KernelUp(self.requests.kernel_info))
        self.replacement.kernel_up()
        self.gpus.kernel_up()

    def _save_settings(self) -> None:
        """Write the settings to the kernel, for the successor that the kernel starts if this keeper is killed."""
        if self.kernel.pid and not self.kernel.pipe.write_successor(self.settings.now, self._ended_before):
            text = "the kernel does not read the pipe from its keeper: it cannot replace a killed keeper"
            self.story.tell("fault", text)

    # -------------------------------------------------------------------------------------- end

    def _reap(self) -> None:
        returncode = self.kernel.reap()
        if returncode is not None:
            self._ended(returncode)

    def _ended(self, returncode: int) -> None:
        """The process has ended. To find the reason may take seconds, in which requests wait."""
        stderr = "" if self.requests.up else self.kernel.stderr_tail()
        self.kernel.end()
        self.requests.reset()
        self.handle(events.KernelGone())
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
        self.handle(events.KernelEnded(reason, for_good=not restarts))
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
        self.runner.log_file.close()
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
            self.replacement.replaced_by = replaced_by
        self.story.tell("stop", f"stopped: {why}")
        self.exit_report.stop_reason = why
        if self.status.state != "ended" and self.requests.up:
            if self.replacement.replaced_by:
                self.requests.send(Channel.CONTROL, "interrupt_request", {})
            self.requests.send(Channel.CONTROL, "shutdown_request", {"restart": False})
        self._prepare_shutdown(restart=False)

    def restart(self, why: str) -> None:
        """Start a new process in place of the present one, or of one that has ended."""
        self._cancel_timer()
        self._shutdown.cancel()
        self.story.tell("restart", why)
        if self.status.state == "ended":
            return self._start()
        self._end_request = EndRequest.RESTART  # the rest follows when the process has ended
        self.handle(events.KernelRestarting())
        self.requests.reset()
        self.kernel.signal_group(signal.SIGKILL)

    def restart_after(self, cell: str) -> None:
        """Restart the kernel when the reply to the cell with this msg_id has been sent."""
        self._restarts_after = cell

    def _reply_sent(self, cell: str) -> None:
        if cell == self._restarts_after:
            self._restarts_after = ""
            self.loop.later(0, partial(self.restart, "%gpu fresh: a new kernel"))

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
        self.handle(events.CellsFailed("DeadKernelError", "the kernel was shut down", only_first=True))
        if self.status.state == "ended":
            if not restart:
                self._leave()
        elif self.requests.up:
            self._timer = self.loop.later(
                self.replacement.grace(restart), partial(self._kill, self.kernel.pid)
            )
        else:
            self.kernel.signal_group(signal.SIGKILL)

    def _kill(self, pid: int) -> None:
        if pid and self.kernel.pid == pid:
            self.kernel.signal_group(signal.SIGKILL)

    def job_over(self) -> None:
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
        self.story.tell("attach", "a front end is connected")
        ended = self.status.state == "ended"  # the hub learns of the end after all messages
        self.status.tell(Lane.ORDERED if ended else Lane.PROMPT)

    def _detached(self) -> None:
        self.story.tell("drop", "no front end is connected: it was closed, or the link is down")
        self._housekeeping.detached()

    def _request_received(self, request: Message, by_user: bool) -> None:
        """A front end's request to the kernel is handled next."""
        if request.msg_type == "shutdown_request":
            self._prepare_shutdown(bool(request.content().get("restart")))
        if by_user:
            self.idle_timer.used()
        self._signals.watch_cell()

    def interrupt(self) -> None:
        """Interrupt the cell that runs, or that waits."""
        self.handle(events.InterruptRequested())

    def set_unanswered(self, command: Dict[str, Any]) -> None:
        """The hub, or this keeper, has a killed predecessor: the hub lists the requests that have no reply. Handle
        those that never came."""
        for request in read_unanswered(command):
            self.handle(events.HubSent(self.core.log.state.received_counts, request))

    # -------------------------------------------------------------------------------------- kernel

    def _marked(self, total: int) -> None:
        """The kernel has sent so many bytes up to the last message."""
        if not self.core.relay.greeting.waiting:  # else that would be lost with this keeper
            self._output_pace.handled(total)

    def _to_kernel(self, request: Message) -> None:
        self.runner.log_file.flush()  # before the kernel gets a request
        self.kernel.send(request)

    def _from_kernel(self, message: Message) -> None:
        try:
            self.handle(events.KernelSent(message))
            self.requests.handle(message)
        except Exception as error:  # a cell can make its kernel send anything
            self._rejected_input.report(error)
        relay = self.core.relay
        if self.requests.up and relay.waiting.first_cell is None:  # the hub sees it in the same messages
            self.status.seen("busy" if relay.busy else "idle")
