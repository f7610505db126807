"""What reaches the keeper from the side: signals, the kernel's end, and what the guard in the kernel tells."""

from __future__ import annotations

import json
import os
import signal
import socket
from pathlib import Path
from typing import Any, Callable, Dict

from .inside.signals import Sender
from .loop import Loop
from .story import Story

_KEPT = ("pid", "uid", "user", "command", "kind", "in_use", "action")


class Ears:
    """Listens from now on. `on_child()` when a child may have ended; the rest goes to the story."""

    def __init__(self, loop: Loop, path: Path, story: Story, on_child: Callable[[], None]) -> None:
        self.term: Dict[str, Any] = {}  # what the story has of the last SIGTERM
        self._story = story
        self._on_child = on_child
        self._listen_to_signals(loop)
        self._listen_to_guard(loop, path)

    def _listen_to_signals(self, loop: Loop) -> None:
        """Children's ends wake the loop; a stray SIGTERM or SIGHUP is a line in the story, not an end."""
        read_fd, write_fd = os.pipe()
        for fd in (read_fd, write_fd):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, lambda number, frame: None)
        loop.watch(read_fd, lambda _: self._signalled(os.read(read_fd, 512)))

    def _signalled(self, numbers: bytes) -> None:
        for number in set(numbers) - {signal.SIGCHLD}:
            self._story.tell("signal", f"the keeper got {signal.Signals(number).name} and stays")
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
        while True:
            try:
                self._guard_says(self._guard.recv(65536))
            except (BlockingIOError, InterruptedError):
                return

    def _guard_says(self, datagram: bytes) -> None:
        try:
            event: Dict[str, Any] = json.loads(datagram.decode())
            if event["event"] != "sigterm":
                self._story.tell(str(event["event"]), str(event.get("text", "")))
                return
            sender = Sender(**{name: event[name] for name in Sender._fields})
            text = f"SIGTERM from {sender}: {event['action']}"
        except (ValueError, KeyError, TypeError):
            return  # any process of this user can write here
        kept = {key: event[key] for key in _KEPT if key in event}
        self.term = self._story.tell("sigterm", text, **kept)
