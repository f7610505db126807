"""On which of its hosts a kernel starts first: all are asked at once what they offer, and the best one comes first.

The host comes first that has the kernel which the notebook left. Then come hosts with enough free GPUs: those whose
GPUs nobody uses, then those with the most free memory; then the hosts with the shortest queue, and last those that did
not answer. Nothing is taken here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any, NamedTuple

from ...errors import ConnectError, GpuKernelError
from .. import sanitize
from ..kernel_settings import KernelSettings, Spec
from ..node.node import Node
from ..node.nodes import NodeRequest, Nodes
from ..rpc import Call

GRACE = 1.5
"""Seconds for the other hosts after one has answered that it has enough free GPUs."""
PATIENCE = 10.0
"""Seconds for the other hosts after one has answered that it has too few, and for the host of the notebook's last
kernel."""
REQUEST_TIMEOUT = 30.0
_NEEDED = ("gpus", "min_memory", "gpu_type", "ignore_place", "name", "notebook", "fresh", "id")
_MAX_NOTEBOOKS = 1000


class Offer(NamedTuple):
    """What one host offers, or the error for which the host could not be asked."""

    node: Node
    settings: KernelSettings
    answer: dict[str, Any]
    error: GpuKernelError | None = None
    at: float = 0.0
    """When the answer came, by the clock of the event loop."""

    @property
    def detached_since(self) -> float:
        """When the kernel was started that the notebook has left on this host; 0 if there is none."""
        return float(self.answer.get("detached") or 0)

    @property
    def enough(self) -> bool:
        """Whether enough GPUs are free, or the notebook's kernel is there."""
        return bool(self.answer.get("enough") or self.detached_since)

    @property
    def rank(self) -> tuple[Any, ...]:
        """The order of offers: the lowest rank is the best."""
        answer = self.answer
        free = (not answer.get("idle"), -(answer.get("memory") or 0)) if self.enough else (True, 0)
        return (
            -self.detached_since,
            not self.enough,
            bool(answer.get("problem")),
            free,
            answer.get("waiting") or 0,
        )

    @property
    def python(self) -> str:
        """The Python for kernels there."""
        return self.settings.python or self.node.python

    @property
    def reason(self) -> str:
        """Why the host was chosen, in words."""
        if self.detached_since:
            return "the notebook's kernel is there"
        if self.enough and self.answer.get("idle"):
            return "nobody uses its GPUs"
        if self.enough:
            return "it has free GPUs"
        return (
            sanitize.line(self.answer.get("problem")) or f"no host has enough free GPUs; {self._queue} there"
        )

    @property
    def _queue(self) -> str:
        waiting = self.answer.get("waiting") or 0
        return f"{waiting} kernel{' waits' if waiting == 1 else 's wait'}" if waiting else "nobody waits"


def wait_until(offers: Collection[Offer], last_is_pending: bool) -> float | None:
    """Return until when the hosts are waited for that have not answered; None: as long as each of them takes.

    `last_is_pending`: whether the host of the notebook's last kernel is one of them."""
    answered = [one for one in offers if one.error is None]
    if any(one.detached_since for one in answered):
        return 0.0
    good = [one.at for one in answered if one.enough]
    if good and not last_is_pending:
        return min(good) + GRACE
    return min(one.at for one in answered) + PATIENCE if answered else None


class Placement:
    """`await ask(settings, call)`. Remembers where kernels of each notebook were placed."""

    def __init__(self, nodes: Nodes, owner: dict[str, str]) -> None:
        """`owner`: this user and computer, for requests to agents."""
        self._nodes = nodes
        self.owner = owner
        self._last_hosts: dict[tuple[str, str], str] = {}
        self._tasks: set[asyncio.Task[Offer]] = set()

    async def ask(self, settings: KernelSettings, call: Call | None, restarted_on: str = "") -> list[Offer]:
        """Return the offers of all hosts, the best one first.

        `restarted_on`: the host on which the kernel ran that is restarted by a new one: it comes first if it can be
        used."""
        candidates = settings.each_host()
        if call is not None:
            call.progress("", f"asking {', '.join(one.route[-1] for one in candidates)} for free GPUs")
        last_host = restarted_on or self._last_hosts.get((settings.name, settings.notebook), "")
        offers = await self._ask_all(candidates, call, last_host)
        return sorted(offers, key=lambda one: (bool(one.error), one.node.name != restarted_on, *one.rank))

    def _no_answer(self, settings: KernelSettings) -> Offer:
        node = self._nodes.of(settings)
        return Offer(node, settings, {}, ConnectError("no answer yet", hop=node.name))

    def remember(self, settings: KernelSettings) -> None:
        """A kernel with these settings was placed, which lead to its host."""
        notebook, host = (settings.name, settings.notebook), self._nodes.of(settings).name
        self._last_hosts.pop(notebook, None)
        self._last_hosts[notebook] = host
        if len(self._last_hosts) > _MAX_NOTEBOOKS:
            del self._last_hosts[next(iter(self._last_hosts))]

    async def _ask_all(
        self, candidates: list[KernelSettings], call: Call | None, last_host: str
    ) -> list[Offer]:
        """Return the offers of all hosts, in the order of the candidates, or that they have not answered in time."""
        loop = asyncio.get_running_loop()
        tasks = {loop.create_task(self._ask(one, call)): one for one in candidates}
        self._tasks |= tasks.keys()
        for task in tasks:  # those that are not waited for end by themselves
            task.add_done_callback(self._tasks.discard)
        offers: list[Offer] = []
        pending = set(tasks)
        while pending:
            last_is_pending = any(tasks[task].route[-1] == last_host for task in pending)
            deadline = wait_until(offers, last_is_pending)
            timeout = None if deadline is None else max(0.0, deadline - loop.time())
            done, pending = await asyncio.wait(pending, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                break
            offers += [task.result() for task in done]
        offers += [self._no_answer(tasks[task]) for task in pending]
        return sorted(offers, key=lambda one: candidates.index(one.settings))

    async def _ask(self, settings: KernelSettings, call: Call | None) -> Offer:
        node = self._nodes.of(settings)
        node.add_name(settings.name)
        request = NodeRequest("offer", asking=self._request_offer)
        reply = await self._nodes.ask(call, request, node, Spec(settings, settings.name))
        return Offer(node, settings, reply.answer, reply.error, asyncio.get_running_loop().time())

    async def _request_offer(self, node: Node, spec: Spec, call: Call | None) -> dict[str, Any]:
        settings = spec.settings
        if call is not None and call.login_wait:
            await node.signed_in(call)
        wanted = {key: getattr(settings, key) for key in _NEEDED}
        more = {**wanted, **self.owner, "attached_ids": node.kernel_ids}
        return await node.request(settings.python, call, "offer", REQUEST_TIMEOUT, **more)


def left_out(offers: list[Offer]) -> str:
    """Return the sentence that names the hosts which made no offer, and why; "" if all made one."""
    skipped = [f"{one.node.name}: {sanitize.one_line(one.error.cause)}" for one in offers if one.error]
    return f". Left out: {'; '.join(skipped)}" if skipped else ""
