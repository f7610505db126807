"""Slurm on one login node: submits, watches and cancels jobs, and says how they ended.

One squeue for all jobs of all kernels, at least 10 s after the one before; the longer nothing changes, the rarer. If
the controller or the login node does not answer, watchers learn that, and the watch goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any

from ...errors import AgentError, GpuKernelError
from ...wire.runtime import Runtime
from ..node.node import Node
from ..node.nodes import Nodes
from ..node.shared_connection import Connection, RouteSettings
from ..rpc import Call
from . import commands, dialect, login_node, rejection
from .commands import JOB_NAME
from .dialect import GONE, JobState
from .job_end import JobEnd, job_end
from .login_node import Commands, Output

INTERVAL = 10.0
"""Seconds between two polls, at least."""
LONGEST_INTERVAL = 60.0
FIRST_LOOK = 1.0
"""Seconds from a new watch to the first poll, if the last one is long enough ago."""
_TIMEOUT = 60.0
_SUBMIT_TIMEOUT = 180.0  # sbatch itself repeats its request while the controller is busy
Changed = Callable[[JobState], None]


class Scheduler:
    """`await submit(script, call)`, `watch(job_id, changed)`, `await ended(job_id)`, `await cancel(job_id)`."""

    def __init__(self, runtime: Runtime, node: Callable[[], Node], log: logging.Logger) -> None:
        """`node()` returns the login node."""
        self._runtime = runtime
        self._node = node
        self._log = log
        self._commands: Commands | None = None
        self._watched: list[_Watched] = []
        self._poller: asyncio.Task[None] | None = None
        self._woken = asyncio.Event()
        self._last_poll = -LONGEST_INTERVAL
        self._jobs: dict[str, JobState] = {}
        self._failed_since: float | None = None

    async def commands(self, call: Call | None = None) -> Commands:
        """Return where Slurm's commands are. Raises AgentError if this machine has none."""
        if self._commands is None:
            output = await self._run_script(login_node.LOCATE, call, _TIMEOUT)
            found = login_node.located(output)
            if found is None:
                raise AgentError(
                    "there is no Slurm on this machine: sbatch is not in PATH, nor in a login shell's",
                    hop=self._node().name,
                    remedy="Give the cluster's login node as DESTINATION, or leave out --slurm.",
                )
            if output.status:
                raise rejection.failed("sbatch --version", output, self._node().name)
            self._commands = found
        return self._commands

    async def run(self, *lines: str, call: Call | None = None, timeout: float = _TIMEOUT) -> Output:
        """Run shell lines with Slurm's commands on the login node. They must be harmless when they run twice."""
        return await self._run_script((await self.commands(call)).script(*lines), call, timeout)

    # -------------------------------------------------------------------------------------- jobs

    async def submit(self, script: bytes, call: Call | None) -> str:
        """Submit a batch script, and return the job's id. While the controller is away, wait for it.

        Raises SettingsError with sbatch's words and the option to change. It never submits twice: when the answer to an
        attempt is lost, the next one looks for a job of that name first.
        """
        place = await self.commands(call)
        first = place.script(commands.submit_command(script))
        again = place.script(commands.submit_command(script, check_name=True))
        attempts = 0

        def work(connection: Connection) -> Output:
            nonlocal attempts
            attempts += 1
            sent = first if attempts == 1 else again
            return Output.of(connection.run("/bin/sh", stdin=sent, timeout=_SUBMIT_TIMEOUT))

        while True:
            output = await self._node().run(call, work)
            if job_id := dialect.submitted(output):
                return job_id
            error = rejection.rejected(output, self._node().name)
            if not isinstance(error, rejection.ControllerAway):
                raise error
            if call is not None:
                call.progress(self._node().name, f"{error.cause}; waiting for it")
            await asyncio.sleep(INTERVAL)

    async def test(self, script: bytes, call: Call | None) -> str:
        """Return what `sbatch --test-only` says of a script; no job is left. Raises SettingsError if it refuses it."""
        output = await self.run(commands.submit_command(script, test_only=True), call=call)
        if output.status:
            raise rejection.rejected(output, self._node().name)
        return rejection.words(output)

    async def cancel(self, job_id: str, signal: str = "", call: Call | None = None) -> None:
        """Cancel a job; with `signal` ("KILL") send it to all processes of the job instead. A job that has ended is no
        error."""
        output = await self.run(commands.cancel_command(job_id, signal), call=call)
        if output.status and not rejection.is_gone(output):
            raise rejection.failed("scancel", output, self._node().name)

    async def ended(self, job_id: str, call: Call | None = None) -> JobEnd | None:
        """Return how a job ended; None if it has not ended."""
        output = await self.run(commands.show_command(job_id), call=call)
        record = dialect.shown(output)
        if record is None and rejection.is_away(output):
            raise rejection.away(output, self._node().name)
        if record is None or record.state == "CANCELLED":
            output = await self.run(commands.accounting_command(job_id), call=call)
            accounted = dialect.accounted(output)
            if accounted is not None and record is not None:
                record = record._replace(uid=accounted.uid, user=accounted.user, own=accounted.own)
            else:
                record = record or accounted
        return job_end(job_id, record)

    async def jobs(self, call: Call | None = None) -> list[JobState]:
        """Return the user's jobs that are ours, from the last poll if that was just now."""
        if self._runtime.monotonic() - self._last_poll >= INTERVAL:
            await self._look(call)
        return [job for job in self._jobs.values() if job.name.startswith(JOB_NAME)]

    # -------------------------------------------------------------------------------------- the poll

    def watch(self, job_id: str, changed: Changed) -> Callable[[], None]:
        """Call `changed(state)` on the event loop when the job's state changes; return a function that ends this.

        After a state with `over` it is not called any more.
        """
        watched = _Watched(job_id, changed, self._runtime.monotonic())
        self._watched.append(watched)
        self._woken.set()
        if self._poller is None or self._poller.done():
            self._poller = asyncio.get_running_loop().create_task(self._poll())

        def end() -> None:
            if watched in self._watched:
                self._watched.remove(watched)
                self._woken.set()

        return end

    def close(self) -> None:
        """End all watches."""
        self._watched.clear()
        if self._poller is not None:
            self._poller.cancel()

    async def _poll(self) -> None:
        while self._watched:
            wait = self._next_poll() - self._runtime.monotonic()
            if wait > 0:
                self._woken.clear()
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._woken.wait(), wait)
                continue
            try:
                await self._look(None)
            except GpuKernelError as error:
                self._tell_problem(error)
            else:
                self._failed_since = None
                self._tell()

    def _next_poll(self) -> float:
        """Return the time of the next poll."""
        now, earliest = self._runtime.monotonic(), self._last_poll + INTERVAL
        new = [one for one in self._watched if one.state is None]
        if self._failed_since is not None:
            unchanged = now - self._failed_since
        elif new:  # several jobs that are submitted at once share the first look
            return max(earliest, min(one.since for one in new) + FIRST_LOOK)
        else:
            unchanged = min(now - one.since for one in self._watched)
        return self._last_poll + max(INTERVAL, min(LONGEST_INTERVAL, unchanged / 10))

    async def _look(self, call: Call | None) -> None:
        """Run squeue once. Raises GpuKernelError if it cannot be asked."""
        self._last_poll = self._runtime.monotonic()
        everyone = any(one.state is None or one.state.state == "PENDING" for one in self._watched)
        place = await self.commands(call)
        output = await self.run(commands.queue_command(everyone), call=call)
        self._last_poll = self._runtime.monotonic()
        jobs = dialect.queue(output, place.private_jobs or not everyone)
        if jobs is None:
            name = self._node().name
            raise (
                rejection.away(output, name)
                if rejection.is_away(output)
                else rejection.failed("squeue", output, name)
            )
        self._jobs = jobs

    def _tell(self) -> None:
        for one in list(self._watched):
            state = self._jobs.get(one.job_id, JobState(one.job_id, GONE))
            if state.over:
                self._watched.remove(one)
            self._notify(one, state)

    def _tell_problem(self, error: GpuKernelError) -> None:
        if self._failed_since is None:
            self._failed_since = self._runtime.monotonic()
            self._log.warning("%s: jobs cannot be watched at present: %s", error.hop, error.cause)
        for one in list(self._watched):
            state = one.state or JobState(one.job_id, "PENDING")
            self._notify(one, state._replace(problem=str(error)))

    def _notify(self, one: _Watched, state: JobState) -> None:
        if state == one.state:
            return
        if one.state is None or (state.state, state.reason) != (one.state.state, one.state.reason):
            one.since = self._runtime.monotonic()
        one.state = state
        try:
            one.changed(state)
        except Exception:  # the other watchers must learn it all the same
            self._log.exception("the state of job %s was not taken", one.job_id)

    async def _run_script(self, script: bytes, call: Call | None, timeout: float) -> Output:
        def work(connection: Connection) -> Output:
            return Output.of(connection.run("/bin/sh", stdin=script, timeout=timeout))

        return await self._node().run(call, work)


class _Watched:
    """A job that is watched. `since`: when its state changed, or the watch began."""

    def __init__(self, job_id: str, changed: Changed, since: float) -> None:
        self.job_id = job_id
        self.changed = changed
        self.since = since
        self.state: JobState | None = None


class Schedulers:
    """The scheduler of each login node."""

    def __init__(self, runtime: Runtime, nodes: Nodes, log: logging.Logger) -> None:
        self._runtime = runtime
        self._nodes = nodes
        self._log = log
        self._schedulers: dict[RouteSettings, Scheduler] = {}

    def of(self, settings: dict[str, Any]) -> Scheduler:
        """Return the scheduler of the login node to which these settings lead."""
        route = RouteSettings.from_settings(settings)
        if route not in self._schedulers:
            self._schedulers[route] = Scheduler(
                self._runtime, lambda: self._nodes.of(route.to_settings()), self._log
            )
        return self._schedulers[route]

    def close(self) -> None:
        """End all watches."""
        for scheduler in self._schedulers.values():
            scheduler.close()
