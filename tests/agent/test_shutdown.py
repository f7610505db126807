"""A keeper's last moments, with its real loop and server."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Iterator, List

import pytest
from runtimes import RUNTIME

from jupyter_gpu_kernel.agent.exit.processes import Cleanup
from jupyter_gpu_kernel.agent.keeper.lifetime import IdleTimer, Shutdown
from jupyter_gpu_kernel.agent.keeper.server import KeeperServer
from jupyter_gpu_kernel.agent.loop import Loop
from jupyter_gpu_kernel.agent.relay.output.backlog import Backlog
from jupyter_gpu_kernel.wire.messages import Lane, keeper_message


@pytest.fixture
def loop() -> Loop:
    return Loop(RUNTIME)


@pytest.fixture
def server(loop: Loop) -> Iterator[KeeperServer]:
    with tempfile.TemporaryDirectory() as folder:  # a short path: sockets' are limited
        backlog = Backlog(RUNTIME, [Path(folder)], {})
        server = KeeperServer(
            loop, Path(folder) / "keeper", backlog, on_message=lambda message: None, on_request=lambda request: {},
            on_attached=lambda: None, on_detached=lambda: None, on_rejected=lambda error: None,
        )  # fmt: skip
        yield server
        server.close()
        backlog.close()


def leaving(loop: Loop, server: KeeperServer) -> Shutdown:
    return Shutdown(
        loop,
        server,
        IdleTimer({"idle_timeout": 1e-9}, RUNTIME.monotonic),
        Cleanup(loop.later, Path("no folder", "k", "no kernel")),
    )


def test_with_nothing_to_say_it_is_over_at_once(loop: Loop, server: KeeperServer) -> None:
    loop.later(0, lambda: leaving(loop, server).begin(asked=False))
    loop.run()


def test_what_nobody_has_heard_waits_unless_somebody_asked_for_the_end(
    loop: Loop, server: KeeperServer
) -> None:
    server.send(Lane.ORDERED, keeper_message(event="said"))
    last = leaving(loop, server)
    ran: List[str] = []
    last.begin(asked=False)
    loop.later(0.1, lambda: ran.append("meanwhile"))
    loop.later(0.2, lambda: last.begin(asked=True))
    loop.later(0.3, lambda: ran.append("never"))
    loop.run()
    assert ran == ["meanwhile"]


def test_a_kernel_that_is_started_anew_meanwhile_is_not_left(loop: Loop, server: KeeperServer) -> None:
    server.send(Lane.ORDERED, keeper_message(event="said"))
    last = leaving(loop, server)
    ran: List[str] = []
    last.begin(asked=False)
    last.cancel()
    list(server.withdraw())

    def end() -> None:
        ran.append("it went on")
        loop.stop()

    loop.later(0.1, end)
    loop.run()
    assert ran == ["it went on"]
