"""Commands in texts for users."""

from __future__ import annotations

from typing import List

import pytest

from jupyter_gpu_kernel.wire.texts import as_typed


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
