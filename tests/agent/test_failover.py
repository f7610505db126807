"""Processes that are not our children, and the pipe by which a kernel knows its keeper."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import List, Optional

import pytest
from runtimes import RUNTIME

from jupyter_gpu_kernel.agent.exit.reason import UNKNOWN, EndFacts, explain
from jupyter_gpu_kernel.agent.failover.keeper_pipe import KeeperPipe
from jupyter_gpu_kernel.agent.process.adopted_process import AdoptedProcess
from jupyter_gpu_kernel.agent.system.loop import Loop

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="the agent needs Linux")
STRANGER = (
    "import subprocess, sys; print(subprocess.Popen(['sleep', '600']).pid, flush=True); sys.stdin.read()"
)


def ends(loop: Loop, pid: int) -> List[Optional[int]]:
    """Adopts, kills, and waits for what is told of the end."""
    received: List[Optional[int]] = []

    def over() -> None:
        received.append(adopted.poll())
        loop.stop()

    adopted = AdoptedProcess(loop, pid, over)
    assert adopted.poll() is None
    os.kill(pid, signal.SIGKILL)
    loop.later(60, loop.stop)
    loop.run()
    return received


def test_a_strangers_end_is_noticed() -> None:
    """Its parent does not ask how it ended; as long as that is so, we may."""
    command = [sys.executable, "-c", STRANGER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout
        assert ends(Loop(RUNTIME), int(parent.stdout.readline())) == [-signal.SIGKILL]


def test_one_that_is_gone_already() -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    loop, received = Loop(RUNTIME), []
    adopted = AdoptedProcess(loop, process.pid, lambda: (received.append(1), loop.stop()))  # type: ignore[func-returns-value]
    loop.run()
    assert received and adopted.poll() == UNKNOWN


def test_a_death_without_witness() -> None:
    assert "unknown reason" in explain(EndFacts(UNKNOWN)).cause
    assert "shut down" in explain(EndFacts(UNKNOWN, requested="shutdown")).cause
    assert "front end ended it" in explain(EndFacts(UNKNOWN, signal_sent=9)).cause
    assert "out of memory" in explain(EndFacts(UNKNOWN, node_oom_kills=1)).cause
    trace = 'Fatal Python error: Aborted\n\nCurrent thread 0x1 (most recent call first):\n  File "a.py", line 3 in f\n'
    assert "abort" in explain(EndFacts(UNKNOWN, stderr=trace)).cause


def test_a_kernel_that_does_not_read_holds_up_nobody() -> None:
    pipe = KeeperPipe()
    kernels_end = pipe.open()
    began = time.monotonic()
    while pipe.write({"words": "x" * 50_000}):
        assert time.monotonic() < began + 60
    first = os.read(kernels_end, 100_000).split(b"\n")[0]
    assert json.loads(first.decode()) == {"words": "x" * 50_000}
    os.close(kernels_end)
    assert not pipe.write({})
    pipe.close()
    pipe.close()
    assert not pipe.write({})
