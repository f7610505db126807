"""One command through a master: an `ssh -S` process. Its log on stderr says whether the server has opened a session."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Sequence
from pathlib import Path

from ..ssh.route_connection import NoSession, SessionRefused
from ..transport.process import ProcessEnds

_OPENED = re.compile(rb"debug1: mux_client_request_session: master session id: \d+\r?\n")
_REFUSED = re.compile(rb"mux_client_request_session: session request failed: ([^\r\n]*)")
_LOG = re.compile(rb"(?m)^debug1: .*\n?")


class SessionEnds(ProcessEnds):
    """A process of ssh that carries a stream, once the server has opened a session."""

    def __init__(self, command: Sequence[str]) -> None:
        super().__init__(command, os.environ, Path.home())
        self._log = b""  # until the session is opened
        self._opened = self._ended = False
        self._changed = threading.Condition()

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
        """Return what the command writes; the log of ssh is taken from it."""
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
        if self._opened:
            return data
        data = self._log = self._log + data
        found = _OPENED.search(data)
        if not found:
            return b""
        self._opened = True
        return _LOG.sub(b"", data[: found.end()]) + data[found.end() :]
