"""Names in /proc that are no text: a process's is cut at 15 bytes, in the middle of a letter, and a file's is any."""

from __future__ import annotations

import mmap
import os
import shutil
import subprocess
from pathlib import Path
from typing import Iterator

import pytest
from waiting import eventually

from jupyter_gpu_kernel.agent.exit.node_checks import memory_daemon
from jupyter_gpu_kernel.agent.in_kernel import usage
from jupyter_gpu_kernel.agent.process.signals import sigterm_is_pending
from jupyter_gpu_kernel.agent.system.procfs import (
    command_name,
    has_opened_gpus,
    sees_other_files,
    start_ticks,
    tree_cpu,
)

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="the agent needs Linux")


@pytest.fixture
def stranger(tmp_path: Path) -> Iterator[int]:
    """Somebody's process, of a name with letters of three bytes each."""
    program = tmp_path / "a训练模型脚本"
    shutil.copy(str(shutil.which("sleep")), str(program))
    with subprocess.Popen([str(program), "600"]) as process:
        try:
            comm = Path("/proc", str(process.pid), "comm")
            # It gets its name a moment after it has begun.
            eventually(lambda: comm.read_bytes().startswith(b"a"), "the program's name")
            with pytest.raises(UnicodeDecodeError):
                comm.read_text(encoding="utf-8")
            yield process.pid
        finally:
            process.kill()


def test_a_process_whose_name_is_cut(stranger: int) -> None:
    assert tree_cpu(os.getsid(0)) > 0
    assert usage._cpu_usage()[0] >= 0
    assert command_name(stranger).startswith("a训练")
    assert start_ticks(stranger) > 0
    assert not sigterm_is_pending(stranger)
    memory_daemon()


def test_a_file_that_the_kernel_maps(tmp_path: Path) -> None:
    name = os.fsencode(tmp_path) + b"/caf\xe9"
    with open(name, "wb+") as file:
        file.write(b"x")
        file.flush()
        with mmap.mmap(file.fileno(), 1):
            assert has_opened_gpus(os.getpid()) is False


def test_a_process_that_has_ended_sees_no_other_files() -> None:
    """A killed keeper was taken for one with a /tmp of its own, and its kernel for one that nobody can reach."""
    with subprocess.Popen(["sleep", "600"]) as process:
        assert not sees_other_files(process.pid)
        process.kill()
        eventually(lambda: not start_ticks(process.pid), "the end")
        assert not sees_other_files(process.pid), "a zombie"
    assert not sees_other_files(process.pid)
