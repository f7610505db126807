"""Runs a short command to its end, over any stream."""

from __future__ import annotations

import contextlib
import threading
import time
from subprocess import CompletedProcess

from ..node.stream import READ_SIZE, CommandStream
from ..short_command_errors import MAX_OUTPUT, not_ended, too_much_output

_QUIET = 1.0  # seconds without output after which the output of an ended command is complete
_STATUS_WAIT = 5.0  # seconds that the exit status may arrive after the end of the output


def run_to_end(
    stream: CommandStream, stdin: bytes, timeout: float, hop: str, command: str
) -> CompletedProcess[bytes]:
    """Send `stdin`, return the output, and close the stream. The return code is -1 if it is not known.

    Raises ConnectError if the command does not end within `timeout` (s), or prints more than 4 MiB.
    """
    output = bytearray()
    expired = threading.Event()

    def expire() -> None:
        expired.set()
        stream.close()

    timer = threading.Timer(timeout, expire)
    timer.daemon = True
    timer.start()
    threading.Thread(target=_feed, args=(stream, stdin), name="command stdin", daemon=True).start()
    threading.Thread(target=_end, args=(stream, output, timeout), name="command end", daemon=True).start()
    try:
        _read(stream, output, hop)
        status = None if expired.is_set() else stream.wait(_STATUS_WAIT)
        stderr = stream.stderr_tail().encode()
    finally:
        timer.cancel()
        stream.close()
    if expired.is_set():
        raise not_ended(hop, command, timeout, bytes(output))
    return CompletedProcess(command, -1 if status is None else status, bytes(output), stderr)


def _read(stream: CommandStream, output: bytearray, hop: str) -> None:
    while data := stream.read(READ_SIZE):
        output += data
        if len(output) > MAX_OUTPUT:
            raise too_much_output(hop)


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
