"""Short commands, one after the other, in a shell of this machine that may do what it likes."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from waiting import DEADLINE

from jupyter_gpu_kernel.errors import ConnectError
from jupyter_gpu_kernel.hub.transport.connection import Completed, run_to_end
from jupyter_gpu_kernel.hub.transport.process import ProcessEnds
from jupyter_gpu_kernel.hub.transport.stream import CommandStream

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="a shell of this machine")
Start = Callable[..., CommandStream]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start these words as a shell."""
    shells: list[CommandStream] = []

    def started(*words: str) -> CommandStream:
        shells.append(CommandStream(ProcessEnds(words, os.environ, Path("/"))))
        return shells[-1]

    yield started
    for shell in shells:
        shell.close()
        assert shell.wait(DEADLINE) is not None


def run(shell: CommandStream, command: str, stdin: bytes = b"") -> Completed:
    return run_to_end(shell, stdin, DEADLINE, "gpu1", command)


def test_input_that_a_command_does_not_read_is_no_command(start: Start, tmp_path: Path) -> None:
    shell, written = start("/bin/sh"), tmp_path / "written"
    stdin = b"#\n" * 500_000 + f"echo > {written}\n".encode()
    assert run(shell, "exec <&-; exit 3", stdin)[:2] == (3, b"")
    assert run(shell, "cat", b"on") == (0, b"on", b"")
    assert not written.exists()


def test_each_command_has_its_own_stderr(start: Start) -> None:
    shell = start("/bin/sh", "-c", "echo a warning >&2; exec /bin/sh")
    assert run(shell, "echo first >&2").stderr == b"first\n"
    assert shell.stderr_tail() == "", "whoever gets the shell next reports none of it"
    assert run(shell, "echo second >&2").stderr == b"second\n"


def test_a_shell_that_ends_early_has_its_own_status(start: Start) -> None:
    shell = start("/bin/sh", "-c", "echo sorry; read -r line; exit 3")
    assert run(shell, "true", b"input") == (3, b"sorry\n", b"") and shell.closed


def test_a_shell_that_ends_early_without_an_error_has_not_run_the_command(start: Start) -> None:
    shell = start("/bin/sh", "-c", "echo Commands are not permitted; read -r line; exit 0")
    assert run(shell, "true")[:2] == (-1, b"Commands are not permitted\n") and shell.closed


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("/bin/sh", "-c", "yes"), "the shell, before a command, printed more than 0.25 MiB"),
        (("/bin/sh",), "a command printed more than 4 MiB"),
    ],
    ids=["a shell", "a command"],
)
def test_output_without_end(start: Start, words: tuple[str, ...], problem: str) -> None:
    shell = start(*words)
    with pytest.raises(ConnectError, match=problem):
        run(shell, "yes")
    assert shell.closed


def test_startup_files_that_read_a_line_take_no_command(start: Start) -> None:
    shell = start("/bin/sh", "-c", "echo Press Enter to continue; read -r line; exec /bin/sh")
    assert run(shell, "echo on") == (0, b"on\n", b"")


def test_startup_files_that_read_the_command_are_named(start: Start) -> None:
    shell = start("/bin/sh", "-c", "echo Continue?; cat >/dev/null; exec /bin/sh")
    with pytest.raises(ConnectError, match="the login shell began no command within 1 s") as caught:
        run_to_end(shell, b"", 1, "gpu1", "true")
    assert "start-up files" in caught.value.remedy and shell.closed


def test_marks_of_a_shell_that_lies(start: Start) -> None:
    """It prints an exit status that is no number of 32 bits, and too long for Python to read."""
    program = textwrap.dedent("""
        import re, sys
        sys.stdin.readline()
        mark = re.search("[0-9a-f]{16}", sys.stdin.readline())[0]
        print(f"\\n{mark}-begin\\nwords\\n{mark}-end {'9' * 5000}\\n", flush=True)
        sys.exit(4)
    """)
    shell = start(sys.executable, "-c", program)
    done = run(shell, "true")
    assert done.returncode == 4 and done.stdout.startswith(b"words\n") and shell.closed
