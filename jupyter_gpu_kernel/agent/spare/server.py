"""The spare interpreter: it imports what a kernel needs, and forks kernels for keepers of this user that ask for one.

    python AGENT spare KEY FILLER

It has one thread, no ZeroMQ context and no GPU. It is the parent of the kernels, and tells each keeper how its kernel
ended. When it has had nothing to do for some time, when the node is short of memory, or when the Python environment has
changed on disk before a start, it retires: it forks no more kernels, and ends with the last one.
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
from typing import Any, Callable, Dict, List, NamedTuple, Optional

from ...wire.fields import FieldError
from ...wire.runtime import Runtime
from ..in_kernel import main as kernel_main
from ..system import procfs
from . import packets
from .files import EnvironmentFiles, environment_mark, shadows
from .identity import changed_variables
from .imports import import_kernel, import_package, is_clean
from .packets import KernelStart
from .places import MAX_SPARES, SparePlace, is_short, retire_all, spares_running
from .proc_title import ProcTitle
from .usual_packages import MODULES_VARIABLE, UsualPackages

IDLE_LIMIT = 1800.0
"""Seconds without a start of a kernel after which the process retires. JUPYTER_GPU_KERNEL_SPARE_IDLE: another one."""
_ENVIRONMENT = "JUPYTER_GPU_KERNEL_SPARE_ENVIRONMENT"
"""The mark of the Python environment, if the process has begun again after it rejected a package: a package may change
its environment with every import."""
_MAX_ASKING = 32
_MAX_KERNELS = 500
"""Each has a descriptor here, and select() takes none from 1,024 on."""
_TICK = 15.0
"""Seconds between two looks at the node's memory, the place and the time."""


def run(runtime: Runtime, root: Path, key: str) -> int:
    """Be the spare interpreter `key`, or a kernel that was forked from it; return the exit code."""
    place = SparePlace(root, key)
    lock = place.lock()
    retire_all(root, only_other_agents=True)
    if lock is None or spares_running(root) > MAX_SPARES or is_short():
        return 0
    files, title, environ = EnvironmentFiles(), ProcTitle.find(), dict(os.environ)
    environment = os.environ.pop(_ENVIRONMENT, "") or environment_mark()
    modules = UsualPackages(
        Path(os.environ.pop(MODULES_VARIABLE, "") or root / "spare" / "modules.json"), environment
    )
    import_kernel()
    problem = is_clean()
    if problem:
        raise OSError(f"kernels cannot be forked from this process: {problem}")
    before, packages = set(sys.modules), modules.usual()
    _import_packages(runtime, modules, packages, {**environ, _ENVIRONMENT: environment})
    imported = {name.partition(".")[0] for name in set(sys.modules) - before}
    files.add_imported(sorted(imported))
    changes = changed_variables(environ)
    limit = float(os.environ.pop("JUPYTER_GPU_KERNEL_SPARE_IDLE", IDLE_LIMIT))

    fitness = Fitness(
        files, lambda: modules.usual() == packages, lambda folder: not shadows(folder, imported)
    )
    server = SpareServer(runtime, place, lock, title, limit, fitness)
    if not place.is_ours(lock):  # the user's last kernel was stopped meanwhile
        os._exit(0)
    gc.collect()
    gc.freeze()  # or the collector would write to memory that all kernels share
    start = server.serve()
    if start is None:
        os._exit(0)  # no exit handler of an imported module runs here
    become_kernel(start, title, changes)
    return 0


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


class Fitness(NamedTuple):
    """Whether this process has what kernels would import.

    files: Whether the modules are still those on disk.
    is_current: Return whether it has imported what kernels usually use.
    suits: Return whether a kernel in this folder would import the same.
    """

    files: EnvironmentFiles
    is_current: Callable[[], bool]
    suits: Callable[[str], bool]


class SpareServer:
    """`serve()` until it retires, or, in a forked process, until the keeper wants the kernel."""

    def __init__(
        self, runtime: Runtime, place: SparePlace, lock: int, title: ProcTitle, limit: float, fitness: Fitness
    ) -> None:
        self._now = runtime.monotonic
        self._place = place
        self._lock = lock
        self._fitness = fitness
        self._title = title
        self._limit = limit
        self._keepers: Dict[int, socket.socket] = {}  # by the pid of their kernel
        self._asking: List[socket.socket] = []
        self._last_start = self._now()
        self._wake_fd, self._wake_write = os.pipe()
        for fd in (self._wake_fd, self._wake_write):
            os.set_blocking(fd, False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        self._listener: Optional[socket.socket] = place.listen()

    def serve(self) -> Optional[KernelStart]:
        """Return None in the spare interpreter when it has retired and no kernel of it is left; in a forked process
        return the kernel that it is to become."""
        interval = min(_TICK, self._limit)
        tick = self._now() + interval
        while self._listener is not None or self._keepers:
            sources: List[Any] = [*([self._listener] if self._listener else []), *self._asking]
            wait = max(0.0, tick - self._now())
            ready, _, _ = select.select([self._wake_fd, *sources], [], [], wait)
            if self._wake_fd in ready:
                self._reap()
            for source in ready:
                if source is self._listener:
                    self._accept()
                elif source in self._asking:
                    start = self._answer(source)
                    if start is not None:
                        return start
            if self._now() >= tick:
                tick = self._now() + interval
                self._check()
        return None

    def _accept(self) -> None:
        assert self._listener is not None
        with contextlib.suppress(OSError):
            sock = self._listener.accept()[0]
            if packets.is_own(sock) and len(self._asking) < _MAX_ASKING:
                sock.settimeout(1.0)
                self._asking.append(sock)
            else:
                sock.close()

    # -------------------------------------------------------------------------------------- forks

    def _answer(self, sock: socket.socket) -> Optional[KernelStart]:
        """Read a request and fork. Returns the kernel in the forked process, and None in this one."""
        self._asking.remove(sock)
        try:
            request, fds = packets.receive(sock)
        except (OSError, EOFError, FieldError):
            sock.close()
            return None
        try:
            if request.get("retire") is True:
                self._retire()
                raise FieldError("it has retired")
            return self._fork(sock, request, fds)
        except (OSError, FieldError) as error:
            with contextlib.suppress(OSError):
                packets.send(sock, {"refused": str(error)})
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
        self._keepers[pid] = sock
        with contextlib.suppress(OSError):  # the keeper has gone: so the process ends
            packets.send(sock, {"pid": pid})
        if (
            len(self._keepers) >= _MAX_KERNELS or not self._fitness.is_current()
        ):  # the next imports something else
            self._retire()
        return None

    def _leave_parent(self) -> None:
        """In a forked process: have a session of its own, and nothing of the spare interpreter's."""
        os.setsid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for sock in [*self._keepers.values(), *self._asking]:
            sock.close()
        self._close_listener()
        for fd in (self._lock, self._wake_fd, self._wake_write):
            os.close(fd)
        self._lock = -1

    def _reap(self) -> None:
        """Report each kernel that has ended to its keeper. The process stays a zombie until that is done: so at any
        time the keeper can read either the packet or the status of the zombie."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_fd, 512)
        for pid, sock in list(self._keepers.items()):
            ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is None:
                continue
            status = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
            with contextlib.suppress(OSError):  # the keeper has gone
                packets.send(sock, {"status": status})
            os.waitpid(pid, 0)
            del self._keepers[pid]
            sock.close()

    # -------------------------------------------------------------------------------------- retirement

    def _check(self) -> None:
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
            self._listener.close()
        self._listener = None


def _wait_for_go(sock: socket.socket) -> None:
    """In a forked process: end, unless the keeper wants this kernel. It may have given up, and have started another."""
    sock.setblocking(True)
    try:
        go = packets.receive(sock)[0].get("go") is True
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
    os.environ.clear()
    os.environ.update(start.env)
    for variable, value in changes.items():
        if value is None:
            os.environ.pop(variable, None)
        else:
            os.environ[variable] = value
    for variable, fd in start.fds.items():
        os.environ[variable] = str(fd)
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
