"""`ps --watch` and `gpus --watch`: on a terminal's screen, and one list after the other in a pipe."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from remote import Remote
from waiting import DEADLINE, eventually, readable

from jupyter_gpu_kernel import kernelspecs

pytestmark = pytest.mark.full


class Terminal:
    """A terminal in which the program runs."""

    def __init__(self, remote: Remote, *words: str) -> None:
        self.screen, stdio = pty.openpty()
        self.settings = termios.tcgetattr(stdio)
        self.resize(30, 150)
        self.process = subprocess.Popen(
            ["setsid", "--ctty", sys.executable, "-m", "jupyter_gpu_kernel.cli", *words],
            env=remote.program_environment(TERM="xterm-256color"), stdin=stdio, stdout=stdio, stderr=stdio,
        )  # fmt: skip
        self._stdio = stdio
        self.output = ""

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.screen, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def until(self, text: str) -> str:
        """What it writes until it has written that."""
        deadline = time.monotonic() + DEADLINE
        while text not in self.output:
            assert time.monotonic() < deadline, f"no {text!r} in {self.output!r}"
            if readable(self.screen, 0.1):
                self.output += os.read(self.screen, 65536).decode()
        before, _, self.output = self.output.partition(text)
        return before + text

    def type(self, keys: str) -> None:
        os.write(self.screen, keys.encode())

    def end(self) -> int:
        """The exit status; the terminal has the settings that it had before."""
        status = self.process.wait(DEADLINE)
        assert termios.tcgetattr(self._stdio) == self.settings
        return status

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait()
        os.close(self.screen)
        os.close(self._stdio)


@pytest.fixture
def gpus(remote: Remote) -> Iterator[Terminal]:
    terminal = Terminal(remote, "gpus", "cpu", "--watch", "1")
    yield terminal
    terminal.close()


@pytest.fixture
def state(remote: Remote) -> Iterator[Path]:
    """What the practice nvidia-smi shows."""
    path = remote.folder / "gpus.json"
    before = path.read_text()
    yield path
    path.write_text(before)


def set_gpu(state: Path, **values: object) -> None:
    """The first GPU has these from now on."""
    reported = json.loads(state.read_text())
    reported["gpus"][0].update(values)
    new = state.with_suffix(".new")
    new.write_text(json.dumps(reported))
    new.replace(state)


def test_the_screen_is_kept_up_to_date(gpus: Terminal, state: Path) -> None:
    gpus.until("MEMORY MiB")
    set_gpu(state, utilization=87)
    gpus.until("87")
    set_gpu(state, name="NVIDIA Practice GPUx")
    gpus.until("Practice GPUx")
    gpus.resize(6, 40)
    shown = gpus.until("… 3 more")
    assert "NODE" in shown
    gpus.resize(30, 150)
    gpus.until("no:")
    gpus.type("\x03")
    assert gpus.end() == 0


def test_a_hub_that_ends_is_started_again(remote: Remote, gpus: Terminal, state: Path) -> None:
    gpus.until("MEMORY MiB")
    first = remote.hub_pid()
    psutil.Process(first).kill()
    set_gpu(state, utilization=55)
    gpus.until("55 %")
    assert remote.hub_pid() != first
    gpus.type("\x03")
    assert gpus.end() == 0


def test_a_node_that_does_not_answer_is_a_line_and_the_others_stay(remote: Remote) -> None:
    remote.write("nowhere", route=["127.0.0.1:1"])
    both = Terminal(remote, "gpus", "cpu", "nowhere", "--watch")
    both.until("127.0.0.1:1: ")
    both.until("MEMORY MiB")
    both.type("\x03")
    assert both.end() == 0
    both.close()
    kernelspecs.remove("nowhere")


def test_in_a_pipe_each_list_is_a_line_of_json(remote: Remote) -> None:
    command = [sys.executable, "-m", "jupyter_gpu_kernel.cli", "gpus", "cpu", "--watch", "1", "--json"]
    with subprocess.Popen(
        command, env=remote.program_environment(), stdout=subprocess.PIPE, stdin=subprocess.DEVNULL
    ) as program:
        assert program.stdout is not None
        for _ in range(2):
            assert [row["index"] for row in json.loads(program.stdout.readline())] == [0, 1, 2, 3]
        program.send_signal(signal.SIGINT)
        assert program.wait(DEADLINE) == 0
    eventually(
        lambda: not [one for one in remote.processes() if "nvidia-smi" in one.name()], "they have ended"
    )


def test_in_a_pipe_the_tables_follow_each_other(remote: Remote) -> None:
    command = [sys.executable, "-m", "jupyter_gpu_kernel.cli", "ps", "--watch", "1"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=remote.program_environment(), stdout=pipe, text=True) as program:
        assert program.stdout is not None
        shown = [program.stdout.readline() for _ in range(6)]
        assert shown[1] == shown[4] == "No kernel is running.\n" and shown[2] == shown[5] == "\n"
        program.send_signal(signal.SIGINT)
        assert program.wait(DEADLINE) == 0
