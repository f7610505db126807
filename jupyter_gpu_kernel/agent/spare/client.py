"""The keeper's side of the spare interpreter: has kernels forked from it, and sees to it that there is one.

Everything here may fail, and then the kernel is started as without a spare interpreter.
"""

from __future__ import annotations

import contextlib
import os
import socket
from typing import Callable, List, Mapping, Optional

from ...wire.fields import FieldError, number
from ...wire.files import private
from ..kernel_context import KernelContext
from ..paths import FolderError
from ..process.adopted_process import AdoptedProcess
from ..system.agent_runtime import ChildProcess, Streams
from .identity import is_in_job, spare_environment, spare_key
from .places import KernelStart, SparePlace, is_short, receive_packet, send_packet
from .proc_title import reserve, reserved_variable

MODE = "JUPYTER_GPU_KERNEL_SPARE"
"""An environment variable on the node. "off": no spare interpreters. "wait": each start waits for one, for tests."""
REPLY_TIMEOUT = 1.0
"""Seconds within which the process is forked, or else the kernel is started without it."""
_WAIT_TIMEOUT = 20.0


class Spare:
    """The spare interpreter of one kernel's settings, which other kernels with the same settings use as well."""

    def __init__(self, context: KernelContext, on_end: Callable[[], None]) -> None:
        """`on_end()` is called when a forked kernel has ended."""
        self._on_end = on_end
        self._loop = context.loop
        self._root = context.root.path
        self._settings = context.settings.now
        self._started: List[ChildProcess] = []  # which we must wait for, if they end before us

    def fork(self, start: KernelStart) -> Optional[AdoptedProcess]:
        """Have the kernel forked; None if that is not possible, or not allowed."""
        if not self._allowed(start.env):
            return None
        try:
            place = self._place(start)
            if os.environ.get(MODE) == "wait":
                self.ensure(start)
                self._loop.runtime.wait_until(place.listens, _WAIT_TIMEOUT, interval=0.01)
            sock = place.connect(REPLY_TIMEOUT)
            return None if sock is None else self._ask(sock, start)
        except (OSError, FolderError):
            return None

    def ensure(self, start: KernelStart) -> None:
        """Start a spare interpreter, unless there is one, or it is not allowed, or memory is short."""
        self.reap()
        if not self._allowed(start.env) or is_short():
            return
        with contextlib.suppress(OSError, FolderError):
            place = self._place(start)
            if not place.is_taken():
                self._start(place, start)

    def reap(self) -> None:
        """Forget the processes that we have started and that have ended."""
        self._started = [process for process in self._started if process.poll() is None]

    def _allowed(self, env: Mapping[str, str]) -> bool:
        wanted = self._settings.spare != "off" and os.environ.get(MODE) != "off"
        return wanted and not self._settings.job and not is_in_job(env)

    def _place(self, start: KernelStart) -> SparePlace:
        return SparePlace(self._root, spare_key(start.agent, start.env, start.cwd, self._settings.setup))

    def _start(self, place: SparePlace, start: KernelStart) -> None:
        command = [*start.agent, "spare", place.key]
        command.append(reserve(command, start.command))
        own = {name: value for name, value in os.environ.items() if name.startswith("JUPYTER_GPU_KERNEL_")}
        env = {**spare_environment(start.env), **own, **reserved_variable()}
        with open(str(place.log), "wb", opener=private) as log:
            process = self._loop.runtime.start(command, Streams(log), cwd=start.cwd, env=env, core_files=True)
        self._started.append(process)

    def _ask(self, sock: socket.socket, start: KernelStart) -> Optional[AdoptedProcess]:
        try:
            send_packet(sock, start.request(), [start.output, *start.fds.values()])
            pid = number(receive_packet(sock)[0], "pid", least=2)
            process = AdoptedProcess(self._loop, pid, self._on_end, sock)
            send_packet(sock, {"go": True})
        except (OSError, EOFError, FieldError):  # the forked process, if there is one, ends
            sock.close()
            return None
        return process
