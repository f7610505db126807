"""The node of a job that runs: over SSH through the login node, or by a step of the job, started on the login node.

SSH to the job's node may be refused (without a job of ours there, or at all), its host key may be unknown, or it may
show another /tmp than the job's. A step always sees what the job sees. Its stdin and stdout pass through the connection
to the login node, which all its jobs share: nobody signs in a second time. But the login node can read them. So a host
key that is not the expected one ends the start: whoever shows it must not choose the step by that.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import shlex
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

from ...errors import AuthError, GpuKernelError, HostKeyError, UnknownHost
from ..background import BackgroundTasks
from ..kernel_settings import KernelSettings
from ..node.node import Node
from ..node.node_link import NodeLink
from ..node.nodes import Nodes
from ..slurm.dialect import JobState
from ..slurm.scheduler import Scheduler

_SOON = (1.0, 1.5, 15.0)
"""Seconds until a job's process is looked for again that may not have been started yet: the first time, the factor for
later ones, at most."""
_LATER = (3.0, 2.0, 60.0)
"""These three numbers for a route that is refused: servers block clients whose sign-in fails often."""
_OTHER_AFTER = 5.0
"""Seconds until another route is tried, if one leads to the node but does not see the job's process there."""
_CONNECT_WITHIN = 60.0
_LOOK_EVERY = 2.0
"""Seconds between two looks at connections that are closed when nothing uses them any more."""
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@\\-]{0,63}")
SSH, STEP = "ssh", "srun"
"""The routes to a job's node, as the setting `way` and `ps` name them."""


class Reached(NamedTuple):
    """A job's node: the link to it, and a kernelspec's settings that lead there."""

    node: Node
    link: NodeLink
    settings: KernelSettings


class _Attempts:
    """The attempts by one route: when the next one is due, and why the last one failed. `node`: the node to which the
    route leads, also if the job's process is not seen there; None if the route leads nowhere."""

    def __init__(self) -> None:
        self.problem = ""
        self.due = 0.0
        self.delay = 0.0
        self.node: Node | None = None

    def failed(self, problem: str, now: float, delays: tuple[float, float, float]) -> None:
        """Record that the route cannot be taken now."""
        first, factor, most = delays
        self.problem = problem
        self.delay = min(max(first, self.delay * factor), most)
        self.due = now + self.delay


class JobNodes:
    """`await reach(…)` connects to a job's node. Remembers which route led there, for each login node."""

    def __init__(self, nodes: Nodes, log: logging.Logger) -> None:
        self._nodes = nodes
        self._log = log
        self._worked: dict[str, str] = {}
        self._reaching: Counter[Node] = Counter()
        self._reached: dict[tuple[str, str], Node] = {}  # by login node and job
        self._tasks = BackgroundTasks()
        self._users: dict[str, str] = {}

    def login(self, settings: KernelSettings) -> Node:
        """Return the login node to which these settings lead."""
        return self._nodes.of(settings.at_login())

    async def reach(
        self, settings: KernelSettings, job: JobState, scheduler: Scheduler, tell: Callable[[str], None]
    ) -> Reached:
        """Connect to the job's node, and wait until the job's process answers there: its set-up lines may take long.

        `tell(text)` is called with what is being done. Goes on until it is cancelled. Raises HostKeyError if a host
        shows another host key than the expected one.
        """
        login = self.login(settings)
        attempts = {route: _Attempts() for route in self._allowed_routes(login, settings)}
        tell("connecting to it")
        try:
            return await self._try_routes(attempts, settings, job, scheduler, tell)
        except BaseException:  # given up: a node where the job's process was not seen is not needed
            await self.leave(job.id, login.name)
            raise
        finally:
            taken = self._reached.get((login.name, job.id))
            for one in attempts.values():
                if one.node is not None and one.node is not taken:
                    await self._discard_unused(one.node)

    async def _try_routes(
        self,
        attempts: dict[str, _Attempts],
        settings: KernelSettings,
        job: JobState,
        scheduler: Scheduler,
        tell: Callable[[str], None],
    ) -> Reached:
        login, loop = self.login(settings), asyncio.get_running_loop()
        connect_by = {SSH: self._by_ssh, STEP: self._by_step}
        while True:
            for route, attempt in attempts.items():
                if loop.time() < attempt.due:
                    continue
                try:
                    reached = await asyncio.wait_for(
                        connect_by[route](settings, job, scheduler), _CONNECT_WITHIN
                    )
                except (GpuKernelError, asyncio.TimeoutError) as error:
                    if isinstance(error, HostKeyError) and not isinstance(error, UnknownHost):
                        raise
                    self._failed(route, attempts, error, (login.name, job.id), tell)
                    continue
                attempt.node = reached.node
                if route == STEP and SSH in attempts and attempts[SSH].node is not None:
                    route, reached = await self._prefer_ssh(reached, settings, job, scheduler)
                self._worked[login.name] = route
                return reached
            await asyncio.sleep(max(0.1, min(attempt.due for attempt in attempts.values()) - loop.time()))

    def _failed(
        self,
        route: str,
        attempts: dict[str, _Attempts],
        error: Exception,
        key: tuple[str, str],
        tell: Callable[[str], None],
    ) -> None:
        """Record that a route cannot be taken now. `key`: the login node and the job."""
        attempt, now = attempts[route], asyncio.get_running_loop().time()
        cause = error.cause if isinstance(error, GpuKernelError) else "no answer"
        if attempt.problem != cause:
            self._log.info("%s: job %s by %s: %s", *key, route, cause)
        reachable = getattr(error, "code", "") == "job"
        attempt.failed(cause, now, _SOON if reachable else _LATER)
        if reachable:  # its process may not run yet; the other routes would say the same
            attempt.node = self._reached.get(key)
            tell("waiting for its process to start, after its set-up lines")
            for other in attempts.values():
                other.due = max(other.due, now + _OTHER_AFTER)
            attempt.due = now + attempt.delay
        elif all(one.problem for one in attempts.values()):
            problems = (f"by {name}: {one.problem}" for name, one in attempts.items())
            tell(f"it cannot be reached yet: {'; '.join(problems)}")

    async def _prefer_ssh(
        self, by_step: Reached, settings: KernelSettings, job: JobState, scheduler: Scheduler
    ) -> tuple[str, Reached]:
        """Return the route to take when a step sees the job's process, which SSH has not seen, perhaps as it did not
        run yet: SSH if it sees the process now, as nobody on the login node can read what passes there."""
        try:
            return SSH, await asyncio.wait_for(self._by_ssh(settings, job, scheduler), _CONNECT_WITHIN)
        except HostKeyError:
            raise
        except (GpuKernelError, asyncio.TimeoutError):
            self._reached[self.login(settings).name, job.id] = by_step.node
            return STEP, by_step

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
        """Close the connection to the node of a job that is over, unless another job uses the connection."""
        node = self._reached.pop((login, job_id), None)
        if node is not None and not await self._discard_unused(node):
            self._tasks.spawn(self._discard_later(node))

    async def _discard_unused(self, node: Node) -> bool:
        """Close the connection to a node if no job needs the connection. Return False if something else uses it."""
        if node in self._reached.values():
            return True
        if node.in_use or self._reaching[node] or node.kept_open:
            return False
        await self._nodes.discard(node)
        return True

    async def _discard_later(self, node: Node) -> None:
        while not await self._discard_unused(node):
            await asyncio.sleep(_LOOK_EVERY)

    @contextlib.asynccontextmanager
    async def machine(self, settings: KernelSettings, host: str, scheduler: Scheduler) -> AsyncIterator[Node]:
        """Lead to a job's host over SSH, also when the job has ended, over a connection of its own: without an agent,
        and without the user. Raises AuthError if only the user could sign in."""
        login = self.login(settings)
        if login.interactive or login.settings.via:
            raise AuthError("the job's node is behind a sign-in by its user", hop=host)
        node = self._nodes.separate(await self._settings_by_ssh(settings, host, scheduler), asks=False)
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

    async def _by_ssh(self, settings: KernelSettings, job: JobState, scheduler: Scheduler) -> Reached:
        derived = await self._settings_by_ssh(settings, job.node, scheduler)
        return await self._reach(derived, settings.at_login(), job, "")

    async def _settings_by_ssh(
        self, settings: KernelSettings, host: str, scheduler: Scheduler
    ) -> KernelSettings:
        given = settings.at_login()
        user = await self._user(self.login(given).name, scheduler)
        jumps = [hop for hop in given.route if hop != "localhost"]  # the login node may be this machine
        return given.replace(route=(*jumps, f"{user}@{host}" if user else host))

    async def _by_step(self, settings: KernelSettings, job: JobState, scheduler: Scheduler) -> Reached:
        given = settings.at_login()
        place = await scheduler.commands()
        words = ["env", f"SLURM_CONF={place.conf}"] if place.conf else []
        words.append(f"{place.folder}/srun" if place.folder else "srun")
        words += ["--overlap", f"--jobid={job.id}", "--nodes=1", "--ntasks=1", f"--nodelist={job.node}"]
        words += ["--quiet", "--unbuffered"]  # else Slurm passes on whole lines only
        derived = given.replace(via=(*given.via, shlex.join(words)))
        return await self._reach(derived, given, job, job.node)

    async def _reach(
        self, derived: KernelSettings, given: KernelSettings, job: JobState, name: str
    ) -> Reached:
        node, key = self._nodes.of(derived, name), (self.login(given).name, job.id)
        self._reaching[node] += 1
        try:
            link = await node.link(given.python, None)
            await link.request("job", job=job.id)
        except BaseException as error:
            if getattr(error, "code", "") == "job":
                self._reached[key] = node  # it is asked again
            else:
                await self._nodes.discard(node)
            raise
        finally:
            self._reaching[node] -= 1
        self._reached[key] = node
        return Reached(node, link, derived.replace(job=job.id, login_route=given.route, login_via=given.via))

    async def _user(self, login: str, scheduler: Scheduler) -> str:
        """Return the user's name on the login node, which may differ from here."""
        if login not in self._users:
            lines = (await scheduler.run("id -un")).lines
            user = lines[0].strip() if lines else ""
            self._users[login] = user if _USER.fullmatch(user) else ""
        return self._users[login]
