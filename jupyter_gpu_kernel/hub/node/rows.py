"""Which rows of what nodes say are shown: each thing once, and nobody speaks for a kernel of another node.

A node is asked for its own kernels and GPUs. Two ways to one machine give the same rows, of which the first counts. Of
two machines that name the same kernel one is wrong: the one that this hub did not start it on, where that is known.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any

from ...errors import AgentError, GpuKernelError
from .agent_errors import AgentRefusal
from .node import Answered, Node


class Seen:
    """`first(node, key)`: whether no other way to that machine has shown this before."""

    def __init__(self) -> None:
        self._nodes: dict[Hashable, list[Node]] = {}

    def first(self, node: Node, key: Hashable) -> bool:
        known = self._nodes.setdefault(key, [])
        if any(one.same_as(node) for one in known):
            return False
        known.append(node)
        return True


class Rows:
    """`shows(node, kernel_id)` says whether that node's row of it is shown; `errors`: who contradicts whom."""

    def __init__(self, home: Callable[[str], Node | None]) -> None:
        """`home`: the node on which this hub started a kernel, if it did."""
        self._home = home
        self._seen = Seen()
        self._has: dict[str, Node] = {}
        self._wrong: dict[Node, tuple[Node, list[str]]] = {}

    def shows(self, node: Node, kernel_id: str) -> bool:
        """False: it is shown already, by another way; or this hub knows better."""
        home = self._home(kernel_id)
        has = home or self._has.setdefault(kernel_id, node)
        if not has.same_as(node):
            self._wrong.setdefault(node, (has, []))[1].append(kernel_id)
            if home is not None:
                return False
        return self._seen.first(node, kernel_id)

    @property
    def errors(self) -> list[dict[str, Any]]:
        """One row for each node that names kernels of another one."""
        return [
            Answered(node, {}, disputed([node, has], ids)).row for node, (has, ids) in self._wrong.items()
        ]


def disputed(nodes: list[Node], kernel_ids: list[str]) -> AgentError:
    """Several nodes say that they have the same kernels; the first of them is in doubt."""
    which = ", ".join(kernel_ids[:3]) + (" …" if len(kernel_ids) > 3 else "")
    names = " and ".join(node.name for node in nodes)
    cause = f"{names} both say that they have kernel {which}; only one of them can be right"
    remedy = "Ask the administrators of both: one of them may be compromised."
    return AgentError(cause, hop=nodes[0].name, remedy=remedy)


def distinct(answers: Iterable[Answered]) -> list[Answered]:
    """The first answer of each machine."""
    seen = Seen()
    return [answered for answered in answers if seen.first(answered.node, "")]


def has_kernel(answered: Answered, kernel_id: str) -> bool:
    """Whether the node lists it."""
    return any(state["id"] == kernel_id for state in answered.said.get("kernels", []))


def is_gone(error: GpuKernelError | None) -> bool:
    """Whether the node was asked, and has no such kernel (any more)."""
    return isinstance(error, AgentRefusal) and error.code == "gone"


def nowhere(kernel_id: str, answers: Iterable[Answered], remedy: str = "") -> GpuKernelError:
    """No node has it; or one could not be asked, and it may be there. `remedy`: a further sentence."""
    unasked = (answered.error for answered in answers if answered.error and not is_gone(answered.error))
    cause = f"no node has a kernel {kernel_id}"
    return next(
        unasked, AgentError(cause, remedy=f"“jupyter gpu-kernel ps” lists the kernels. {remedy}".strip())
    )
