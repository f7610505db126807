"""A real kernel that the tests of a file share, with a front end: `from shared_kernel import *`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fronts import Front
from streams import LoopThread, until

from jupyter_gpu_kernel.hub.kernel.remote_kernel import RemoteKernel
from jupyter_gpu_kernel.hub.node.link import Link


@pytest.fixture(scope="module")
def shared(loop: LoopThread, link: Link) -> Iterator[tuple[RemoteKernel, Front]]:
    kernel = loop.kernel(link)
    with Front(kernel.edge.connection) as front:
        yield kernel, front


@pytest.fixture
def remote(shared: tuple[RemoteKernel, Front], loop: LoopThread) -> RemoteKernel:
    """The kernel that tests share: it is started again after a test that failed before it did so itself."""
    kernel, _ = shared
    if kernel.status["state"] == "ended":
        loop.call(kernel.command, "restart")
        until(kernel, "idle")
    return kernel


@pytest.fixture
def front(shared: tuple[RemoteKernel, Front], remote: RemoteKernel) -> Front:
    return shared[1]
