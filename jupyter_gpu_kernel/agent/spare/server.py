"""The spare interpreter: it imports what a kernel needs, and forks kernels for keepers of this user that ask for one.

    python AGENT spare KEY FILLER

It has one thread, no ZeroMQ context and no GPU. It is the parent of the kernels. A kernel that has ended stays a zombie
until its keeper has read the exit status and has closed the connection. When the interpreter has had nothing to do for
some time, when the node is short of memory, or when the Python environment has changed on disk before a start, it
retires: it forks no more kernels, and ends with the last one.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import importlib
import os
import select
import signal
import socket
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

from ...wire.fields import FieldError
from ...wire.runtime import Runtime
from ..in_kernel import main as kernel_main
from .files import EnvironmentFiles
from .identity import changed_variables
from .places import KernelStart, SparePlace, has_room, is_own, is_short, receive_packet, send_packet
from .proc_title import ProcTitle

IDLE_LIMIT = 1800.0
"""Seconds without a start of a kernel after which the process retires. JUPYTER_GPU_KERNEL_SPARE_IDLE: another one."""
_ASK_TIMEOUT = 0.2
"""Seconds that a keeper which has connected may take to send its request."""
_LATE = (
    *("IPython.core.completerlib", "IPython.core.debugger", "IPython.core.logger", "IPython.core.oinspect"),
    *("IPython.extensions.storemagic", "sqlite3", "tornado.platform.asyncio"),
)
"""Modules that ipykernel and IPython import only when a kernel starts, as far as a version has them."""
_TICK = 15.0
"""Seconds between two looks at the node's memory, the place and the time."""


def run(runtime: Runtime, root: Path, key: str) -> int:
    """Be the spare interpreter `key`, or a kernel that was forked from it; return the exit code."""
    place = SparePlace(root, key)
    lock = place.lock()
    if lock is None or not has_room(root):
        return 0
    title, environ = ProcTitle.find(), dict(os.environ)
    files = EnvironmentFiles()
    import_kernel()
    files.add_imported()
    limit = float(os.environ.pop("JUPYTER_GPU_KERNEL_SPARE_IDLE", IDLE_LIMIT))
    server = SpareServer(runtime, place, lock, title, limit, files)
    if not place.is_ours(lock):  # the user's last kernel was stopped meanwhile
        os._exit(0)
    changes = changed_variables(environ)
    gc.collect()
    gc.freeze()  # or the collector would write to memory that all kernels share
    start = server.serve()
    if start is None:
        os._exit(0)  # no exit handler of an imported module runs here
    become_kernel(start, title, changes)
    return 0


def import_kernel() -> None:
    """Import what every kernel imports, with the same settings as a kernel does. Raises OSError if this process cannot
    fork kernels after that."""
    kernel_main.restore_path()
    kernel_main.disable_debugger()
    importlib.import_module("ipykernel.kernelapp")
    for name in _LATE:
        with contextlib.suppress(Exception):  # another version; a kernel would fail by itself
            importlib.import_module(name)
    if len(os.listdir("/proc/self/task")) > 1:  # as one that the environment's `.pth` files have started
        raise OSError("kernels cannot be forked from this process: it has several threads")


class SpareServer:
    """`serve()` until it retires, or, in a forked process, until the keeper wants the kernel."""

    def __init__(
        self,
        runtime: Runtime,
        place: SparePlace,
        lock: int,
        title: ProcTitle,
        limit: float,
        files: EnvironmentFiles,
    ) -> None:
        self._now = runtime.monotonic
        self._place = place
        self._lock = lock
        self._title = title
        self._limit = limit
        self._files = files
        # With the pid of their kernel, by descriptor:
        self._keepers: Dict[int, Tuple[socket.socket, int]] = {}
        self._unwatched: List[int] = []  # the pids of forked processes that no keeper watches
        self._last_start = self._now()
        self._poll = select.poll()
        self._listener: Optional[socket.socket] = place.listen()
        self._poll.register(self._listener, select.POLLIN)

    def serve(self) -> Optional[KernelStart]:
        """Return None in the spare interpreter when it has retired and no kernel of it is left; in a forked process
        return the kernel that it is to become."""
        interval = min(_TICK, self._limit)
        tick = self._now() + interval
        while self._listener is not None or self._keepers or self._unwatched:
            for fd, _ in self._poll.poll(max(0.0, tick - self._now()) * 1000):
                if fd in self._keepers:
                    self._keeper_left(fd)
                elif self._listener is not None:
                    start = self._accept(self._listener)
                    if start is not None:
                        return start
            if self._now() >= tick:
                tick = self._now() + interval
                self._check()
        return None

    # -------------------------------------------------------------------------------------- forks

    def _accept(self, listener: socket.socket) -> Optional[KernelStart]:
        """Read a request and fork. Returns the kernel in the forked process, and None in this one."""
        try:
            sock = listener.accept()[0]
        except OSError:  # the keeper has gone, or there are no descriptors left
            return None
        sock.settimeout(_ASK_TIMEOUT)
        fds: List[int] = []
        try:
            if not is_own(sock):
                raise FieldError("another user")
            request, fds = receive_packet(sock)
            if request.get("retire") is True:
                self._retire()
                raise FieldError("it has retired")
            return self._fork(sock, request, fds)
        except Exception as error:  # whatever a process of this user sends, the other kernels go on
            with contextlib.suppress(OSError):
                send_packet(sock, {"refused": str(error)})
            sock.close()
            return None
        finally:
            if self._lock >= 0:  # in the spare interpreter; a forked process uses them
                for fd in fds:
                    os.close(fd)

    def _fork(self, sock: socket.socket, request: Dict[str, Any], fds: List[int]) -> Optional[KernelStart]:
        start = KernelStart.read(request, fds)
        if not os.path.isdir(start.cwd) or not self._title.fits(start.shown_variables):
            raise FieldError("this kernel cannot be forked")
        if self._files.changed():
            self._retire()
            raise FieldError("files of the Python environment have changed")
        pid = os.fork()
        if pid == 0:
            self._leave_parent()
            _wait_for_go(sock)
            return start
        self._last_start = self._now()
        self._keepers[sock.fileno()] = sock, pid
        # The forked process reads what the keeper sends; here only its end counts.
        self._poll.register(sock, 0)
        with contextlib.suppress(OSError):  # the keeper has gone: so the process ends
            send_packet(sock, {"pid": pid})
        return None

    def _leave_parent(self) -> None:
        """In a forked process: have a session of its own, and nothing of the spare interpreter's."""
        os.setsid()
        for sock, _ in self._keepers.values():
            sock.close()
        self._close_listener()
        os.close(self._lock)
        self._lock = -1

    def _keeper_left(self, fd: int) -> None:
        """The keeper has read how its kernel ended, or was killed; then the keeper's successor reads that."""
        sock, pid = self._keepers.pop(fd)
        self._poll.unregister(fd)
        sock.close()
        self._unwatched.append(pid)
        self._reap()

    def _reap(self) -> None:
        """Wait for the forked processes that have ended, and that no keeper watches."""
        self._unwatched = [pid for pid in self._unwatched if not os.waitpid(pid, os.WNOHANG)[0]]

    # -------------------------------------------------------------------------------------- retirement

    def _check(self) -> None:
        self._reap()
        if self._listener is None:
            return
        idle = self._now() - self._last_start > self._limit
        if idle or is_short() or not self._place.is_ours(self._lock) or not self._place.listens():
            self._retire()

    def _retire(self) -> None:
        """Fork no more kernels; another spare interpreter may take the place."""
        if self._listener is not None and self._place.is_ours(self._lock):
            self._place.remove_socket()
        self._close_listener()
        fcntl.flock(self._lock, fcntl.LOCK_UN)

    def _close_listener(self) -> None:
        if self._listener is not None:
            self._poll.unregister(self._listener)
            self._listener.close()
        self._listener = None


def _wait_for_go(sock: socket.socket) -> None:
    """In a forked process: end, unless the keeper wants this kernel. It may have given up, and have started another."""
    sock.setblocking(True)
    try:
        go = receive_packet(sock)[0].get("go") is True
    except (OSError, EOFError, FieldError):
        go = False
    if not go:
        os._exit(0)
    sock.close()


def become_kernel(start: KernelStart, title: ProcTitle, changes: Dict[str, Optional[str]]) -> None:
    """Turn this process into the kernel, and run it until it ends. The process has a session of its own by now.

    `changes`: the variables that imported modules have set, or deleted (None).
    """
    title.change(start.command, start.shown_variables)
    null = os.open(os.devnull, os.O_RDWR)
    for target, fd in ((0, null), (1, start.output), (2, start.output)):
        os.dup2(fd, target)
    os.close(null)
    os.close(start.output)
    os.chdir(start.cwd)
    variables = {**start.env, **changes, **{name: str(fd) for name, fd in start.fds.items()}}
    os.environ.clear()
    os.environ.update({name: value for name, value in variables.items() if value is not None})
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if hasattr(sys, "orig_argv"):
        sys.orig_argv = list(start.command)
    kernel_main.run(start.command[start.skip :])
