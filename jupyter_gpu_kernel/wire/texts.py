"""What texts for users have in common: they name our commands as their reader can run them."""

from __future__ import annotations

import shlex
import subprocess
import sys
from typing import Sequence

COMMAND = "jupyter gpu-kernel"
"""How texts name our program where nothing else is known."""


def as_typed(words: Sequence[str], windows: bool = sys.platform == "win32") -> str:
    """A command as its user would type it in a shell on this computer; on Windows in PowerShell, which runs a program
    in quotes only behind “&”."""
    if not windows:
        return shlex.join(words)
    typed = subprocess.list2cmdline(words)
    return f"& {typed}" if typed.startswith('"') else typed


def memory_size(mib: int) -> str:
    """A size in MiB as users read it: "512 MiB", "11.9 GiB"."""
    return f"{mib / 1024:.1f} GiB" if mib >= 1024 else f"{mib} MiB"


def with_program(text: str, program: str) -> str:
    """The text with `program` (quoted for the reader's shell; "" if not known) in place of COMMAND."""
    return text.replace(COMMAND + " ", program + " ") if program else text
