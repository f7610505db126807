"""All work nodes that clients have asked for, one per route: where kernels were started, and what the nodes answer.

A node is asked for its own kernels and GPUs. Two routes to one machine return the same rows, of which the first are
kept. If two machines report one kernel, one machine is wrong: the machine on which this hub did not start the kernel,
if that is known.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from ...errors import AgentError, AgentRefusal, ConnectError, GpuKernelError, HubError, KernelStartError
from ...wire.runtime import Runtime
from .. import sanitize
from ..kernel_settings import KernelSettings, Spec
from ..rpc import Call
from ..ssh import Attempt
from ..transport.connection import Connection
from .link import TRY_AGAIN_SOON
from .node import Node
from .node_link import NoLink
from .shared_connection import Connect, RouteSettings
from .watch import WatchedRequests

_MAX_KERNELS = 10_000
"""Kernels whose node is remembered."""
_ANSWERED_WITHIN = {"list": 10.0, "gpus": 40.0}
"""Seconds in which a node answers what `ps`, `stop` and `gpus` ask, if its link is up and the call does not wait as
long as needed (`Call.within`). A driver may take 15 s for each of two samples."""
_STARTED_WITHIN = 10.0
"""Seconds more to start the agent there, which may have to be sent before."""


class Nodes:
    """The nodes by route."""

    def __init__(self, runtime: Runtime, connect: Connect, log: logging.Logger) -> None:
        self._runtime = runtime
        self._connect = connect
        self._log = log
        self._nodes: dict[RouteSettings, Node] = {}
        self._started_on: dict[str, RouteSettings] = {}
        self._watched = WatchedRequests[NodeReply](runtime.monotonic, lambda reply: reply.error is not None)

    @property
    def in_use(self) -> bool:
        """Whether a kernel is attached to one of the nodes, or the user signed in for kernels to come."""
        return any(node.kept_open or node.in_use for node in self._nodes.values())

    def of(self, settings: KernelSettings, name: str = "") -> Node:
        """Return the node to which these settings lead. `name`: see `Node`."""
        return self.at(RouteSettings.from_settings(settings), name)

    def at(self, route: RouteSettings, name: str = "") -> Node:
        """Return the node at the end of this route."""
        node = self._nodes.get(route)
        if node is None:
            node = Node(self._runtime, route, self._connect, self._log, on_sign_in=self._try_again, name=name)
            self._nodes[route] = node
        return node

    def no_link(self, settings: KernelSettings) -> NoLink | None:
        """Return the link of a kernel that a cell of its user is to start; None if the settings lead to its node."""
        if settings.slurm:
            return NoLink(self.of(settings.at_login()).name)
        if len(settings.hosts) < 2 or settings.given_python is not None:
            return None
        return NoLink(", ".join(self.of(one).name for one in settings.each_host()))

    async def discard(self, node: Node) -> None:
        """Close a node that cannot be used, unless a kernel is attached."""
        if not node.in_use and self._nodes.get(node.settings) is node:
            del self._nodes[node.settings]
            await node.close()

    def separate(self, settings: KernelSettings, asks: bool) -> Node:
        """Return a node for the route of these settings, with a connection of its own, which the caller must close."""
        route = RouteSettings.from_settings(settings)

        def connect(route: RouteSettings, attempt: Attempt) -> Connection:
            return self._connect(route, replace(attempt, shares=False))

        return Node(self._runtime, route, connect, self._log, asks)

    def describe(self) -> list[dict[str, Any]]:
        """Return `describe()` of each node that is known."""
        return [node.describe() for node in self._nodes.values() if node.known]

    def describe_specs(self, specs: Iterable[Spec]) -> list[dict[str, Any]]:
        """Return `describe()` of each machine to which the specs lead, with their names."""
        found: dict[Node, list[str]] = {}
        for spec in specs:
            node = self.of(spec.settings)
            names = found.setdefault(next((one for one in found if one.same_as(node)), node), [])
            names += [spec.name]
        return [dict(node.describe(), names=list(dict.fromkeys(names))) for node, names in found.items()]

    async def hang_up(self, *, unused_only: bool) -> None:
        """Close the connections; keepers live on. With `unused_only`, spare interpreters without kernels do not."""
        for route, node in list(self._nodes.items()):
            if unused_only and not node.in_use:
                await node.end_spares()
            if not (unused_only and node.in_use):
                self._nodes.pop(route, None)
                await node.close()

    def record_start(self, kernel_id: str, node: Node) -> None:
        """Remember that this hub has just made this id for a kernel on the node: no other node can have the kernel."""
        self._started_on[kernel_id] = node.settings
        if len(self._started_on) > _MAX_KERNELS:
            del self._started_on[next(iter(self._started_on))]

    def started_on(self, kernel_id: str) -> Node | None:
        """Return the node on which this hub started the kernel; None if another hub started it."""
        route = self._started_on.get(kernel_id)
        return self.at(route) if route is not None else None

    def specs_for(self, kernel_id: str, call: Call) -> list[Spec]:
        """Return the specs of the node on which this hub started the kernel, or else all specs of the call."""
        specs = call.specs
        route = self._started_on.get(kernel_id)
        if route is None:
            return specs
        matching = [spec for spec in specs if RouteSettings.from_settings(spec.settings) == route]
        return matching or [Spec(route.to_settings())]

    def _try_again(self) -> None:
        """The user has signed in to a node: others may begin with the same hops."""
        for node in self._nodes.values():
            node.try_again()

    async def ask_each(
        self, call: Call, request: NodeRequest, specs: list[Spec] | None = None
    ) -> list[NodeReply]:
        """Send a request to each node of `specs` (else of the call's).

        A call with `patience` is repeated: it waits so many seconds for a node, and then takes its last reply.
        """
        nodes: dict[RouteSettings, tuple[Node, Spec]] = {}
        for spec in call.specs if specs is None else specs:
            node = self.of(spec.settings)
            nodes.setdefault(node.settings, (node, spec))

        asked = [node for node, _ in nodes.values()]

        async def ask(node: Node, spec: Spec) -> NodeReply:
            reply = await self.ask(call, request, node, spec)
            was_shown = asked[-1] is node
            asked.remove(node)
            if asked and was_shown:  # the progress names a node that has not answered
                call.progress(asked[-1].name, "asking")
            return reply

        replies = (
            self._watched.reply(
                (node.settings, request.do),
                call.patience,
                partial(ask, node, spec),
                partial(_late, node, request),
            )
            for node, spec in nodes.values()
        )
        return list(await asyncio.gather(*replies))

    async def ask(self, call: Call | None, request: NodeRequest, node: Node, spec: Spec) -> NodeReply:
        """Send a request to one node, for a call if there is one."""
        asking, limit = request.of(node, spec, call), None
        if call is not None:
            call.progress(node.name, "asking")
            limit = _limit(node, call, request)
            asking = call.limited(limit, asking)
        try:
            answer = await asking
            return NodeReply(node, answer, settings=spec.settings)
        except asyncio.TimeoutError:
            return _late(node, request, limit or request.timeout)
        except GpuKernelError as error:
            error.fill_in("NAME", spec.name)
            return NodeReply(node, {}, error)
        except Exception as error:  # a bug of ours, perhaps triggered by this node: show the others
            self._log.exception("%s: “%s” failed", node.name, request.do)
            return NodeReply(node, {}, HubError.from_bug(error, node.name))


# --- what the nodes are asked, and what they reply


class NodeRequest(NamedTuple):
    """A request to each of several nodes. `timeout`: the seconds within which the agent answers; `more(node)` returns
    the further arguments for a node. `asking`: asks the node something else than its agent; `who` answers then."""

    do: str
    timeout: float = 30.0
    more: Callable[[Node], dict[str, Any]] = lambda node: {}
    asking: Callable[[Node, Spec, Call | None], Awaitable[dict[str, Any]]] | None = None
    who: str = "the node"

    def of(self, node: Node, spec: Spec, call: Call | None) -> Awaitable[dict[str, Any]]:
        """Return the answer of one node."""
        if self.asking is not None:
            return self.asking(node, spec, call)
        return node.request(spec.settings.python, call, self.do, self.timeout, **self.more(node))


class NodeReply(NamedTuple):
    """The answer of a node, or {} and the error for which the node could not be asked. `settings`: those of the
    kernelspec that leads to the node; for the node of a job, settings that are derived from them."""

    node: Node
    answer: dict[str, Any]
    error: GpuKernelError | None = None
    late: float | None = None
    settings: KernelSettings | None = None

    @property
    def error_row(self) -> dict[str, Any]:
        """The error for a list of rows: {"node", "error"}, and "late", the seconds without an answer."""
        row = {"node": self.node.name, "error": self.error.to_json() if self.error is not None else None}
        return row if self.late is None else {**row, "late": self.late}

    @property
    def kernels(self) -> list[dict[str, Any]]:
        """The states of the node's kernels, without keepers that only wait for GPUs (reservations)."""
        return [state for state in self.answer.get("kernels", []) if not state.get("reservation")]

    def lists(self, kernel_id: str) -> bool:
        """Return whether the node lists the kernel, or a reservation for it."""
        return any(state["id"] == kernel_id for state in self.answer.get("kernels", []))


def _limit(node: Node, call: Call, request: NodeRequest) -> float | None:
    """Return the seconds after which the node's reply to this request is late; None if the call waits for it."""
    if request.asking is not None and call.within is not None:
        return 2 * call.within  # to connect, and to answer
    limit = _ANSWERED_WITHIN.get(request.do)
    if limit is None or call.within is None:
        return None
    return limit if node.linked else call.within + _STARTED_WITHIN + limit


def _late(node: Node, request: NodeRequest, seconds: float) -> NodeReply:
    """Return the reply of a node that has not replied for so long."""
    cause = f"{request.who} has not answered for {seconds:.0f} s"
    return NodeReply(node, {}, ConnectError(cause, hop=node.name, remedy=TRY_AGAIN_SOON), late=seconds)


class SeenRows:
    """Which machine has reported which row."""

    def __init__(self) -> None:
        self._nodes: dict[Hashable, list[Node]] = {}

    def add(self, node: Node, key: Hashable) -> bool:
        """Record a row by its key. Return False if the machine has reported the row before, by another route."""
        known = self._nodes.setdefault(key, [])
        if any(one.same_as(node) for one in known):
            return False
        known.append(node)
        return True


class KernelRows:
    """Which rows about kernels to show. `errors` are the rows for nodes that contradict each other."""

    def __init__(self, started_on: Callable[[str], Node | None]) -> None:
        """`started_on(kernel_id)` returns the node on which this hub started a kernel; None if another hub did."""
        self._started_on = started_on
        self._seen = SeenRows()
        self._reported_by: dict[str, Node] = {}
        self._conflicts: dict[Node, tuple[Node, list[str]]] = {}

    def add(self, node: Node, kernel_id: str) -> bool:
        """Record a node's row about a kernel. Return False if the row is known already, or must be wrong."""
        started_on = self._started_on(kernel_id)
        expected = started_on or self._reported_by.setdefault(kernel_id, node)
        if not expected.same_as(node):
            self._conflicts.setdefault(node, (expected, []))[1].append(kernel_id)
            if started_on is not None:
                return False
        return self._seen.add(node, kernel_id)

    def add_away(self, node: Node, kernel_id: str) -> bool:
        """Record a row about a kernel on a node that cannot be reached. Return False if the machine has a row about
        the kernel already, by another route."""
        return self._seen.add(node, kernel_id)

    @property
    def errors(self) -> list[dict[str, Any]]:
        """A row for each node that reports kernels of another node."""
        return [
            NodeReply(node, {}, conflict([node, expected], ids)).error_row
            for node, (expected, ids) in self._conflicts.items()
        ]


def conflict(nodes: list[Node], kernel_ids: list[str]) -> AgentError:
    """Return the error for several nodes that report one kernel, or several."""
    kernels = ", ".join(kernel_ids[:3]) + (" …" if len(kernel_ids) > 3 else "")
    names = " and ".join(node.name for node in nodes)
    cause = f"{names} both report kernel {kernels}, but only one of them can have it"
    remedy = "Ask the administrators of both: one of them may be compromised."
    return AgentError(cause, hop=nodes[0].name, remedy=remedy)


def distinct(replies: Iterable[NodeReply]) -> list[NodeReply]:
    """Return the first reply of each machine."""
    seen = SeenRows()
    return [reply for reply in replies if seen.add(reply.node, "")]


def is_gone(error: GpuKernelError | None) -> bool:
    """Whether the node answered that it does not have the kernel, or does not have it any more."""
    return isinstance(error, AgentRefusal) and error.code == "gone"


def not_found(kernel_id: str, replies: Iterable[NodeReply], remedy: str = "") -> GpuKernelError:
    """Return the error for a kernel that no node has; or the error of a node that could not be asked, and may have the
    kernel.

    `remedy`: one more sentence.
    """
    unreachable = (reply.error for reply in replies if reply.error and not is_gone(reply.error))
    remedy = f"“jupyter gpu-kernel ps” lists the kernels. {remedy}".strip()
    return next(unreachable, AgentError(f"no node has a kernel {kernel_id}", remedy=remedy))


def none_usable(errors: dict[str, GpuKernelError]) -> GpuKernelError:
    """Return the error for hosts of which none can be used. `errors`: by the names of the hosts. If the user can sign
    in to a host, the error is that of this host. If all hosts fail because of one hop before them, the error is that of
    this hop."""
    first = next(iter(errors.values()))
    sign_in = next((error for error in errors.values() if error.login), None)
    is_of_hop = bool(first.hop) and len({(error.hop, error.cause) for error in errors.values()}) == 1
    if sign_in is not None or is_of_hop or len(errors) == 1:
        return sign_in or first
    causes = "; ".join(f"{name}: {sanitize.one_line(error.cause)}" for name, error in errors.items())
    return KernelStartError(f"none of the hosts can be used: {causes}", remedy=first.remedy)
