"""A node and a link to it, through a pipe: for tests that ask nothing special of them. A file's own come first."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from dialling import dial, transport
from streams import LoopThread, Node

from jupyter_gpu_kernel.hub.node.link import Link, LinkTimeouts

__all__ = ["dial", "transport"]


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with Node() as node:
        yield node


@pytest.fixture(scope="module")
def loop(node: Node) -> Iterator[LoopThread]:
    with LoopThread() as loop:
        yield loop


@pytest.fixture(scope="module")
def link(node: Node, loop: LoopThread) -> Link:
    return loop.link(node, LinkTimeouts(retry=0.02))
