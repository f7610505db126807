"""One work node: its hops, one SSH connection, one link, shared by all front ends."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from ...errors import AuthError, ConnectError, GpuKernelError, HostKeyError, HubError
from ..rpc import FAULT, Call
from ..ssh.connection import SSHConnection
from . import deploy
from .link import TRY_AGAIN_SOON, Link, LinkDown
from .probe import Found, find_pythons
from .shared_connection import SharedConnection, Way
from .stream import Stream

__all__ = ["Answered", "Node", "Nodes", "Way", "named"]

T = TypeVar("T")
REDIAL = 4.0
"""Seconds that a question waits for a connection which went down and is dialled again: it often is back at once."""

NAMES = 100
"""Kernelspecs of which it is remembered that they lead to a node."""

HOMES = 10_000
"""Kernels of which it is remembered where they were started."""


class Node:
    """`await connected(call)`, `await link(python, call)`; reconnects by itself as long as a kernel is
    attached."""

    def __init__(self, way: Way, trust_file: Path, log: logging.Logger, asks: bool = True) -> None:
        self.way = way
        self.python = ""
        self._log = log
        self._ssh = SharedConnection(way, trust_file, asks)
        self._call: Call | None = None
        self._link: Link | None = None
        self._keep_until = 0.0
        self._names: list[str] = []
        self._connected = asyncio.Event()  # by whoever asked

    @property
    def name(self) -> str:
        """The work node as the user wrote it."""
        return self.way.words[-1]

    @property
    def in_use(self) -> bool:
        """Whether a kernel is attached."""
        return self._link is not None and self._link.in_use

    @property
    def trouble(self) -> GpuKernelError | None:
        """Why a kernel's link is down, if it is, and tries again by itself, and needs nobody for that."""
        away = self._link is not None and self._link.in_use and self._link.state == "away"
        problem = self._link.problem if self._link is not None and away else None
        return None if isinstance(problem, AuthError | HostKeyError) else problem

    @property
    def alive(self) -> bool:
        """Whether the SSH connection is there."""
        return self._ssh.alive

    @property
    def kept(self) -> bool:
        """Whether the owner signed in for kernels to come, and the connection is still there."""
        return time.monotonic() < self._keep_until and self.alive

    def describe(self) -> dict[str, Any]:
        """{node, names (of kernelspecs that led to it), state, connected, problem}: JSON."""
        link = self._link
        problem = (link.problem if link is not None else None) or self._ssh.problem
        return {
            "node": self.name,
            "names": self._names,
            "state": link.state if link is not None else "connecting",
            "connected": self.alive,
            "problem": None if problem is None else problem.to_json(),
        }

    @property
    def mark(self) -> str:
        """A name for files: of this way, and no other."""
        return hashlib.sha256(repr(self.way).encode()).hexdigest()[:16]

    def same_as(self, other: Node) -> bool:
        """Whether this is the other one, or another way to the same machine, which its host key proves."""
        return self.way == other.way or (self._ssh.machine != "" and self._ssh.machine == other._ssh.machine)

    def known_as(self, name: str) -> None:
        """A kernelspec of this name leads here."""
        if name:
            self._names = [*(one for one in self._names if one != name), name][-NAMES:]

    def keep(self, seconds: float) -> None:
        """The connection outlives its last use."""
        self._keep_until = time.monotonic() + seconds

    async def connected(self, call: Call | None) -> SSHConnection:
        """The SSH connection, made now if need be; `call` hears progress and is asked for secrets."""
        return await self._over(call, lambda connection: connection)

    async def signed_in(self, call: Call, within: float) -> None:
        """`connected`; but what only the owner can do is waited for: that they `login` somewhere else meanwhile."""
        deadline = time.monotonic() + within
        while True:
            self._connected.clear()
            try:
                await self.connected(call)
                return
            except GpuKernelError as error:
                if not error.login or time.monotonic() >= deadline:
                    raise
            name = str(call.arguments.get("name") or "NAME")
            call.progress(self.name, f"waiting for you to sign in: jupyter gpu-kernel login {name}")
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._connected.wait(), deadline - time.monotonic())

    async def pythons(self, wanted: str | None, call: Call) -> tuple[Found, SSHConnection]:
        """The Python that can run kernels there (the one `wanted`, or the best), and the connection that told so."""
        call.progress(self.name, "looking for a Python with ipykernel")
        return await self._over(call, lambda way: (find_pythons(way, self.name, wanted), way))

    async def some_python(self, call: Call) -> str:
        """The best Python there, for a kernelspec that names none."""
        found, _ = await self.pythons(None, call)
        return str(found.python.path)

    async def _over(self, call: Call | None, work: Callable[[SSHConnection], T]) -> T:
        proven = self._link is not None and self._link.state == "up"
        result = await asyncio.to_thread(self._ssh.over, call, work, proven=proven)
        self._connected.set()
        if self._link is not None and self._link.state == "failed":
            self._link = None  # why it failed does not hold any more
        elif self._link is not None:
            self._link.retry()  # it may be waiting for just this
        return result

    async def link(self, python: str, call: Call | None) -> Link:
        """The link, up. Raises why it cannot be."""
        await self.connected(call)
        link = self.begin_link(python, call)
        await link.up()
        return link

    async def link_for_question(self, python: str | None, call: Call) -> Link:
        """The link, up; where that of kernels is down and dials by itself, nobody waits for long."""
        if self.trouble is not None:
            raise self.trouble
        link = self._link
        if link is None or not link.in_use or link.state != "away" or link.problem is not None:
            return await self.link(python or self.python or await self.some_python(call), call)
        try:
            await asyncio.wait_for(link.up(), REDIAL)
        except asyncio.TimeoutError:
            cause = "the connection is down, and is being dialled again"
            raise ConnectError(cause, hop=self.name, remedy=TRY_AGAIN_SOON) from None
        return link

    async def request(
        self, python: str | None, call: Call, do: str, timeout: float = 30.0, **more: Any
    ) -> dict[str, Any]:
        """The agent's answer. Asked twice if the link went down meanwhile: it may have been dead before, unnoticed."""
        try:
            link = await self.link_for_question(python, call)
            return await link.request(do, timeout=timeout, **more)
        except LinkDown:
            link = await self.link_for_question(python, call)
            return await link.request(do, timeout=timeout, **more)

    def begin_link(self, python: str, call: Call | None) -> Link:
        """The link, perhaps still on its way up."""
        if self._link is None or self._link.state == "failed":
            self.python = python
            self._call = call
            self._link = Link(self.name, self._dial, self._log)
        else:
            self._link.retry()
        return self._link

    async def close(self) -> None:
        """Hangs up; keepers live on."""
        if self._link is not None:
            await self._link.close()
            self._link = None
        await asyncio.to_thread(self._ssh.close)

    def _dial(self, again: bool) -> Stream:
        """On a worker thread: a stream to the agent, over the connection there is or a new one."""
        if again:
            self._ssh.hang_up_if_silent()
        return self._ssh.over(None if again else self._call, self._begin, proven=again, ends=True)

    def _begin(self, connection: SSHConnection) -> Stream:
        return deploy.dial(connection, self.python, self.name)


class Answered(NamedTuple):
    """What a node said, or why it could not be asked: then `said` is {}."""

    node: Node
    said: dict[str, Any]
    error: GpuKernelError | None = None

    @property
    def row(self) -> dict[str, Any]:
        """The error in a list of rows: {"node", "error"}."""
        return {"node": self.node.name, "error": self.error.to_json() if self.error is not None else None}


class Nodes:
    """All nodes that faces have asked for; one per way. And where the kernels are that this hub started."""

    def __init__(self, trust_file: Path, log: logging.Logger) -> None:
        self._trust_file = trust_file
        self._log = log
        self._nodes: dict[Way, Node] = {}
        self._homes: dict[str, Way] = {}

    @property
    def in_use(self) -> bool:
        """Whether a kernel is attached to one, or the owner signed in for kernels to come."""
        return any(node.kept or node.in_use for node in self._nodes.values())

    def of(self, settings: dict[str, Any]) -> Node:
        """The node that these settings lead to."""
        way = Way.of(settings)
        node = self._nodes.get(way)
        if node is None:
            node = self._nodes[way] = Node(way, self._trust_file, self._log)
        return node

    def apart(self, settings: dict[str, Any], asks: bool) -> Node:
        """The same node with a connection of its own, which its user closes."""
        return Node(Way.of(settings), self._trust_file, self._log, asks)

    def describe(self) -> list[dict[str, Any]]:
        """[{node, state (of its link: connecting, up, away, failed), problem (a JSON error, or null)}]."""
        return [node.describe() for node in self._nodes.values()]

    async def hang_up(self, *, unused_only: bool) -> None:
        """Ends the connections; keepers live on."""
        for way, node in list(self._nodes.items()):
            if not (unused_only and node.in_use):
                del self._nodes[way]
                await node.close()

    def settle(self, kernel_id: str, node: Node) -> None:
        """This hub has just chosen that id for a kernel on that node: no other node can have it."""
        self._homes[kernel_id] = node.way
        if len(self._homes) > HOMES:
            del self._homes[next(iter(self._homes))]

    def home(self, kernel_id: str) -> Node | None:
        """The node on which this hub started the kernel, if it did."""
        way = self._homes.get(kernel_id)
        return self.of(way.settings) if way is not None else None

    def ways_to(self, kernel_id: str, call: Call) -> list[dict[str, Any]]:
        """Specs of where a kernel may be: the node on which this hub started it, else all of the call's."""
        specs: list[dict[str, Any]] = call.arguments["specs"]
        way = self._homes.get(kernel_id)
        if way is None:
            return specs
        return [spec for spec in specs if Way.of(spec["settings"]) == way] or [{"settings": way.settings}]

    async def each(
        self,
        call: Call,
        do: str,
        timeout: float = 30,
        specs: list[dict[str, Any]] | None = None,
        more: Callable[[Node], dict[str, Any]] = lambda node: {},
    ) -> list[Answered]:
        """What each node of the call's `specs`, or of these, answers; `more` goes into the request to a node."""
        nodes: dict[Way, tuple[Node, dict[str, Any]]] = {}
        for spec in call.arguments["specs"] if specs is None else specs:
            node = self.of(spec["settings"])
            nodes.setdefault(node.way, (node, spec))

        async def ask(node: Node, spec: dict[str, Any]) -> Answered:
            call.progress(node.name, "asking")
            try:
                python = spec["settings"].get("python")
                return Answered(node, await node.request(python, call, do, timeout, **more(node)))
            except GpuKernelError as error:
                return Answered(node, {}, named(error, str(spec.get("name") or "")))
            except Exception as error:  # a fault of ours, perhaps caused by this node: the others are shown
                self._log.exception("%s: “%s” failed", node.name, do)
                fault = HubError(f"{type(error).__name__}: {error}", hop=node.name, remedy=FAULT)
                return Answered(node, {}, fault)

        return list(await asyncio.gather(*(ask(*pair) for pair in nodes.values())))


def named(error: GpuKernelError, name: str) -> GpuKernelError:
    """The same, with the kernelspec's name in the commands that its remedy tells."""
    if name:
        error.remedy = error.remedy.replace(" NAME", " " + name)
    return error
