"""Texts for users: commands written so that the reader can run them, sizes, and what others chose in one line."""

from __future__ import annotations

import shlex
import subprocess
import sys
from typing import Sequence

COMMAND = "jupyter gpu-kernel"
"""The name of our program in texts, where nothing else is known."""


def as_typed(words: Sequence[str], windows: bool = sys.platform == "win32") -> str:
    """Return a command as a user types it in a shell on this computer.

    On Windows that is PowerShell, which runs a quoted program only behind “&”.
    """
    if not windows:
        return shlex.join(words)
    typed = subprocess.list2cmdline(words)
    return f"& {typed}" if typed.startswith('"') else typed


def memory_size(mib: int) -> str:
    """A size in MiB as users read it: "512 MiB", "11.9 GiB"."""
    return f"{mib / 1024:.1f} GiB" if mib >= 1024 else f"{mib} MiB"


def one_line(text: str, most: int = 120) -> str:
    """Return text that others chose in a form that is safe in a terminal, in one line of at most `most` characters."""
    return "".join(char if char.isprintable() else "?" for char in text.strip())[:most]


def with_program(text: str, program: str) -> str:
    """Return the text with `program` (quoted for the reader's shell; "" if unknown) in place of COMMAND."""
    return text.replace(COMMAND + " ", program + " ") if program else text
