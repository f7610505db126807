"""The kernel's process and sockets, with a program in ipykernel's place."""

from __future__ import annotations

import hmac
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Iterator, List

import pytest
import zmq
from contexts import context
from runtimes import RUNTIME, ManualLoop, make
from waiting import eventually

from jupyter_gpu_kernel.agent.failover.keeper_pipe import KeeperPipe
from jupyter_gpu_kernel.agent.process.kernel_process import KernelProcess
from jupyter_gpu_kernel.agent.process.kernel_sockets import DELIMITER
from jupyter_gpu_kernel.agent.spare.client import Spare
from jupyter_gpu_kernel.agent.system.loop import Loop
from jupyter_gpu_kernel.wire.messages import Message

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the agent needs a POSIX system")


@pytest.fixture
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="jgk", dir="/tmp"))  # short: sockets have short names
    yield path
    shutil.rmtree(str(path))


def test_a_process_that_ended_is_not_connected_to(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It said that it is ready, and ended before that was read."""
    monkeypatch.setattr(sys, "argv", ["agent"])
    program = folder / "python"
    program.write_text("#!/bin/sh\nprintf 1 > /dev/fd/$JUPYTER_GPU_KERNEL_READY_FD\n")
    program.chmod(0o700)
    loop = ManualLoop()
    ready: List[int] = []
    nobody = context(loop, folder, id="k", spare="off")
    spare = Spare(nobody, lambda: None)
    kernel = KernelProcess(nobody, lambda message: None, lambda total: None, spare)
    before = os.listdir("/proc/self/fd")
    kernel.start(str(program), dict(os.environ), None, lambda: ready.append(1))
    eventually(lambda: kernel.reap() is not None, "the process's end")
    kernel.end()
    assert os.listdir("/proc/self/fd") == before
    loop.advance()
    assert not ready


NOBODY = """
import os, signal, sys
from pathlib import Path
from jupyter_gpu_kernel.agent.process.adopted_process import AdoptedProcess
from jupyter_gpu_kernel.agent.failover.keeper_pipe import KeeperPipe
from jupyter_gpu_kernel.agent.process.kernel_process import KernelProcess
from jupyter_gpu_kernel.agent.spare.client import Spare
from jupyter_gpu_kernel.agent.system.loop import Loop
from jupyter_gpu_kernel.agent.system.agent_runtime import AgentRuntime
sys.path.insert(0, sys.argv[3])
from contexts import context

pid, folder, loop = int(sys.argv[1]), Path(sys.argv[2]), Loop(AgentRuntime())
nobody = context(loop, folder, id="k")
kernel = KernelProcess(nobody, lambda message: None, lambda total: None, Spare(nobody, lambda: None))
kernel.adopt(AdoptedProcess(loop, pid, lambda: None), KeeperPipe())
os.setuid(65534)
kernel.signal_group(signal.SIGKILL)
"""


def test_what_is_not_ours_to_end_is_let_go(folder: Path) -> None:
    """As a `sudo` that is all that is left of the kernel's group."""
    if os.getuid() != 0:
        pytest.skip("only root can be somebody else")
    (folder / "connection.json").write_text('{"key": "key"}')
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as other:
        try:
            tests = str(Path(__file__).parents[1])
            subprocess.check_call([sys.executable, "-c", NOBODY, str(other.pid), str(folder), tests])
            assert other.poll() is None
        finally:
            other.kill()


def test_large_messages_hold_up_nobody(folder: Path) -> None:
    """Between two of them the loop has time for others: for an interrupt."""
    (folder / "connection.json").write_text('{"key": "key"}')
    sockets = zmq.Context()
    with sockets.socket(zmq.XPUB) as iopub, subprocess.Popen(["sleep", "600"]) as process:
        iopub.bind(f"ipc://{folder}/z-2")
        loop, came = Loop(RUNTIME), 0

        def on_message(message: Message) -> None:
            nonlocal came
            came += 1
            if came in (1, 50):
                loop.later(0, loop.stop)

        one = context(loop, folder, id="k")
        kernel = KernelProcess(one, on_message, lambda total: None, Spare(one, lambda: None))
        kernel.adopt(process, KeeperPipe())
        iopub.recv()  # it has subscribed
        parts = make("stream", {"name": "stdout", "text": "x" * 1_000_000})
        signature = hmac.new(b"key", b"".join(parts), "sha256").hexdigest().encode()
        for _ in range(50):
            iopub.send_multipart([b"stream", DELIMITER, signature, *parts])
        iopub.close(linger=-1)
        sockets.term()  # returns when all but what one socket's buffer takes are there
        loop.run()
        assert came == 1
        loop.run()
        assert came == 50
        process.kill()
        process.wait()
        kernel.end()
