"""All work nodes that clients have asked for, one per route, and where the kernels are that this hub started."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...errors import GpuKernelError, HubError
from ..rpc import REPORT_BUG, Call
from .node import Node
from .replies import NodeReply
from .shared_connection import RouteSettings

_MAX_KERNELS = 10_000
"""Kernels of which it is remembered where they were started."""


class Nodes:
    """The nodes by route. A spec is {"settings": a kernelspec's, "name": its name}."""

    def __init__(self, trust_file: Path, log: logging.Logger) -> None:
        self._trust_file = trust_file
        self._log = log
        self._nodes: dict[RouteSettings, Node] = {}
        self._started_on: dict[str, RouteSettings] = {}

    @property
    def in_use(self) -> bool:
        """Whether a kernel is attached to one of them, or the user signed in for kernels to come."""
        return any(node.kept_open or node.in_use for node in self._nodes.values())

    def of(self, settings: dict[str, Any]) -> Node:
        """Return the node to which these settings lead."""
        route = RouteSettings.from_settings(settings)
        node = self._nodes.get(route)
        if node is None:
            node = self._nodes[route] = Node(route, self._trust_file, self._log)
        return node

    def separate(self, settings: dict[str, Any], asks: bool) -> Node:
        """Return the same node with a connection of its own, which the caller must close."""
        return Node(RouteSettings.from_settings(settings), self._trust_file, self._log, asks)

    def describe(self) -> list[dict[str, Any]]:
        """Return each node's `describe()`."""
        return [node.describe() for node in self._nodes.values()]

    async def hang_up(self, *, unused_only: bool) -> None:
        """Close the connections; keepers live on."""
        for route, node in list(self._nodes.items()):
            if not (unused_only and node.in_use):
                del self._nodes[route]
                await node.close()

    def record_start(self, kernel_id: str, node: Node) -> None:
        """Remember that this hub has just made up that id for a kernel on that node: no other node can have it."""
        self._started_on[kernel_id] = node.settings
        if len(self._started_on) > _MAX_KERNELS:
            del self._started_on[next(iter(self._started_on))]

    def started_on(self, kernel_id: str) -> Node | None:
        """Return the node on which this hub started the kernel, if it did."""
        route = self._started_on.get(kernel_id)
        return self.of(route.to_settings()) if route is not None else None

    def specs_for(self, kernel_id: str, call: Call) -> list[dict[str, Any]]:
        """Return the specs of the node on which this hub started the kernel, or else all specs of the call."""
        specs: list[dict[str, Any]] = call.arguments["specs"]
        route = self._started_on.get(kernel_id)
        if route is None:
            return specs
        matching = [spec for spec in specs if RouteSettings.from_settings(spec["settings"]) == route]
        return matching or [{"settings": route.to_settings()}]

    async def ask_each(
        self,
        call: Call,
        do: str,
        timeout: float = 30,
        specs: list[dict[str, Any]] | None = None,
        more: Callable[[Node], dict[str, Any]] = lambda node: {},
    ) -> list[NodeReply]:
        """Send a request to each node of `specs` (else of the call's). `more(node)` returns its further arguments."""
        nodes: dict[RouteSettings, tuple[Node, dict[str, Any]]] = {}
        for spec in call.arguments["specs"] if specs is None else specs:
            node = self.of(spec["settings"])
            nodes.setdefault(node.settings, (node, spec))

        async def ask(node: Node, spec: dict[str, Any]) -> NodeReply:
            call.progress(node.name, "asking")
            try:
                python = spec["settings"].get("python")
                return NodeReply(node, await node.request(python, call, do, timeout, **more(node)))
            except GpuKernelError as error:
                error.fill_in("NAME", str(spec.get("name") or ""))
                return NodeReply(node, {}, error)
            except Exception as error:  # a bug of ours, perhaps triggered by this node: show the others
                self._log.exception("%s: “%s” failed", node.name, do)
                cause = f"{type(error).__name__}: {error}"
                return NodeReply(node, {}, HubError(cause, hop=node.name, remedy=REPORT_BUG))

        return list(await asyncio.gather(*(ask(*pair) for pair in nodes.values())))
