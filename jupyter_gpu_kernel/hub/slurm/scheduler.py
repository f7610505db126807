"""Slurm on one login node: submits, watches and cancels jobs, says how they ended, and shows partitions and nodes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from ...errors import AgentError, GpuKernelError
from ...wire.runtime import Runtime
from ..kernel_settings import KernelSettings
from ..node.node import Node
from ..node.nodes import Nodes
from ..node.shared_connection import RouteSettings
from ..rpc import Call
from ..transport.connection import Connection, Output
from . import commands, dialect, partitions, words
from .commands import Commands
from .dialect import JobState
from .job_queue import INTERVAL, Changed, JobQueue
from .partitions import SlurmCluster
from .words import JobEnd, job_end

_TIMEOUT = 60.0
_SUBMIT_TIMEOUT = 180.0  # sbatch itself repeats its request while the controller is busy


class Scheduler:
    """Slurm's commands on one login node. `call`: the hub client's call for which a command runs, if there is one."""

    def __init__(self, runtime: Runtime, node: Callable[[], Node], log: logging.Logger) -> None:
        """`node()` returns the login node."""
        self._runtime = runtime
        self._node = node
        self._commands: Commands | None = None
        self._locating = asyncio.Lock()
        self._queue = JobQueue(runtime, self._squeue, self._has_ended, log)
        self._cluster: SlurmCluster | None = None
        self._cluster_time = 0.0

    @property
    def name(self) -> str:
        """The login node as the user wrote it."""
        return self._node().name

    async def commands(self, call: Call | None = None) -> Commands:
        """Return where Slurm's commands are. Raises AgentError if this machine has none."""
        async with self._locating:
            if self._commands is None:
                self._commands = await self._locate(call)
        return self._commands

    async def run(self, line: str, call: Call | None = None, timeout: float = _TIMEOUT) -> Output:
        """Run lines of sh with Slurm's commands on the login node. They must be harmless when they run twice."""
        return await self._run(call, (await self.commands(call)).script(line), timeout)

    # -------------------------------------------------------------------------------------- jobs

    async def submit(self, script: bytes, call: Call | None = None) -> str:
        """Submit a batch script, and return the job's id.

        Raises SettingsError with sbatch's words and the option to change, and ConnectError if Slurm does not answer.
        After a ConnectError the job may have been submitted all the same. Another attempt does not submit the job
        twice: each attempt looks for a job of that name first.
        """
        output = await self.run(commands.submit_command(script), call, _SUBMIT_TIMEOUT)
        job_id = dialect.submitted(output)
        if not job_id:
            raise words.rejected(output, self.name)
        self._queue.add(JobState(job_id, "PENDING", name=commands.job_name(script)))
        return job_id

    async def test(self, script: bytes, call: Call | None) -> str:
        """Return what `sbatch --test-only` says of a script, without submitting a job. Raises SettingsError if sbatch
        refuses the script."""
        output = await self.run(commands.test_command(script), call)
        if output.status:
            raise words.rejected(output, self.name)
        return dialect.test_verdict(words.printed(output))

    async def cancel(self, job_id: str, call: Call | None = None, *, kill: bool = False) -> None:
        """Cancel a job; with `kill` without the time that Slurm leaves to SIGTERM. A job that has ended is no error."""
        await self._cancel(commands.cancel_command(job_id, kill=kill), call)
        self._queue.remove(job_id)

    async def cancel_named(self, name: str) -> None:
        """Cancel the jobs of this name, if there are any."""
        await self._cancel(commands.cancel_named_command(name))

    async def _cancel(self, line: str, call: Call | None = None) -> None:
        output = await self.run(line, call)
        if output.status and not words.is_gone(output):
            raise self._failed("scancel", output)

    async def ended(self, job_id: str, name: str, call: Call | None = None) -> JobEnd | None:
        """Return how the user's job of this id and name ended; None if the job has not ended."""
        output = await self.run(commands.ended_command(job_id, name), call)
        record = dialect.record(output, job_id, name)
        if record is None and output.status and not words.is_gone(output):
            raise self._failed("scontrol show job", output)
        return job_end(job_id, record)

    def watch(self, job_id: str, name: str, changed: Changed) -> Callable[[], None]:
        """Watch the job of this id and name: see `JobQueue.watch`."""
        return self._queue.watch(job_id, name, changed)

    async def jobs(self, call: Call | None = None) -> list[JobState]:
        """Return the jobs of our kernels, of all hubs of the user, as they were within the last 10 s."""
        return [job for job in await self.all_jobs(call) if job.kernel_id]

    async def all_jobs(self, call: Call | None = None) -> list[JobState]:
        """Return all jobs of the user's, as they were within the last 10 s."""
        await self.commands(call)  # which signs in, if only the user can
        return await self._queue.jobs()

    async def cluster(self, call: Call | None = None) -> SlurmCluster:
        """Return the partitions and nodes, as they were within the last 10 s."""
        now = self._runtime.monotonic()
        if self._cluster is None or now - self._cluster_time >= INTERVAL:
            output = await self.run(partitions.COMMAND, call)
            found = await asyncio.to_thread(partitions.cluster, output)  # there may be thousands of nodes
            if found is None:
                raise self._failed("sinfo", output)
            self._cluster, self._cluster_time = found, self._runtime.monotonic()
        return self._cluster

    def close(self) -> None:
        """End all watches."""
        self._queue.close()

    # -------------------------------------------------------------------------------------- helpers

    async def _locate(self, call: Call | None) -> Commands:
        output = await self._run(call, commands.LOCATE)
        found = commands.located(output)
        if found is None:
            raise AgentError(
                "there is no Slurm on this machine: sbatch is not in PATH, nor in a login shell's",
                hop=self.name,
                remedy="Give the cluster's login node as DESTINATION, or leave out --slurm.",
            )
        if output.status:
            raise self._failed("sbatch --version", output)
        return found

    async def _squeue(self, everyone: bool) -> dict[str, JobState]:
        place = await self.commands()
        output = await self.run(commands.queue_command(everyone))
        private = place.private_jobs or not everyone
        jobs = await asyncio.to_thread(dialect.queue, output, private)  # the queue may be long
        if jobs is None:
            raise self._failed("squeue", output)
        return jobs

    async def _has_ended(self, job_id: str, name: str) -> bool:
        return await self.ended(job_id, name) is not None

    def _failed(self, command: str, output: Output) -> GpuKernelError:
        away = words.is_away(output)
        return words.away(output, self.name) if away else words.failed(command, output, self.name)

    async def _run(self, call: Call | None, script: bytes, timeout: float = _TIMEOUT) -> Output:
        """Run a script for /bin/sh on the login node; once more if the connection was lost."""

        def work(connection: Connection) -> Output:
            return Output.of(connection.run("/bin/sh", stdin=script, timeout=timeout))

        node = self._node()
        try:
            return await node.run(call, work)
        except GpuKernelError as error:
            error.fill_in("NAME", (node.describe()["names"] or [""])[-1])
            raise


class Schedulers:
    """The scheduler of each login node."""

    def __init__(self, runtime: Runtime, nodes: Nodes, log: logging.Logger) -> None:
        self._runtime = runtime
        self._nodes = nodes
        self._log = log
        self._schedulers: dict[RouteSettings, Scheduler] = {}

    def of(self, settings: KernelSettings) -> Scheduler:
        """Return the scheduler of the login node to which these settings lead."""
        route = RouteSettings.from_settings(settings)
        if route not in self._schedulers:
            self._schedulers[route] = Scheduler(self._runtime, lambda: self._nodes.at(route), self._log)
        return self._schedulers[route]

    def at(self, node: Node) -> Scheduler:
        """Return a scheduler over this connection to a login node, for a short use."""
        return Scheduler(self._runtime, lambda: node, self._log)

    def close(self) -> None:
        """End all watches."""
        for scheduler in self._schedulers.values():
            scheduler.close()
