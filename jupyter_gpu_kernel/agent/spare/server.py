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
import os
import select
import signal
import socket
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from ...wire.fields import FieldError
from ...wire.runtime import Runtime
from ..in_kernel import main as kernel_main
from ..system import procfs
from .files import EnvironmentFiles, environment_mark, shadows
from .identity import changed_variables
from .imports import import_kernel, import_package, is_clean
from .places import KernelStart, SparePlace, has_room, is_own, is_short, receive_packet, send_packet
from .proc_title import ProcTitle
from .usual_packages import MODULES_VARIABLE, UsualPackages

IDLE_LIMIT = 1800.0
"""Seconds without a start of a kernel after which the process retires. JUPYTER_GPU_KERNEL_SPARE_IDLE: another one."""
_ASK_TIMEOUT = 0.2
"""Seconds that a keeper which has connected may take to send its request."""
_ENVIRONMENT = "JUPYTER_GPU_KERNEL_SPARE_ENVIRONMENT"
"""The mark of the Python environment, if the process has begun again after it rejected a package: a package may change
its environment with every import."""
_TICK = 15.0
"""Seconds between two looks at the node's memory, the place and the time."""


def run(runtime: Runtime, root: Path, key: str) -> int:
    """Be the spare interpreter `key`, or a kernel that was forked from it; return the exit code."""
    place = SparePlace(root, key)
    lock = place.lock()
    if lock is None or not has_room(root):
        return 0
    title, environ = ProcTitle.find(), dict(os.environ)
    fitness = _import_all(runtime, root)
    limit = float(os.environ.pop("JUPYTER_GPU_KERNEL_SPARE_IDLE", IDLE_LIMIT))
    server = SpareServer(runtime, place, lock, title, limit, fitness)
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


class Fitness(NamedTuple):
    """Whether this process has what kernels would import.

    files: Whether the modules are still those on disk.
    is_current: Return whether it has imported what kernels usually use.
    suits: Return whether a kernel in this folder would import the same.
    """

    files: EnvironmentFiles
    is_current: Callable[[], bool]
    suits: Callable[[str], bool]


def _import_all(runtime: Runtime, root: Path) -> Fitness:
    """Import what every kernel imports, and what the user's kernels usually use. Raises OSError if no kernel can be
    forked from this process."""
    files, environ = EnvironmentFiles(), dict(os.environ)
    environment = os.environ.pop(_ENVIRONMENT, "") or environment_mark()
    record = Path(os.environ.pop(MODULES_VARIABLE, "") or root / "spare" / "modules.json")
    modules = UsualPackages(record, environment)
    import_kernel()
    problem = is_clean()
    if problem:
        raise OSError(f"kernels cannot be forked from this process: {problem}")
    before, packages = set(sys.modules), modules.usual()
    _import_packages(runtime, modules, packages, {**environ, _ENVIRONMENT: environment})
    imported = {name.partition(".")[0] for name in set(sys.modules) - before}
    files.add_imported(sorted(imported))
    return Fitness(files, lambda: modules.usual() == packages, lambda folder: not shadows(folder, imported))


def _import_packages(
    runtime: Runtime, modules: UsualPackages, packages: List[str], environ: Dict[str, str]
) -> None:
    """Import these packages. If one is not fit for a fork, begin again without that package, in a new program."""
    for name in packages:
        problem = "" if is_short() else import_package(name, runtime.monotonic)
        if problem:
            if not modules.reject(name, problem):
                raise OSError(
                    f"{name} cannot be imported before a fork, and that cannot be stored: {problem}"
                )
            os.execve(sys.executable, procfs.arguments(os.getpid()), environ)


class SpareServer:
    """`serve()` until it retires, or, in a forked process, until the keeper wants the kernel."""

    def __init__(
        self, runtime: Runtime, place: SparePlace, lock: int, title: ProcTitle, limit: float, fitness: Fitness
    ) -> None:
        self._now = runtime.monotonic
        self._place = place
        self._lock = lock
        self._title = title
        self._limit = limit
        self._fitness = fitness
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
        if not self._fitness.suits(start.cwd):
            raise FieldError("a file in its folder has the name of an imported module")
        problem = (
            "files of the Python environment have changed" if self._fitness.files.changed() else is_clean()
        )
        if problem:
            self._retire()
            raise FieldError(problem)
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
        if not self._fitness.is_current():  # the next interpreter imports something else
            self._retire()
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
    reseed()
    kernel_main.run(start.command[start.skip :])


def reseed() -> None:
    """Give random generators that were seeded before the fork other seeds, and multiprocessing another key. The
    generator of `random` has another seed already."""
    processes: Any = sys.modules.get("multiprocessing.process")
    if processes is not None:
        processes.current_process().authkey = os.urandom(32)
    numpy_random: Any = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        torch.default_generator.seed()
