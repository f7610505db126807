"""The kernel's process and sockets, with a program in ipykernel's place."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Iterator, List

import pytest

from jupyter_gpu_kernel.agent.kernel import Kernel
from jupyter_gpu_kernel.agent.loop import Loop

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
    loop = Loop()
    ready: List[int] = []
    kernel = Kernel(loop, folder, lambda channel, client, parts: None)
    before = os.listdir("/proc/self/fd")
    kernel.start(str(program), dict(os.environ), None, lambda: ready.append(1))
    while kernel.reap() is None:
        time.sleep(0.01)
    kernel.end()
    assert os.listdir("/proc/self/fd") == before
    loop.later(0.1, loop.stop)
    loop.run()
    assert not ready


NOBODY = """
import os, signal, sys
from pathlib import Path
from jupyter_gpu_kernel.agent.kernel import Kernel
from jupyter_gpu_kernel.agent.loop import Loop

pid, folder = int(sys.argv[1]), Path(sys.argv[2])
kernel = Kernel(Loop(), folder, lambda channel, client, parts: None)
kernel.adopt(pid, os.open(os.devnull, os.O_WRONLY), lambda: None)
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
            subprocess.check_call([sys.executable, "-c", NOBODY, str(other.pid), str(folder)])
            assert other.poll() is None
        finally:
            other.kill()
