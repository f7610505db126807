"""Commands in texts for users."""

from __future__ import annotations

from typing import List

import pytest
from runtimes import RUNTIME

from jupyter_gpu_kernel.wire.kernel_messages.compose import TransientDisplay, error_content
from jupyter_gpu_kernel.wire.texts import as_typed, duration, one_line, printable, wrapped

RED = "\x1b[31m\x1b[0m"


@pytest.mark.parametrize(
    ("words", "windows", "typed"),
    [
        (["/opt/a b/x", "login", "gpu2"], False, "'/opt/a b/x' login gpu2"),
        (["C:\\venv\\x.exe", "login", "gpu2"], True, "C:\\venv\\x.exe login gpu2"),
        (["C:\\a b\\x.exe", "login", "gpu2"], True, '& "C:\\a b\\x.exe" login gpu2'),
        (["ssh-add", "C:\\a b\\key"], True, 'ssh-add "C:\\a b\\key"'),
    ],
)
def test_a_command_is_written_for_the_shell_of_its_reader(
    words: List[str], windows: bool, typed: str
) -> None:
    """On Windows this is PowerShell, where a line that begins with quotes runs nothing."""
    assert as_typed(words, windows) == typed


def test_what_cells_show_has_lines_of_at_most_a_hundred_characters() -> None:
    """VS Code cuts longer ones off. A table's row that is short, and a command to copy, stay as they are."""
    short = "  GPU 0   NVIDIA A100   in use by alice\n\n"
    assert wrapped(short) == short
    command = "“'/a long/path to/jupyter-gpu-kernel' login gpu2”"
    text = f"{'word ' * 15}{command} {'word ' * 30}\n{short}"
    lines = wrapped(text, indent="  ").split("\n")
    assert max(map(len, lines)) <= 100 and sum(command in line for line in lines) == 1
    assert all(line.startswith("  ") for line in lines[1:3]) and wrapped(text).split() == text.split()
    assert wrapped("x" * 300) == "x" * 300, "a path can be copied"
    item = "  GPU 0: " + "in use by bob " * 10
    assert [len(line) - len(line.lstrip()) for line in wrapped(item).split("\n")] == [2, 4], "one of a list"


def test_texts_in_cells_are_wrapped() -> None:
    long = "word " * 60
    (sent,) = TransientDisplay(RUNTIME).show(long, b"{}")
    assert sent.content()["data"]["text/plain"] == wrapped(long)
    shown = error_content("GpuError", long)
    assert shown["evalue"] == long and max(map(len, shown["traceback"][0].split("\n"))) <= 100 + len(RED)
    assert shown["traceback"][0].startswith(f"{RED[:5]}GpuError")


def test_texts_of_others_are_one_line() -> None:
    assert one_line("  a\x1b[2Kb\n c\u202ed\t") == "a?[2Kb c?d"
    assert one_line("x" * 300) == "x" * 199 + "…" and one_line("12345", 5) == "12345"
    assert printable("a\x07\tc\nb") == "a? c\nb"


def test_a_time_has_at_most_two_units() -> None:
    times = {
        -1: "0 s",
        0.5: "0.5 s",
        60: "1 min",
        3600.4: "1 h",
        7380: "2 h 3 min",
        90000: "1 d 1 h",
        119.6: "2 min",
    }
    assert {seconds: duration(seconds) for seconds in times} == times
