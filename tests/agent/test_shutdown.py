"""A keeper's last moments, with its real server."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Iterator

import pytest
from contexts import context
from runtimes import ManualLoop

from jupyter_gpu_kernel.agent.core.events import FrontEndReturned, Tell
from jupyter_gpu_kernel.agent.exit.descendants import Cleanup
from jupyter_gpu_kernel.agent.keeper.core_runner import CoreRunner
from jupyter_gpu_kernel.agent.keeper.lifetime import FETCH_TIMEOUT, Shutdown
from jupyter_gpu_kernel.agent.keeper.limits.idle_timer import IdleTimer
from jupyter_gpu_kernel.agent.keeper.server import HubEvents, KeeperServer
from jupyter_gpu_kernel.agent.kernel_settings import KernelSettings
from jupyter_gpu_kernel.wire.messages import Lane, keeper_message


@pytest.fixture
def loop() -> ManualLoop:
    return ManualLoop()


@pytest.fixture
def server(loop: ManualLoop) -> Iterator[KeeperServer]:
    with tempfile.TemporaryDirectory() as folder:  # a short path: sockets' are limited
        runner = CoreRunner(loop, Path(folder), KernelSettings(), print)
        events = HubEvents(lambda request: {}, lambda: None, lambda: None, lambda error: None)
        server = KeeperServer(loop, Path(folder) / "keeper", runner, events)
        yield server
        server.close()
        runner.log_file.close()


def leaving(loop: ManualLoop, server: KeeperServer) -> Shutdown:
    """Of a kernel that has been idle for longer than it may."""
    idle_timer = IdleTimer(KernelSettings(idle_timeout=1.0), loop.time)
    loop.advance(2.0)
    cleanup = Cleanup(context(loop, server.path.parent, id="no-kernel"))
    return Shutdown(server, idle_timer, cleanup)


def says_something(server: KeeperServer) -> None:
    server.runner.handle(Tell(Lane.ORDERED, keeper_message(event="any")))


def test_with_nothing_to_say_it_is_over_at_once(loop: ManualLoop, server: KeeperServer) -> None:
    leaving(loop, server).begin(asked=False)
    assert loop.stopped


def test_what_nobody_has_received_waits_unless_somebody_asked_for_the_end(
    loop: ManualLoop, server: KeeperServer
) -> None:
    says_something(server)
    last = leaving(loop, server)
    last.begin(asked=False)
    loop.advance(FETCH_TIMEOUT - 0.1)
    assert not loop.stopped
    last.begin(asked=True)
    assert loop.stopped


def test_it_waits_only_so_long(loop: ManualLoop, server: KeeperServer) -> None:
    says_something(server)
    leaving(loop, server).begin(asked=False)
    loop.advance(FETCH_TIMEOUT + 0.1)
    assert loop.stopped


def test_a_kernel_that_is_started_anew_meanwhile_is_not_left(loop: ManualLoop, server: KeeperServer) -> None:
    says_something(server)
    last = leaving(loop, server)
    last.begin(asked=False)
    last.cancel()
    server.runner.handle(FrontEndReturned([], frozenset(), 0))
    loop.advance(FETCH_TIMEOUT + 0.1)
    assert not loop.stopped
