"""What reaches the keeper from the side: signals, the kernel's end, and what the guard in the kernel tells."""

from __future__ import annotations

import os
import signal
import socket
import time
from pathlib import Path
from typing import Any, Callable, Dict, Optional

from ...wire.fields import FieldError, load_object, number, text
from ..in_kernel.signal_rules import Sender
from ..loop import Loop
from ..story import Limited, Story

_AT_ONCE = 1000
_WORD = 200
_DATAGRAM = 65536


class ProcessEvents:
    """Listens from now on. `on_child()` when a child may have ended; the rest goes to the story."""

    def __init__(self, loop: Loop, path: Path, story: Story, on_child: Callable[[], None]) -> None:
        self.term: Dict[str, Any] = {}  # what the story has of the last SIGTERM
        self._story = story
        self._of_others = Limited(story)
        self._on_child = on_child
        self._listen_to_signals(loop)
        self._listen_to_guard(loop, path)

    def _listen_to_signals(self, loop: Loop) -> None:
        """Children's ends wake the loop; a stray SIGTERM or SIGHUP is a line in the story, not an end."""
        read_fd, write_fd = os.pipe()
        for fd in (read_fd, write_fd):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
        for caught in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(caught, lambda caught, frame: None)
        loop.watch(read_fd, lambda _: self._signalled(os.read(read_fd, 512)))

    def _signalled(self, numbers: bytes) -> None:
        for caught in set(numbers) - {signal.SIGCHLD}:
            self._of_others.tell("signal", f"the keeper got {signal.Signals(caught).name} and stays")
        self._on_child()

    def not_answered(self) -> None:
        """A SIGTERM is there that the guard cannot take yet."""
        text = "SIGTERM; the kernel answers when C code that holds Python's lock (the GIL) is done"
        self.term = self._story.tell("sigterm", text, kind="unknown", action="pending")

    def _listen_to_guard(self, loop: Loop, path: Path) -> None:
        """The guard tells of signals, one datagram each."""
        if path.exists():  # a killed keeper's
            path.unlink()
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        sock.bind(str(path))
        sock.setblocking(False)
        self._guard = sock
        loop.watch(sock.fileno(), lambda _: self.hear_guard())

    def hear_guard(self) -> None:
        """Takes all that the guard has said so far; the kernel may have ended right after."""
        for _ in range(_AT_ONCE):
            try:
                self._guard_says(self._guard.recv(_DATAGRAM))
            except (BlockingIOError, InterruptedError):
                return
            except FieldError:
                pass  # any process of this user can write here

    def _guard_says(self, datagram: bytes) -> None:
        said = load_object(datagram)
        event = text(said, "event", most=_WORD)
        if event != "sigterm":
            self._of_others.tell(event, text(said, "text", "", most=_DATAGRAM))
            return
        sender = Sender(
            *(text(said, "kind", most=_WORD), _process(said, "pid"), _process(said, "uid")),
            *(text(said, "user", most=_WORD), text(said, "command", most=_WORD)),
        )
        kept = dict(
            sender._asdict(), in_use=bool(said.get("in_use")), action=text(said, "action", most=_WORD)
        )
        line = f"SIGTERM from {sender}: {kept['action']}"
        self.term = self._of_others.tell("sigterm", line, **kept) or dict(kept, text=line, time=time.time())


def _process(said: Dict[str, Any], key: str) -> Optional[int]:
    """A process's id, or its user's; None where the guard does not know it."""
    return None if said.get(key) is None else number(said, key)
