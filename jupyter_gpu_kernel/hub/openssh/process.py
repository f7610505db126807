"""A process of ssh: its stream, and its logs, one file for each hop to which the process connects.

A log, at LogLevel DEBUG1, says how far ssh has come, and why it failed. The server's banner and the words of a
ProxyCommand are not in the log but on ssh's stderr, and are shown only. A title of the server's questions is in the
log, with any text. So the host key is the first one that is named, which is before the server can say anything, and a
step never goes back.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO, NamedTuple

from ..paths import control_folder
from ..transport.process import ProcessEnds
from ..transport.stream import CommandStream

REACH, HOST_KEY, SIGN_IN, READY, ENDED = range(5)
"""How far ssh has come: ssh waits for the server's host key; verifies the key; signs in; is connected; has ended."""
_MAX_LINES = 400
MAX_LINE = 4096  # bytes
_MAX_BEFORE = 10  # lines before a question
_MAX_OTHERS = 50
_MAX_OFFERED, _MAX_KEY = 50, 300  # keys, of which a server's title may name any number; characters of each
_HOST_KEY_LINE = re.compile(r"debug1: Server host (?:key|certificate): (\S+) (SHA256:[A-Za-z0-9+/]{43})")
_STEPS = {  # how the first line after each step begins
    "debug1: Server host ": HOST_KEY,
    "debug1: SSH2_MSG_NEWKEYS sent": SIGN_IN,
    "debug1: Entering interactive session": READY,
    "debug1: mux_client_request_session: master session id: ": READY,
}
_CONNECTED = ("debug1: Connection established", "debug1: Local version string")
_REFUSED_CHANNEL = re.compile(r"(?:debug\d: )?channel \d+: open failed: (.*)")
_PREFIX = re.compile(r"debug\d: ")
_SOON, _LATER = 0.01, 0.25  # seconds between two looks at a log, by whether ssh is connected
_END_WAIT = 3.0  # seconds
_MAX_FILE = 1024 * 1024  # bytes of a log
# For an ssh that reads no input: it ends when this process is killed, which a second shell notices. `read` fails at
# the end of the pipe, and succeeds when a line was written: then the process id is not ours any more. `exec` gives ssh
# the shell's own process id.
_WATCHED = 'exec 3<&0; (read -r line <&3 || kill "$$") >/dev/null 2>&1 & exec "$@" 3<&- </dev/null'


class HostKey(NamedTuple):
    """The type and the fingerprint ("SHA256:…") of the server's host key."""

    type: str
    fingerprint: str


class SSHLog:
    """The log of one ssh process for one hop: its lines so far, and how far ssh has come."""

    def __init__(self) -> None:
        self.file = control_folder() / secrets.token_hex(4)
        """The file to which ssh writes this log."""
        self.step = self.last_step = REACH
        """How far ssh has come, and the last step before ssh ended."""
        self.host_key: HostKey | None = None
        self.connected = self.greeted = False
        """Whether there is a TCP connection, and whether the server has sent its version string."""
        self.methods: tuple[str, ...] = ()
        """The methods of signing in that the server has named last as those that it accepts."""
        self.partial = False
        """Whether one method succeeded, and the server wants another one."""
        self.offered: list[str] = []
        """The keys that were offered."""
        self.refusal = ""
        """Why a master could not open a session."""
        self.refused_channel = ""
        """Why the host has refused its last channel to the next host."""
        self.refusals = 0
        """How often the host has refused such a channel."""
        self.questions = 0
        """How often ssh was about to ask the user."""
        self.before_question: list[str] = []
        """The lines just before the last question, such as the title of the server's questions."""
        self.other_lines: deque[str] = deque(maxlen=_MAX_OTHERS)
        """The lines of others than ssh: the server's banner, the output of a ProxyCommand."""
        self._since_debug: list[str] = []
        self._lines: deque[str] = deque(maxlen=_MAX_LINES)
        self._changed = threading.Condition(threading.RLock())

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the host key; "" if it is not known."""
        return self.host_key.fingerprint if self.host_key is not None else ""

    def end(self) -> None:
        """Wake who waits: this attempt has ended, whatever ssh does."""
        self._reached(ENDED)

    def words(self) -> list[str]:
        """Return the lines that are not debug messages: those that users of ssh see."""
        with self._changed:
            return [line for line in self._lines if line and not _PREFIX.match(line)]

    def wait_for_refused_channel(self, since: int, seconds: float) -> str:
        """Wait until ssh has logged why the host does not lead to the next one, and return the reason; "" if it does
        not say so in time. `since`: the number of refusals before."""
        with self._changed:
            self._changed.wait_for(lambda: self.refusals > since or self.step == ENDED, seconds)
            return self.refused_channel if self.refusals > since else ""

    def wait_beyond(self, step: int, seconds: float) -> bool:
        """Wait until ssh has come further than this step; return whether it has."""
        with self._changed:
            return self._changed.wait_for(lambda: self.step > step, seconds)

    def wait_for_questions(self, count: int, seconds: float) -> bool:
        """Wait until ssh was about to ask the user for the time with this number: all lines before the question
        have been read then. Return whether ssh was."""
        with self._changed:
            return self._changed.wait_for(lambda: self.questions >= count, seconds)

    def add(self, data: bytes) -> None:
        """Add the next line of ssh's log."""
        line = data[:MAX_LINE].decode("utf-8", "replace").rstrip()
        with self._changed:
            self._lines.append(line)
            self.connected |= line.startswith(_CONNECTED)
            self.greeted |= line.startswith("debug1: Remote protocol version")
            found = _HOST_KEY_LINE.match(line)
            if found and self.host_key is None:
                self.host_key = HostKey(found[1].replace("-cert-v01@openssh.com", ""), found[2])
            _, found_methods, rest = line.partition("debug1: Authentications that can continue: ")
            if found_methods:
                self.methods = tuple(rest.split(",")[:20])
            _, found_key, rest = line.partition("debug1: Offering public key: ")
            if found_key and len(self.offered) < _MAX_OFFERED:
                self.offered.append(rest[:_MAX_KEY])
            _, _, refusal = line.partition("mux_client_request_session: session request failed: ")
            self.refusal = self.refusal or refusal
            if found := _REFUSED_CHANNEL.match(line):
                self.refused_channel = found[1]
                self.refusals += 1
            self.partial |= "with partial success" in line
            if line.startswith("debug1: read_passphrase:"):
                self.questions += 1
                self.before_question = self._since_debug
            self._since_debug = [] if _PREFIX.match(line) else [*self._since_debug, line][-_MAX_BEFORE:]
            self._changed.notify_all()
        for beginning, step in _STEPS.items():
            if line.startswith(beginning):
                self._reached(step)

    def _reached(self, step: int) -> None:
        with self._changed:
            if step > self.step:
                self.step = step
                self.last_step = step if step != ENDED else self.last_step
            self._changed.notify_all()


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
            time.sleep(_LATER if log.step >= READY else _SOON)
        return line
