"""The node of a job that runs: over SSH through the login node, or by a step of the job, started on the login node.
And what a job has printed (slurm-ID.out), which is read on its node after its end, if the node can be reached then.

SSH to the job's node may be refused (without a job of ours there, or at all), its host key may be unknown, or it may
show another /tmp than the job's. A step always sees what the job sees. Its stdin and stdout pass through the connection
to the login node, which all its jobs share: nobody signs in a second time. But the login node can read them. So a host
key that is not the expected one ends the start: whoever shows it must not choose the step by that.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shlex
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from ...errors import AuthError, GpuKernelError, HostKeyError, UnknownHost
from .. import sanitize
from ..kernel_settings import KernelSettings
from ..node.node import Node
from ..node.node_link import NodeLink
from ..node.nodes import Nodes
from ..slurm.commands import Commands
from ..slurm.dialect import JobState, is_job_id
from ..slurm.scheduler import Schedulers
from ..transport.connection import Connection, Output, source

_SOON = (1.0, 1.5, 15.0)
"""Seconds until a job's process is looked for again that may not have been started yet: the first time, the factor for
later ones, at most."""
_LATER = (3.0, 2.0, 60.0)
"""These three numbers where no route leads to the node: servers block clients whose sign-in fails often."""
_OTHERS_EVERY = 4
"""While a route leads to the node, where the job's process may not run yet, the other routes are tried in one of so
many rounds: the first time after 5 seconds."""
_CONNECT_WITHIN = 60.0
SSH, STEP = "ssh", "srun"
"""The routes to a job's node, as the setting `way` and `ps` name them."""
_OUTPUT_WITHIN = 20.0
"""Seconds for the connection to the node, and the file with what the job has printed."""
MAX_LINES = 40
"""The last lines of a job's output, which are kept."""


class Reached(NamedTuple):
    """A job's node: the link to it, and a kernelspec's settings that lead there."""

    node: Node
    link: NodeLink
    settings: KernelSettings


@dataclass
class _Route:
    """One route to a job's node. `problem`: why the last attempt failed. `node`: the node to which the route leads,
    also if the job's process is not seen there; None if the route leads nowhere."""

    name: str
    problem: str = ""
    node: Node | None = None


class JobNodes:
    """`await reach(…)` connects to a job's node. Remembers which route led there, for each login node."""

    def __init__(self, nodes: Nodes, schedulers: Schedulers, log: logging.Logger) -> None:
        self._nodes = nodes
        self._schedulers = schedulers
        self._log = log
        self._worked: dict[str, str] = {}
        self._reached: dict[tuple[str, str], Node] = {}  # by login node and job

    def login(self, settings: KernelSettings) -> Node:
        """Return the login node to which these settings lead."""
        return self._nodes.of(settings.at_login())

    async def reach(self, settings: KernelSettings, job: JobState, tell: Callable[[str], None]) -> Reached:
        """Connect to the job's node, and wait until the job's process answers there: its set-up lines may take long.

        `tell(text)` is called with what is being done. Goes on until the caller cancels it. Raises HostKeyError if a
        host shows another host key than the expected one.
        """
        login = self.login(settings)
        routes = [_Route(name) for name in self._allowed_routes(login, settings)]
        taken: Reached | None = None
        tell("connecting to it")
        try:
            taken = await self._try_routes(routes, settings, job, tell)
            self._reached[login.name, job.id] = taken.node
            self._worked[login.name] = next(one.name for one in routes if one.node is taken.node)
            return taken
        finally:
            for node in [one.node for one in routes if one.node is not None]:
                if taken is None or node is not taken.node:
                    await self._discard(node)

    async def _try_routes(
        self, routes: list[_Route], settings: KernelSettings, job: JobState, tell: Callable[[str], None]
    ) -> Reached:
        """Try one route after the other, with growing pauses, until one leads to the job's process."""
        pause, rounds, leading = 0.0, 0, list[_Route]()
        while True:
            rounds += 1
            for route in routes:
                if leading and route not in leading and rounds % _OTHERS_EVERY:
                    continue
                if reached := await self._try(route, settings, job):
                    return await self._prefer_ssh(reached, routes, settings, job)
                leading = [one for one in routes if one.node is not None]
            if leading:
                tell("waiting for its process to start, after its set-up lines")
            else:
                problems = (f"by {one.name}: {one.problem}" for one in routes)
                tell(f"it cannot be reached yet: {'; '.join(problems)}")
            first, factor, most = _SOON if leading else _LATER
            pause = min(max(first, pause * factor), most)
            await asyncio.sleep(pause)

    async def _prefer_ssh(
        self, reached: Reached, routes: list[_Route], settings: KernelSettings, job: JobState
    ) -> Reached:
        """Return what was reached. If only a step saw the job's process, although SSH leads to the node, try SSH once
        more, as the process may run by now: over SSH nobody on the login node can read what passes."""
        leading = [one for one in routes if one.name == SSH and one.node not in (None, reached.node)]
        return (await self._try(leading[0], settings, job) if leading else None) or reached

    async def _try(self, route: _Route, settings: KernelSettings, job: JobState) -> Reached | None:
        """Return what the route leads to. If the job's process is not seen, record the reason and return None."""
        connect = self._by_ssh if route.name == SSH else self._by_step
        try:
            return await asyncio.wait_for(connect(route, settings, job), _CONNECT_WITHIN)
        except (GpuKernelError, asyncio.TimeoutError) as error:
            if isinstance(error, HostKeyError) and not isinstance(error, UnknownHost):
                raise
            cause = error.cause if isinstance(error, GpuKernelError) else "no answer"
        if route.problem != cause:
            self._log.info("%s: job %s by %s: %s", self.login(settings).name, job.id, route.name, cause)
        route.problem = cause
        return None

    def route_of(self, job_id: str, login: str) -> str:
        """Return the route by which a job's node was reached: `SSH`, `STEP`, or "" if it was not."""
        node = self._reached.get((login, job_id))
        return "" if node is None else STEP if node.settings.via else SSH

    def routes(self, settings: KernelSettings) -> str:
        """Return the routes that may be taken with these settings, and the last one taken, in words."""
        login = self.login(settings)
        listed = ", else by ".join(self._allowed_routes(login, settings))
        last = self._worked.get(login.name)
        return f"by {listed}" + (f"; the last one was {last}" if last else "")

    async def leave(self, job_id: str, login: str) -> None:
        """Close the connection to the node of a job that is over, unless something else uses the connection."""
        node = self._reached.pop((login, job_id), None)
        if node is not None:
            await self._discard(node)

    async def _discard(self, node: Node) -> None:
        if node not in self._reached.values() and not node.kept_open:
            await self._nodes.discard(node)

    @contextlib.asynccontextmanager
    async def machine(self, settings: KernelSettings, host: str) -> AsyncIterator[Node]:
        """Lead to a job's host over SSH, also when the job has ended, over a connection of its own: without an agent,
        and without the user. Raises AuthError if only the user could sign in."""
        login = self.login(settings)
        if login.interactive or login.settings.via:
            raise AuthError("the job's node is behind a sign-in by its user", hop=host)
        node = self._nodes.separate(await self._settings_by_ssh(settings, host), asks=False)
        try:
            yield node
        finally:
            await node.close()

    def _allowed_routes(self, login: Node, settings: KernelSettings) -> list[str]:
        """Return the routes to try; first the one that has worked before."""
        if only := settings.way:
            return [only]
        if login.interactive or login.settings.via:  # else its user would have to sign in twice
            return [STEP]
        return sorted((SSH, STEP), key=lambda route: route != self._worked.get(login.name, SSH))

    async def _by_ssh(self, route: _Route, settings: KernelSettings, job: JobState) -> Reached:
        derived = await self._settings_by_ssh(settings, job.node)
        return await self._connect(route, derived, settings.at_login(), job, "")

    async def _settings_by_ssh(self, settings: KernelSettings, host: str) -> KernelSettings:
        given = settings.at_login()
        user = (await self._schedulers.of(given).commands()).user
        jumps = [hop for hop in given.route if hop != "localhost"]  # the login node may be this machine
        return given.replace(route=(*jumps, f"{user}@{host}" if user else host))

    async def _by_step(self, route: _Route, settings: KernelSettings, job: JobState) -> Reached:
        given = settings.at_login()
        place = await self._schedulers.of(given).commands()
        words = ["env", f"SLURM_CONF={place.conf}"] if place.conf else []
        words.append(f"{place.folder}/srun" if place.folder else "srun")
        words += ["--overlap", f"--jobid={job.id}", "--nodes=1", "--ntasks=1", f"--nodelist={job.node}"]
        words += ["--quiet", "--unbuffered"]  # else Slurm passes on whole lines only
        derived = given.replace(via=(*given.via, shlex.join(words)))
        return await self._connect(route, derived, given, job, job.node)

    async def _connect(
        self, route: _Route, derived: KernelSettings, given: KernelSettings, job: JobState, name: str
    ) -> Reached:
        """Connect to the node to which the settings `derived` lead, and look for the job's process there."""
        node, route.node = self._nodes.of(derived, name), None
        try:
            link = await node.link(given.python, None)
            route.node = node
            await link.request("job", job=job.id)
        except BaseException as error:
            if getattr(error, "code", "") != "job":
                route.node = None
                await self._nodes.discard(node)
            raise
        return Reached(node, link, derived.replace(job=job.id, login_route=given.route, login_via=given.via))


async def read_output(nodes: JobNodes, settings: KernelSettings, job_id: str, host: str) -> str:
    """Return the last lines that a job has printed on its host; "" if there are none, or the host cannot be reached."""
    if not host or not is_job_id(job_id):
        return ""

    def work(connection: Connection) -> Output:
        return Output.of(connection.run("/bin/sh", stdin=output_script(job_id), timeout=_OUTPUT_WITHIN))

    try:
        async with nodes.machine(settings, host) as node:
            output = await asyncio.wait_for(node.run(None, work), _OUTPUT_WITHIN)
    except (GpuKernelError, asyncio.TimeoutError):
        return ""
    return sanitize.lines("\n".join(output.lines), MAX_LINES)


def output_script(job_id: str) -> bytes:
    """Return the script that prints the file, and removes what the job has left on the node."""
    return Commands().script(f"job={job_id}", source("hub/jobs/job_output.sh"))


def output_rows(text: object, hop: str) -> list[dict[str, Any]]:
    """Return the lines of a job's output, as lines of a kernel's story."""
    lines = sanitize.lines(text, MAX_LINES).splitlines()
    return [{"time": None, "event": "output", "text": line, "hop": hop} for line in lines]
