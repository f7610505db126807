"""Runs a short command to its end, over any stream."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import NamedTuple

from ...errors import ConnectError
from .. import sanitize
from .stream import READ_SIZE, CommandStream

_MAX_OUTPUT = 4 * 1024 * 1024
"""Bytes of a short command's output."""
_LAST_LINE = 200  # bytes at the end of the output, in which the last line is looked for
_QUIET = 1.0  # seconds without output after which the output of an ended command is complete
_STATUS_WAIT = 5.0  # seconds that the exit status may arrive after the end of the output


class Completed(NamedTuple):
    """A command that has ended. The return code is -1 if it is not known; `stderr`: the last 64 KiB."""

    returncode: int
    stdout: bytes
    stderr: bytes


def run_to_end(stream: CommandStream, stdin: bytes, timeout: float, hop: str, command: str) -> Completed:
    """Send `stdin`, return the output, and close the stream.

    Raises ConnectError if the command does not end within `timeout` (s), or prints more than 4 MiB.
    """
    output = bytearray()
    with contextlib.closing(stream), stream.closing_after(timeout) as expired:
        threading.Thread(target=_feed, args=(stream, stdin), name="command stdin", daemon=True).start()
        threading.Thread(target=_end, args=(stream, output, timeout), name="command end", daemon=True).start()
        _read(stream, output, hop)
        status = None if expired.is_set() else stream.wait(_STATUS_WAIT)
        stderr = stream.stderr_tail().encode()
    if expired.is_set():
        raise _not_ended(hop, command, timeout, bytes(output))
    return Completed(-1 if status is None else status, bytes(output), stderr)


def _read(stream: CommandStream, output: bytearray, hop: str) -> None:
    while data := stream.read(READ_SIZE):
        output += data
        if len(output) > _MAX_OUTPUT:
            raise _too_much_output(hop)


def _feed(stream: CommandStream, data: bytes) -> None:
    with contextlib.suppress(OSError):  # the command need not read all its input
        stream.write(data)
    stream.close_stdin()


def _end(stream: CommandStream, output: bytearray, timeout: float) -> None:
    """Close the stream when the command has ended: a process that it left in the background may hold it open."""
    if stream.wait(timeout) is None:
        return
    before = -1
    while len(output) != before:  # its last output may still be in transit
        before = len(output)
        time.sleep(_QUIET)
    stream.close()


def _not_ended(hop: str, command: str, timeout: float, output: bytes) -> ConnectError:
    """Return the error for a command that took longer than `timeout` (s), with the last line that it has printed."""
    cause = f"a command did not end within {timeout:.0f} s: {command[:80]}"
    if last := output[-_LAST_LINE:].decode(errors="replace").strip().splitlines()[-1:]:
        cause += f"; the last line of its output: {sanitize.line(last[0])}"
    return ConnectError(
        cause, hop=hop, remedy="The machine may be overloaded, or its file system slow: try again."
    )


def _too_much_output(hop: str) -> ConnectError:
    """Return the error for a command that has printed more than _MAX_OUTPUT."""
    cause = f"a command printed more than {_MAX_OUTPUT >> 20} MiB"
    return ConnectError(cause, hop=hop, remedy="Check what the shell's start-up files print there.")
