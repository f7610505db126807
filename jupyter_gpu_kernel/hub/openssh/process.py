"""A process of ssh: its stream, and its logs, one file for each hop to which the process connects."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO

from ..transport.process import ProcessEnds
from ..transport.stream import CommandStream
from .log import MAX_LINE, READY, SIGN_IN, SSHLog

_CONNECTING, _CONNECTED = 0.01, 0.25  # seconds between two looks at a log, by whether ssh is connected
_END_WAIT = 3.0  # seconds
_MAX_FILE = 1024 * 1024  # bytes of a log
# For an ssh that reads no input: it ends when this process is killed, which a second shell notices. `read` fails at
# the end of the pipe, and succeeds when a line was written: then the process id is not ours any more. `exec` gives ssh
# the shell's own process id.
_WATCHED = 'exec 3<&0; (read -r line <&3 || kill "$$") >/dev/null 2>&1 & exec "$@" 3<&- </dev/null'


class SSHProcess:
    """One process of ssh. `stream` is the stdin and stdout of the command that ssh runs. If the process is a
    ControlMaster, it listens at `control`."""

    def __init__(
        self,
        words: Sequence[str],
        logs: Sequence[SSHLog],
        environment: Mapping[str, str] = MappingProxyType({}),
        control: Path | None = None,
    ) -> None:
        """Start the process. `words`: its command, in which each ssh writes to the file of one of the `logs`. Raises
        OSError if the process cannot be started."""
        for log in logs:
            log.file.touch(0o600)
        watched = () if control is None else ("/bin/sh", "-c", _WATCHED, "sh")
        ends = ProcessEnds([*watched, *words], {**os.environ, **environment}, Path.home())
        self.logs = logs
        self.control = control
        self.pid = ends.pid
        self.stream = CommandStream(ends)
        for log in logs:
            threading.Thread(target=self._follow, args=(log,), name="ssh log", daemon=True).start()

    @property
    def runs(self) -> bool:
        """Whether the process runs, and, if it is a ControlMaster, takes sessions."""
        listens = self.control is None or self.control.exists()
        return listens and not self.stream.closed and self.stream.wait(0) is None

    def lost(self, log: SSHLog) -> bool:
        """Whether the process has ended while it connected to the hop with this log, or afterwards."""
        if log.step <= SIGN_IN or self.runs:
            return False
        self.end()
        log.wait_beyond(READY, _END_WAIT)  # all of the log has been read then
        return True

    def end(self) -> None:
        """End the process; blocks for a moment."""
        self.stream.close()
        self.stream.wait(_END_WAIT)
        if self.control is not None:
            self.control.unlink(missing_ok=True)

    def _follow(self, log: SSHLog) -> None:
        with log.file.open("rb") as file:
            while line := self._next_line(file, log):
                log.add(line)
        log.other_lines.extend(self.stream.final_stderr().splitlines())
        log.end()
        with contextlib.suppress(OSError):
            log.file.unlink()  # fails on Windows if a program still has it open
        if self.control is not None:
            with contextlib.suppress(OSError):
                self.stream.write(b"\n")

    def _next_line(self, file: BinaryIO, log: SSHLog) -> bytes:
        """Return the next line of the log; b"" once the process has ended."""
        while not (line := file.readline(MAX_LINE)):
            if self.stream.wait(0) is not None:
                return file.readline(MAX_LINE)
            if file.tell() > _MAX_FILE:  # ssh appends to it, and a server can make it long
                with contextlib.suppress(OSError):
                    os.truncate(log.file, 0)
                    file.seek(0)
            time.sleep(_CONNECTED if log.step >= READY else _CONNECTING)
        return line
