"""One `ssh` process that holds the connection to one hop: a ControlMaster of our own.

It ends when `end` is called, and also when this process is killed: a shell beside it waits for the end of a pipe whose
other end only this process has.
"""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from ..transport.process import start_with_pipes
from .askpass import ASKER
from .log import READY, Log

_GRACE = 2.0  # seconds for ssh to end after SIGTERM
_LAST_LINES = 1.0  # seconds for the lines of an ssh that has ended to be read
# `read` fails at the end of the pipe, and succeeds when `end` has written a line: then the process id is not ours any
# more. `exec` gives ssh the shell's own process id.
_WITH_PIPE = (
    f'export {ASKER}="$$"; '
    'exec 3<&0; (read -r line <&3 || kill "$$") >/dev/null 2>&1 & exec "$@" 3<&- </dev/null'
)


class Master:
    """`log` tells how far it has come."""

    def __init__(
        self, command: Sequence[str], control: Path, environment: Mapping[str, str], log: Log
    ) -> None:
        """Start it. It listens at `control` once it has signed in."""
        self.control = control
        self.log = log
        words = ["/bin/sh", "-c", _WITH_PIPE, "sh", *command]
        self._process = start_with_pipes(words, {**os.environ, **environment})
        threading.Thread(target=self._read, name="ssh log", daemon=True).start()
        threading.Thread(target=self._wait, name="ssh wait", daemon=True).start()

    @property
    def pid(self) -> int:
        """The id of the ssh process."""
        return self._process.pid

    @property
    def listens(self) -> bool:
        """Whether it runs, and takes sessions."""
        return self._process.poll() is None and self.control.exists()

    def end(self) -> None:
        """End it, and with it all its sessions; blocks for a moment."""
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()
        try:
            self._process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self.control.unlink(missing_ok=True)

    def _read(self) -> None:
        others = threading.Thread(target=self._read_others, name="ssh stderr", daemon=True)
        others.start()
        with _lines(self._process.stdout) as stream:
            self.log.read(stream)
        others.join(_LAST_LINES)
        self.log.end()

    def _read_others(self) -> None:
        with _lines(self._process.stderr) as stream:
            self.log.read_others(stream)

    def _wait(self) -> None:
        self._process.wait()
        assert self._process.stdin is not None
        with contextlib.suppress(OSError), self._process.stdin as pipe:
            pipe.write(b"\n")
        self.log.wait_beyond(READY, _LAST_LINES)  # a process that a ProxyCommand leaves may hold stderr open
        self.log.end()


def _lines(pipe: IO[bytes] | None) -> IO[bytes]:
    """Return a pipe of the process for reading line by line."""
    assert isinstance(pipe, io.RawIOBase)
    return io.BufferedReader(pipe)
