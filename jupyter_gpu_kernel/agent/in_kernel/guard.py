"""The guard: inside the kernel, it survives SIGTERM while the kernel is in use, and reports the sender.

SIGTERM is blocked before the first thread starts, so that every thread inherits the block. The guard's thread takes
the signal with `sigtimedwait`, which tells the sender, also while the main thread is in a C call. If that call holds
Python's lock (the GIL), the signal stays pending until the call returns; the keeper sees it pending. Three things
would break this, and each has its remedy:

- child processes inherit the block and would ignore `terminate()`: `unblock_in_children` gives them a normal SIGTERM;
- something may unblock SIGTERM in a thread: a Python handler blocks it again and passes the signal to the guard;
- the user's own handler would never run: the main thread runs it, see hooks.py.

This module does not know ipykernel, ZeroMQ or the keeper; it is given a function that writes to running cells and the
path of a datagram socket. signal_rules.py decides what a SIGTERM means.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import json
import os
import select
import signal
import socket
import sys
import threading
import time
import traceback
from typing import Any, Callable, Dict, Iterator, List, Optional

from ...wire.texts import wrapped
from ..system import procfs
from ..system.process_control import open_signalfd
from .hooks import OUTPUT_LIMIT, TERM, Countdown, Hooks, main_thread_id
from .signal_rules import ENDED, Sender, classify, decide, sentence
from .usage import Usage, is_computing

HOOK_TIMEOUT = 10.0
"""Seconds that the SIGTERM functions of a kernel that ends may take."""
REPEATED = 10.0
"""Seconds within which a scheduler's SIGTERM to the job's process, and one to the kernel, are the same."""
Write = Callable[[List[Any], str], None]
"""Writes a text to the cells with these requests, from any thread."""


class Guard:
    """The guard of one kernel. Call `install` before there are any threads."""

    def __init__(
        self,
        usage: Usage,
        report_socket: str = "",
        write: Write = lambda cells, text: None,
        in_job: bool = False,
    ) -> None:
        """`report_socket`: the path of the socket to which events are reported; "" for none. `in_job`: whether the
        kernel runs in a job that was submitted for it."""
        self.usage = usage
        self._in_job = in_job
        self.hooks = Hooks(self._handle_stray, lambda: bool(usage.visible_cells()), self._report_output)
        self.installed = False
        self.on = False
        self.count = 0
        """How many SIGTERMs have arrived."""
        self.last = ""
        """The sentence about the last one."""
        self.keeper_socket = os.path.join(os.path.dirname(report_socket), "keeper") if report_socket else ""
        """The path of the keeper's socket."""
        self._write = write
        self._report_socket = report_socket
        self._times: Dict[str, float] = {}  # of the last SIGTERM, by the kind of its sender
        self._job_ends: Optional[float] = None  # when a scheduler's SIGTERM came
        self._job_lock = threading.Lock()
        self._strays = 0  # signals passed on by `_handle_stray`
        self._countdown = Countdown(self.say)
        self._pending = select.poll()
        self._thread = threading.Thread(target=self._watch, name="sigterm-guard", daemon=True)

    def install(self) -> None:
        """Block SIGTERM in this thread and in every thread it starts. Main thread only, once. Raises OSError if the
        system lacks what the guard needs."""
        self._pending.register(open_signalfd(TERM), select.POLLIN)
        signal.pthread_sigmask(signal.SIG_BLOCK, TERM)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # our parent may have ignored it
        self.hooks.install()
        self.installed = True
        self.switch(True)
        unblock_in_children(lambda: self.on, lambda: self.switch(False))
        self._thread.start()
        atexit.register(self.switch, False)  # SIGTERM can end a kernel whose exit hangs

    def switch(self, on: bool) -> None:
        """Switch the guard on or off. Main thread only; a handler of the user stays installed."""
        handler = signal.getsignal(signal.SIGTERM)
        if on:
            signal.pthread_sigmask(signal.SIG_BLOCK, TERM)
            if handler == signal.SIG_DFL:
                signal.signal(signal.SIGTERM, self._handle_stray)
        elif handler == self._handle_stray:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self.on = on
        if not on:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, TERM)

    def switch_by_user(self, on: bool) -> None:
        """Switch the guard on or off for the user, and report it. Main thread only."""
        self.switch(on)
        text = f"the guard was switched {'on' if on else 'off'}"
        self._report("guard", time=time.time(), on=on, text=text)

    @contextlib.contextmanager
    def cell(self, request: Any, by_user: bool) -> Iterator[None]:
        """A context in which a cell runs: `Usage.cell`, with the signal mask and handler restored before."""
        if self.on and threading.current_thread() is threading.main_thread():
            self.switch(True)
        elif self.on:
            signal.pthread_sigmask(signal.SIG_BLOCK, TERM)
        with self.usage.cell(request, by_user):
            yield

    def say(self, line: str) -> None:
        """Write a line to the running cells."""
        with self.usage.lock:
            cells = self.usage.visible_cells()
            if cells:
                self._write(cells, f"\n{wrapped(line)}\n")

    def report_failure(self, request: Any, text: str) -> None:
        """A function of the user failed after the cell of this request: show it there, and in the story."""
        with self.usage.lock:
            self._write([request], f"\n{text}")
        self._report_output(text[-OUTPUT_LIMIT:])

    def notify(self, text: str, run_hooks: bool, signal_name: str = "") -> None:
        """Write a text of the keeper to the running cells.

        run_hooks: Run the SIGTERM functions as well.
        signal_name: The signal that the process of a scheduler's job has received.
        """
        if signal_name == "SIGTERM":
            self._countdown.start()
            if self._is_repeated():
                return
            self.count, self.last = self.count + 1, text
        self.say(text)
        if run_hooks and self.installed:
            self.hooks.start()

    def _is_repeated(self) -> bool:
        """Whether the scheduler's SIGTERM has just come: it may send it to the job's process and to the kernel."""
        with self._job_lock:
            before, self._job_ends = self._job_ends, time.monotonic()
        return before is not None and self._job_ends - before < REPEATED

    def run_last_hooks(self) -> None:
        """Run the SIGTERM functions of a kernel that is about to end, for at most HOOK_TIMEOUT."""
        if self.installed:
            self.hooks.start()
            self.hooks.wait(HOOK_TIMEOUT)

    # -------------------------------------------------------------------------------------- the guard's thread

    def _watch(self) -> None:
        while True:
            self._pending.poll()  # leaves it pending
            info = signal.sigtimedwait(TERM, 0)
            if info is None:  # another thread has taken it
                continue
            command = procfs.command_name(info.si_pid)  # at once, as a `kill` process ends in a moment
            if not self.on:
                # The main thread does not block it now, but the system may prefer a thread that waits for it.
                signal.pthread_kill(main_thread_id(), signal.SIGTERM)
                continue
            try:
                self._handle(self._sender(info.si_pid, info.si_uid, command))
            except Exception:  # this thread must go on: nothing else handles SIGTERM
                print(traceback.format_exc(), file=sys.__stderr__)

    def _sender(self, pid: int, uid: int, command: str) -> Sender:
        if pid == os.getpid() and self._strays:
            self._strays -= 1
            return Sender("unknown")
        return Sender(classify(pid, uid, command, os.getuid()), pid, uid, procfs.user_name(uid), command)

    def _handle(self, sender: Sender) -> None:
        now, clock = time.monotonic(), time.time()
        in_use = self.usage.in_use() or is_computing()
        before = self._times.get(sender.kind)
        self._times[sender.kind] = now
        # A process that starts at that moment, such as the countdown's, may have made its sender unknown.
        repeated = self._in_job and sender.kind in ("scheduler", "unknown") and self._is_repeated()
        kind = "scheduler" if repeated else sender.kind
        action = decide(kind, in_use, None if before is None else now - before, self._in_job)
        if not repeated:
            self.count += 1
            self.last = sentence(sender, time.strftime("%H:%M:%S", time.localtime(clock)), action)
        self._report("sigterm", **sender._asdict(), time=clock, in_use=in_use, action=action)
        if repeated:
            return
        self.say(self.last)
        if action == ENDED:
            self._end(run_hooks=not in_use)
        else:
            if sender.kind == "scheduler":
                self._countdown.start()
            self.hooks.start(interrupt=sender.kind == "memory")

    def _end(self, run_hooks: bool) -> None:
        """End the process by SIGTERM's default action, as without a guard: return code -15."""
        if run_hooks:
            self.run_last_hooks()
        time.sleep(0.1)  # for ZeroMQ's thread to send the last messages
        # `signal.signal` works only in the main thread, which may be in a C call.
        ctypes.CDLL(None).signal(int(signal.SIGTERM), None)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, TERM)
        os.kill(os.getpid(), signal.SIGTERM)

    def _report_output(self, text: str) -> None:
        self._report("hook", time=time.time(), text=text)

    def _report(self, event: str, **fields: Any) -> None:
        """Send an event to the keeper, which writes the event into the story. Never blocks."""
        report = json.dumps(dict(fields, event=event)).encode()
        kind = socket.SOCK_DGRAM | socket.SOCK_NONBLOCK
        # Where there is no keeper, or where the keeper is too slow, the story lacks this event.
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, kind) as sock:
            sock.sendto(report, self._report_socket)

    # -------------------------------------------------------------------------------------- the main thread

    def _handle_stray(self, number: int, frame: Any) -> None:
        """Pass a SIGTERM to the guard's thread if something has unblocked it in some thread; its sender is lost.

        The user's handler may call this one as the previous handler, as Lightning's does: then the guard knows already.
        """
        if self.hooks.delivering:
            return
        signal.pthread_sigmask(signal.SIG_BLOCK, TERM)
        self._strays += 1
        if self._thread.ident is not None:
            signal.pthread_kill(self._thread.ident, signal.SIGTERM)


# -------------------------------------------------------------------------------------- child processes


def unblock_in_children(is_blocked: Callable[[], bool], restore: Callable[[], None]) -> None:
    """Give child processes of the kernel a normal SIGTERM, although the kernel's own threads block it.

    A fork hook restores it in forked children, and the functions that start programs run with the signal unblocked. A
    process that C code forks inherits the block; SIGKILL ends it, too. Call this once, before the first child process.

    is_blocked: Return whether SIGTERM is blocked here.
    restore: Make SIGTERM normal again, in a forked child.
    """

    def unblocked(function: Callable[..., Any]) -> Callable[..., Any]:
        """Return `function` with SIGTERM unblocked in the calling thread while it starts a process."""

        @functools.wraps(function)
        def start(*args: Any, **kwargs: Any) -> Any:
            if not is_blocked():
                return function(*args, **kwargs)
            before = signal.pthread_sigmask(signal.SIG_UNBLOCK, TERM)
            try:
                return function(*args, **kwargs)
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
                _patch_resource_tracker()

        return start

    os.register_at_fork(after_in_child=restore)
    posix: Any = __import__("_posixsubprocess")
    subprocess: Any = __import__("subprocess")
    posix.fork_exec = unblocked(posix.fork_exec)
    if hasattr(subprocess, "_fork_exec"):  # Python 3.11 and later import it by this name
        subprocess._fork_exec = posix.fork_exec
    for name in ("posix_spawn", "posix_spawnp"):
        setattr(os, name, unblocked(getattr(os, name)))
    os.system = functools.wraps(os.system)(_system)


def _system(command: Any) -> int:
    # C's system() returns only when the command has ended: SIGTERM would be unblocked for too long.
    line = os.fsencode(command)
    sys.audit("os.system", line)
    pid = os.posix_spawn("/bin/sh", [b"sh", b"-c", line], os.environ)
    while True:
        try:
            return os.waitpid(pid, 0)[1]
        except KeyboardInterrupt:  # as in C, an interrupt is for the command, which has received it as well
            continue


def _patch_resource_tracker() -> None:
    """Keep multiprocessing's resource tracker from unblocking SIGTERM in the thread that has started it."""
    tracker: Any = sys.modules.get("multiprocessing.resource_tracker")
    if signal.SIGTERM in getattr(tracker, "_IGNORED_SIGNALS", ()):
        tracker._IGNORED_SIGNALS = (signal.SIGINT,)
