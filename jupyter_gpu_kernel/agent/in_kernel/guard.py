"""Inside the kernel: it survives SIGTERM while it is in use, says who sent it, and its children are as ever.

SIGTERM is blocked before the first thread starts, so every thread inherits the block, and one thread takes it
with `sigtimedwait`, which names the sender, also while the main thread is in a C call. If that holds Python's lock
(the GIL), the signal stays pending until then, where the keeper sees it. Three things would
break that, each has its remedy here:

- children inherit a blocked mask, and then ignore `terminate()`: children.py sees to that;
- something unblocks SIGTERM in a thread: a Python handler as a safety net blocks it again and hands it over;
- the user's own handler never fires: it is run on the main thread, which is asked by a real-time signal.

This file must not know ipykernel, ZeroMQ or the keeper's insides: it is given a way to write to running cells
and the path of a datagram socket. What a sender means is decided in signals.py.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import io
import json
import os
import pwd
import select
import signal
import socket
import sys
import threading
import time
import traceback
from typing import Any, Callable, Dict, Iterator, List, Optional, Set, Tuple

from .. import procfs
from .children import TERM, Children
from .countdown import Countdown
from .signal_rules import ENDED, Sender, classify, decide, sentence

_LOOKS = 8  # at the processes' states, to learn whether one of them computes
LINGER = 600.0  # seconds a kernel counts as in use after its user was last active
HOOK_SECONDS = 10.0  # how long the functions of a kernel that ends may take
Hook = Callable[[], object]
Tell = Callable[[List[Any], str], None]


class Use:
    """What makes a kernel be in use: running cells, holds, a user who was active, processes that work."""

    def __init__(self, linger: float = LINGER) -> None:
        self.linger = linger
        # Also held while something is written to running cells, so that it comes before their end. Reentrant,
        # because a hook runs on the main thread wherever that happens to be.
        self.lock = threading.RLock()
        self._cells: Dict[object, Any] = {}
        self._holds = 0
        self._active = time.monotonic()

    @contextlib.contextmanager
    def cell(self, parent: Any, by_user: bool) -> Iterator[None]:
        """A cell runs. `parent` is its request (None: shows no output); `by_user`: the user is active."""
        key = object()
        with self.lock:
            self._cells[key] = parent
            self._touch(by_user)
        try:
            yield
        finally:
            with self.lock:
                del self._cells[key]
                self._touch(by_user)

    def _touch(self, by_user: bool) -> None:
        if by_user:
            self._active = time.monotonic()

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """In use until left, from any thread."""
        with self.lock:
            self._holds += 1
        try:
            yield
        finally:
            with self.lock:
                self._holds -= 1

    def cells(self) -> List[Any]:
        """The requests of the running cells that show output."""
        with self.lock:
            return [parent for parent in self._cells.values() if parent is not None]

    def running(self) -> Set[object]:
        """A key for each running cell, silent ones included; no two cells ever have the same."""
        with self.lock:
            return set(self._cells)

    def now(self) -> bool:
        """In use, as far as is known without measuring."""
        with self.lock:
            busy = bool(self._cells) or self._holds > 0
            return busy or time.monotonic() - self._active < self.linger


def working(seconds: float = 0.5) -> bool:
    """Whether this process, or another of the process group it leads, computes: measured over `seconds`.

    On a crowded node a process that computes gets little of a CPU, but it is runnable whenever one looks.
    """
    before, _ = _activity()
    runnable = 0
    for _ in range(_LOOKS):
        time.sleep(seconds / _LOOKS)
        used, runs = _activity()
        runnable += runs
    return used - before > seconds / 10 or runnable >= _LOOKS - 1


def _activity() -> Tuple[float, bool]:
    """Seconds of CPU time that the group has used, and whether the main thread of one of its processes is runnable."""
    if os.getpgrp() != os.getpid():  # somebody else's group: what the others do there says nothing about us
        return time.process_time(), False
    ticks, runs = 0, False
    for pid in procfs.pids():
        stat = procfs.read_stat(pid)
        if stat is not None and stat.group == os.getpid():
            ticks += stat.cpu
            runs = runs or stat.state == "R"
    return procfs.seconds(ticks), runs


class Guard:
    """One per kernel. `install` comes before any thread exists; `tell` writes a text to the given cells."""

    def __init__(self, use: Use, story: str = "", tell: Optional[Tell] = None) -> None:
        self.use = use
        self.tell: Tell = tell or (lambda cells, text: None)
        self.hooks: List[Hook] = []
        self.installed = False
        self.on = False
        self.count = 0
        self.last = ""
        self._story = story
        self.keeper = os.path.join(os.path.dirname(story), "keeper") if story else ""  # its door
        self._times: Dict[str, float] = {}
        self._strays = 0
        self._countdown = Countdown(self.say)
        self._asked = False
        self._delivering = False
        self._interrupt = False
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="sigterm-guard", daemon=True)

    def install(self) -> None:
        """From here on every new thread inherits the block. Main thread only, once."""
        self._libc = ctypes.CDLL(None)
        self._story_socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._story_socket.setblocking(False)
        # Not the first real-time signals: those are the ones other libraries reach for.
        self._wake = signal.SIGRTMAX - 3
        signal.pthread_sigmask(signal.SIG_BLOCK, TERM)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # whoever started us may ignore it
        signal.signal(self._wake, self._on_main_thread)
        self.installed = True
        self.switch(True)
        Children(lambda: self.on, lambda: self.switch(False)).install()
        self._thread.start()
        atexit.register(self.switch, False)  # an end that has begun and hangs must not be guarded

    def switch(self, on: bool) -> None:
        """Guard on, or normal behaviour of SIGTERM. Main thread only; a handler of the user's stays."""
        handler = signal.getsignal(signal.SIGTERM)
        if on:
            signal.pthread_sigmask(signal.SIG_BLOCK, TERM)
            if handler == signal.SIG_DFL:
                signal.signal(signal.SIGTERM, self._stray)
        elif handler == self._stray:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self.on = on
        if not on:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, TERM)

    @contextlib.contextmanager
    def cell(self, parent: Any, by_user: bool) -> Iterator[None]:
        """`Use.cell`, and what earlier cells may have undone is done again: the block, the safety net."""
        if self.on and threading.current_thread() is threading.main_thread():
            self.switch(True)
        elif self.on:
            signal.pthread_sigmask(signal.SIG_BLOCK, TERM)
        with self.use.cell(parent, by_user):
            yield

    # --- the guard's thread

    def _watch(self) -> None:
        arrival = self._arrival()
        while True:
            arrival()
            info = signal.sigtimedwait(TERM, 0)
            if info is None:  # the main thread had it
                continue
            command = procfs.command_name(info.si_pid)  # at once: a `kill` is gone in a moment
            if not self.on:
                # The main thread does not block it now, but the system may prefer a thread that waits for it.
                signal.pthread_kill(_main_thread(), signal.SIGTERM)
                continue
            try:
                self._received(self._sender(info.si_pid, info.si_uid, command))
            except Exception:  # without this thread nothing would react to SIGTERM any more
                print(traceback.format_exc(), file=sys.__stderr__)

    def _arrival(self) -> Callable[[], object]:
        """Returns when a SIGTERM is there, and leaves it pending; without signalfd: now and then."""
        mask = (ctypes.c_ulong * (128 // ctypes.sizeof(ctypes.c_ulong)))(1 << (signal.SIGTERM - 1))
        fd = self._libc.signalfd(-1, mask, os.O_CLOEXEC)
        if fd < 0:
            return lambda: time.sleep(0.2)
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        return poll.poll

    def _sender(self, pid: int, uid: int, command: str) -> Sender:
        if pid == os.getpid() and self._strays:
            self._strays -= 1
            return Sender("unknown")
        return Sender(classify(pid, uid, command, os.getuid()), pid, uid, _user(uid), command)

    def _received(self, sender: Sender) -> None:
        now, clock = time.monotonic(), time.time()
        in_use = self.use.now() or working()
        before = self._times.get(sender.kind)
        self._times[sender.kind] = now
        action = decide(sender.kind, in_use, None if before is None else now - before)
        self.count += 1
        self.last = sentence(sender, time.strftime("%H:%M:%S", time.localtime(clock)), action)
        self._record("sigterm", dict(sender._asdict(), time=clock, in_use=in_use, action=action))
        self.say(self.last)
        if action == ENDED:
            self._end(run_hooks=not in_use)
        else:
            if sender.kind == "scheduler":
                self._countdown.begin()
            self._ask_main_thread(interrupt=sender.kind == "memory")

    def say(self, line: str) -> None:
        """To the running cells, on a line of its own; where none runs, the story alone has it."""
        with self.use.lock:
            cells = self.use.cells()
            if cells:
                self.tell(cells, f"\n{line}\n")

    def _record(self, event: str, fields: Dict[str, Any]) -> None:
        text = json.dumps(dict(fields, event=event))
        if not self._story:
            return
        try:
            self._story_socket.sendto(text.encode(), self._story)
        except OSError:  # no keeper, or one that is behind: the story has a gap, the kernel goes on
            pass

    def _end(self, run_hooks: bool) -> None:
        """Die of SIGTERM by its default action, as if there were no guard: status -15."""
        if run_hooks:
            self.run_last_hooks()
        time.sleep(0.1)  # ZeroMQ's own thread sends what was said last
        # `signal.signal` is the main thread's alone, and that may be in a C call.
        self._libc.signal(int(signal.SIGTERM), None)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, TERM)
        os.kill(os.getpid(), signal.SIGTERM)

    def run_last_hooks(self) -> None:
        """The functions of a kernel that is about to end, on the main thread, for at most HOOK_SECONDS."""
        if self.installed:
            self._ask_main_thread()
            self._done.wait(HOOK_SECONDS)

    def _ask_main_thread(self, interrupt: bool = False) -> None:
        """Let the main thread run the hooks; not a second time while it is at it."""
        self._interrupt = self._interrupt or interrupt
        if not (self.hooks or interrupt or self._users_handler()):
            self._done.set()
        elif not self._asked:
            self._asked = True
            self._done.clear()
            signal.pthread_kill(_main_thread(), self._wake)

    def _users_handler(self) -> bool:
        handler = signal.getsignal(signal.SIGTERM)
        return callable(handler) and handler != self._stray

    # --- the main thread

    def _stray(self, number: int, frame: Any) -> None:
        """The safety net: something unblocked SIGTERM, in this thread or another; the sender is lost.

        Or the user's handler calls the one it found, as Lightning's does: then the guard knows already.
        """
        if self._delivering:
            return
        signal.pthread_sigmask(signal.SIG_BLOCK, TERM)
        self._strays += 1
        if self._thread.ident is not None:
            signal.pthread_kill(self._thread.ident, signal.SIGTERM)

    def _on_main_thread(self, number: int, frame: Any) -> None:
        try:
            # With no cell running, prints would end up in an old cell: they go to the story.
            output = None if self.use.cells() else io.StringIO()
            with contextlib.ExitStack() as stack:
                if output is not None:
                    stack.enter_context(contextlib.redirect_stdout(output))
                    stack.enter_context(contextlib.redirect_stderr(output))
                self._run_hooks()
            if output is not None and output.getvalue():
                self._record("hook", {"time": time.time(), "text": output.getvalue()[-4000:]})
        finally:
            self._asked = False
            self._done.set()
        if self._interrupt:
            self._interrupt = False
            _free_memory()
            signal.raise_signal(signal.SIGINT)  # ignored between cells, an interrupt in one

    def _run_hooks(self) -> None:
        hooks = list(self.hooks)
        if self._users_handler():
            hooks.append(self._deliver)
        for hook in hooks:
            try:
                hook()
            except BaseException:  # a hook that fails, or calls sys.exit, is shown and does not end the cell
                print(f"on SIGTERM, this failed:\n{traceback.format_exc()}", file=sys.stderr)

    def _deliver(self) -> None:
        """SIGTERM to the main thread itself, for the user's handler: as ever, asyncio's included."""
        self._delivering = True
        try:
            signal.raise_signal(signal.SIGTERM)  # pends, as this thread blocks it
            signal.pthread_sigmask(signal.SIG_UNBLOCK, TERM)  # the handler runs, and raises, in here
        finally:
            signal.pthread_sigmask(signal.SIG_BLOCK, TERM)
            self._delivering = False


def _free_memory() -> None:
    """What nobody refers to any more, here and, where torch has opened CUDA, on the GPU."""
    gc.collect()
    cuda: Any = getattr(sys.modules.get("torch"), "cuda", None)
    try:
        if cuda is not None and cuda.is_initialized():
            cuda.empty_cache()
    except Exception:  # of a library in whatever state: shown, and the cell is interrupted all the same
        print(f"freeing the GPU's memory failed:\n{traceback.format_exc()}", file=sys.stderr)


def _main_thread() -> int:
    ident = threading.main_thread().ident
    assert ident is not None  # the main thread has one from its birth
    return ident


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:  # a uid without a name, as containers have
        return ""
