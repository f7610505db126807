"""The whole demo, as a user runs it: it holds what it promises and leaves nothing anywhere."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from jupyter_gpu_kernel.demo.show import NUMBERS

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(sys.platform != "linux", reason="the practice cluster needs Linux"),
]
COMMAND = [sys.executable, "-c", "from jupyter_gpu_kernel.demo import run_demo; raise SystemExit(run_demo())"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch) -> Path:
    """An empty home folder; no place of Jupyter's own is named."""
    for name in [name for name in os.environ if name.startswith(("JUPYTER", "XDG_", "IPYTHON"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def demo_processes() -> list[str]:
    """The folders that processes of any demo on this machine bear as their mark."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/environ"):
        try:
            words = entry.read_bytes().split(b"\0")
        except OSError:
            continue
        found += [word.decode() for word in words if word.startswith(b"JUPYTER_GPU_KERNEL_DEMO=")]
    return found


def folder_in(text: str) -> str:
    """The demo's folder, which it names at its beginning."""
    return text.partition("folder")[2].split()[0]


def test_the_demo_holds_what_it_promises_and_leaves_nothing(home):
    done = subprocess.run(COMMAND, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert [number for number in range(NUMBERS) if f"#{number:02d} " not in done.stdout] == []
    assert done.stdout.startswith("A demo on this machine")  # before the slow imports
    assert "the kernel stays, the cell goes on" in done.stdout
    assert "the link is cut" in done.stdout
    assert "NOT" not in done.stdout
    assert list(home.iterdir()) == []
    assert not Path(folder_in(done.stdout)).exists()
    assert not any(folder_in(done.stdout) in mark for mark in demo_processes())


def test_a_demo_that_is_ended_leaves_nothing(home):
    process = subprocess.Popen(COMMAND, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout:
        printed = ""
        for line in process.stdout:
            printed += line
            if "In [3]" in line:
                process.send_signal(signal.SIGTERM)
        assert process.wait(60) != 0
    assert "In [3]" in printed, printed
    assert not Path(folder_in(printed)).exists()
    assert not any(folder_in(printed) in mark for mark in demo_processes())
    assert list(home.iterdir()) == []
