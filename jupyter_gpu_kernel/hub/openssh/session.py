"""One command through a master: an `ssh -S` process, whose log on stderr says whether the server has opened a session.

With a background process of the command that holds its output, ssh does not end. So a short command reports its exit
status on stderr.
"""

from __future__ import annotations

import os
import re
import shlex
import threading
from collections.abc import Sequence
from pathlib import Path

from ..ssh.route_connection import NoSession, SessionRefused
from ..transport.process import ProcessEnds

_OPENED = re.compile(rb"debug1: mux_client_request_session: master session id: \d+\r?\n")
_REFUSED = re.compile(rb"mux_client_request_session: session request failed: ([^\r\n]*)")
_LOG = re.compile(rb"(?m)^debug1: .*\n?")
_STATUS = re.compile(rb"jupyter-gpu-kernel: exit status (\d+)\n")


def reporting(command: str) -> str:
    """Return a command that does the same, and reports its exit status."""
    report = 'status=$?; printf \'jupyter-gpu-kernel: exit status %s\\n\' "$status" >&2; exit "$status"'
    return shlex.join(["/bin/sh", "-c", f"({command}); {report}"])


class SessionEnds(ProcessEnds):
    """A process of ssh that carries a stream, once the server has opened a session."""

    def __init__(self, command: Sequence[str]) -> None:
        super().__init__(command, os.environ, Path.home())
        self._log = b""  # until the session is opened
        self._opened = self._ended = False
        self._status: int | None = None
        self._changed = threading.Condition()
        threading.Thread(target=self._wait_for_end, name="ssh session", daemon=True).start()

    def check_opened(self, timeout: float) -> None:
        """Wait until the server has opened the session. Raises SessionRefused, or NoSession."""
        with self._changed:
            self._changed.wait_for(lambda: self._opened or self._ended, timeout)
            if self._opened:
                return
            if refused := _REFUSED.search(self._log):
                raise SessionRefused(refused[1].decode("utf-8", "replace"))
            raise NoSession("the master has ended", timed_out=not self._ended)

    def read(self, size: int) -> bytes:
        """Block for 1 to `size` bytes; b"" once the command has ended, or the stream is closed or broken."""
        data = super().read(size)
        if not data:
            self.close_stdin()  # at once: the master may take a moment to do so, and a writer must not be deceived
        return data

    def read_stderr(self, size: int) -> bytes:
        """Return what the command writes; the log of ssh and the report are taken from it."""
        while data := super().read_stderr(size):
            with self._changed:
                data = self._without_log(data)
                self._changed.notify_all()
            if data:
                return data
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        return b""

    def _without_log(self, data: bytes) -> bytes:
        if not self._opened:
            data = self._log = self._log + data
            found = _OPENED.search(data)
            if not found:
                return b""
            self._opened = True
            data = _LOG.sub(b"", data[: found.end()]) + data[found.end() :]
        if reported := _STATUS.search(data):
            self._status = int(reported[1])
            data = _STATUS.sub(b"", data)
        return data

    def wait(self, timeout: float) -> int | None:
        """Return the exit status, or None if it is not known within so many seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self._status is not None, timeout)
            return self._status

    def _wait_for_end(self) -> None:
        status = self._process.wait()
        with self._changed:
            if self._status is None:
                self._status = status
            self._changed.notify_all()
