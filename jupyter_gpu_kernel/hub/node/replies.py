"""What nodes replied: each row once, and no node speaks for a kernel of another one.

A node is asked for its own kernels and GPUs. Two routes to one machine return the same rows, of which the first are
kept. If two machines report the same kernel, one of them is wrong: the one on which this hub did not start it, if that
is known.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, NamedTuple

from ...errors import AgentError, GpuKernelError
from .agent_errors import AgentRefusal
from .node import Node


class NodeReply(NamedTuple):
    """The answer of a node, or {} and the error for which it could not be asked."""

    node: Node
    answer: dict[str, Any]
    error: GpuKernelError | None = None

    @property
    def error_row(self) -> dict[str, Any]:
        """The error for a list of rows: {"node", "error"}."""
        return {"node": self.node.name, "error": self.error.to_json() if self.error is not None else None}


class SeenRows:
    """Which machine has reported which row."""

    def __init__(self) -> None:
        self._nodes: dict[Hashable, list[Node]] = {}

    def add(self, node: Node, key: Hashable) -> bool:
        """Record a row by its key. Return False if the same machine has reported it before, by another route."""
        known = self._nodes.setdefault(key, [])
        if any(one.same_as(node) for one in known):
            return False
        known.append(node)
        return True


class KernelRows:
    """Which rows about kernels to show. `errors` are the rows for nodes that contradict each other."""

    def __init__(self, started_on: Callable[[str], Node | None]) -> None:
        """`started_on(kernel_id)`: the node on which this hub started a kernel, if it did."""
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

    @property
    def errors(self) -> list[dict[str, Any]]:
        """One row for each node that reports kernels of another one."""
        return [
            NodeReply(node, {}, conflict([node, expected], ids)).error_row
            for node, (expected, ids) in self._conflicts.items()
        ]


def conflict(nodes: list[Node], kernel_ids: list[str]) -> AgentError:
    """Return the error for several nodes that report the same kernels."""
    kernels = ", ".join(kernel_ids[:3]) + (" …" if len(kernel_ids) > 3 else "")
    names = " and ".join(node.name for node in nodes)
    cause = f"{names} both report kernel {kernels}, but only one of them can have it"
    remedy = "Ask the administrators of both: one of them may be compromised."
    return AgentError(cause, hop=nodes[0].name, remedy=remedy)


def distinct(replies: Iterable[NodeReply]) -> list[NodeReply]:
    """Return the first reply of each machine."""
    seen = SeenRows()
    return [reply for reply in replies if seen.add(reply.node, "")]


def has_kernel(reply: NodeReply, kernel_id: str) -> bool:
    """Whether the node lists the kernel."""
    return any(state["id"] == kernel_id for state in reply.answer.get("kernels", []))


def is_gone(error: GpuKernelError | None) -> bool:
    """Whether the node answered that it has no such kernel (any more)."""
    return isinstance(error, AgentRefusal) and error.code == "gone"


def not_found(kernel_id: str, replies: Iterable[NodeReply], remedy: str = "") -> GpuKernelError:
    """Return the error for a kernel that no node has, or that of a node which could not be asked and may have it.

    `remedy`: one more sentence.
    """
    unreachable = (reply.error for reply in replies if reply.error and not is_gone(reply.error))
    remedy = f"“jupyter gpu-kernel ps” lists the kernels. {remedy}".strip()
    return next(unreachable, AgentError(f"no node has a kernel {kernel_id}", remedy=remedy))
