"""The errors for a short command on another machine that takes too long, or prints too much."""

from __future__ import annotations

from ..errors import ConnectError
from . import sanitize

MAX_OUTPUT = 4 * 1024 * 1024
"""Bytes of a short command's output."""
_LAST_LINE = 200  # bytes at the end of the output, in which the last line is looked for


def not_ended(hop: str, command: str, timeout: float, output: bytes) -> ConnectError:
    """Return the error for a command that took longer than `timeout` (s), with the last line that it has printed."""
    cause = f"a command did not end within {timeout:.0f} s: {command[:80]}"
    if last := output[-_LAST_LINE:].decode(errors="replace").strip().splitlines()[-1:]:
        cause += f"; the last line of its output: {sanitize.line(last[0])}"
    return ConnectError(
        cause, hop=hop, remedy="The machine may be overloaded, or its file system slow: try again."
    )


def too_much_output(hop: str) -> ConnectError:
    """Return the error for a command that has printed more than MAX_OUTPUT."""
    cause = f"a command printed more than {MAX_OUTPUT >> 20} MiB"
    return ConnectError(cause, hop=hop, remedy="Check what the shell's start-up files print there.")
