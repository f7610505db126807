"""Turns a process that the keeper has started into an ipykernel: installs the guard, starts IPython, reports ready.

    python AGENT ipykernel <ipykernel arguments>

Users find the same as with `python -m ipykernel_launcher`, plus the module `gpu_kernel`, the magic `%gpu` and the
guard, and there is no listening TCP port. Works with ipykernel 6.20 to 7. This module does not know how signals are
handled, and of the keeper only these environment variables, which are removed when they have been read:

    JUPYTER_GPU_KERNEL_SIGTERM    "survive" (default) or "default": no guard
    JUPYTER_GPU_KERNEL_LINGER     seconds a kernel counts as in use after its user was last active
    JUPYTER_GPU_KERNEL_JOB        the scheduler's job in which the kernel runs; it stays, for `gpu_kernel`
    JUPYTER_GPU_KERNEL_STORY      path of the datagram socket to which the guard reports
    JUPYTER_GPU_KERNEL_READY_FD   where b"1" is written when the kernel accepts requests
    JUPYTER_GPU_KERNEL_KEEPER_FD  a pipe that ends with the keeper: see keeper_watch.py
    JUPYTER_GPU_KERNEL_LEASES_FD  the socket that keeps the leases of GPUs: see gpus/sharing/lease_transfer.py
    JUPYTER_GPU_KERNEL_ORPHAN     seconds that a running cell may take when no keeper can be started
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import faulthandler
import functools
import importlib
import importlib.util
import inspect
import os
import signal
import sys
import threading
import time
from typing import Any, Callable, Dict, List, Union

from ..kernel_protocol import TAKEN_OVER, keeper_identity
from . import gpu_kernel, keeper_watch
from .guard import Guard
from .hooks import TERM
from .output_window import OutputWindow, kernel_members, limit_streams, thread_members
from .unread_messages import InputRequest, LastReplies, UnreadMessages
from .usage import LINGER, Usage

CONTROL_TIMEOUT = 2.0
"""Seconds that the control thread has to end after a shutdown."""
NOTICE = "gpu_kernel_notice"
"""The type of the control request by which the keeper tells the running cells something."""
_WAKE_SIGNAL = signal.SIGURG
"""A signal that does nothing but end a system call."""
_WAKES = (0.1, 1.0)
"""Seconds after an interrupt."""
_FORKED_PORT = "6"
"""The number of the socket file for the output of forked children, after the five of the connection file."""
_OURS = __name__.partition(".")[0] if "." in __name__ else str(__package__).partition(".")[0]


def main(argv: List[str]) -> None:
    """Be a kernel that was started as a program, until it ends: see `run`."""
    restore_path()
    run(argv)


def run(argv: List[str]) -> None:
    """Run the kernel until it ends. `argv` is what ipykernel_launcher would get after its name. This process may be
    forked from one that has called `restore_path` and imported the kernel's modules."""
    faulthandler.enable(os.fdopen(os.dup(2), "w"))  # the keeper's file, also if stderr is captured later
    report_socket = os.environ.get("JUPYTER_GPU_KERNEL_STORY", "")
    window = OutputWindow()
    guard = create_guard(window)
    signal.signal(_WAKE_SIGNAL, lambda number, frame: None)
    keeper = os.environ.pop("JUPYTER_GPU_KERNEL_KEEPER_FD", "")
    leases = os.environ.pop("JUPYTER_GPU_KERNEL_LEASES_FD", "")
    limit = float(os.environ.pop("JUPYTER_GPU_KERNEL_ORPHAN", keeper_watch.LIMIT))
    gpu_kernel.bind(guard)
    if keeper:
        kept = keeper_watch.KeptLeases(int(leases))
        keeper_watch.watch(int(keeper), kept, guard, report_socket, window, limit)
    ready = os.environ.pop("JUPYTER_GPU_KERNEL_READY_FD", "")
    restore_sys(argv)
    atexit.register(gpu_kernel.done_functions.finish, os.getpid())
    disable_debugger()
    kernelapp: Any = importlib.import_module("ipykernel.kernelapp")
    kernelapp.IOPubThread = iopub_class(kernelapp.IOPubThread, window)
    app = app_class(kernelapp.IPKernelApp, guard, window).instance()
    app.initialize(argv)
    limit_output(app, window)
    if app.shell is not None:
        app.shell.register_magic_function(gpu_kernel.magic, "line", "gpu")
    if ready:
        with contextlib.suppress(BrokenPipeError):  # the keeper was killed; its successor finds out by itself
            os.write(int(ready), b"1")
        os.close(int(ready))
    app.start()
    stop_control_thread(app)


def stop_control_thread(app: Any) -> None:
    """End the control thread before exit handlers end iopub's thread, for which the control thread would wait."""
    thread = getattr(app, "control_thread", None)
    if thread is not None and thread.is_alive():
        thread.stop()
        thread.join(CONTROL_TIMEOUT)


def limit_output(app: Any, window: OutputWindow) -> None:
    """Make what writes output wait while the keeper has too much to read, but not the threads that answer requests."""
    limit_streams(window)
    for name in ("control_thread", "shell_channel_thread"):
        thread = getattr(app, name, None)
        if thread is not None:
            window.never_waits(thread)


def create_guard(window: OutputWindow) -> Guard:
    """Return the guard, installed unless the settings or the system forbid it. Call this before there are threads."""
    mode = os.environ.pop("JUPYTER_GPU_KERNEL_SIGTERM", "survive")
    linger = float(os.environ.pop("JUPYTER_GPU_KERNEL_LINGER", LINGER))
    in_job = bool(os.environ.get("JUPYTER_GPU_KERNEL_JOB"))
    write = functools.partial(write_to_cells, window)
    guard = Guard(Usage(linger), os.environ.pop("JUPYTER_GPU_KERNEL_STORY", ""), write, in_job)
    if in_job:  # `scancel --full --signal=USR1` reaches the job's process, which tells us, and this one
        for number in (signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, lambda number, frame: None)
    if mode != "default":
        try:
            guard.install()
        except OSError as error:
            print(f"no guard against SIGTERM: {error}", file=sys.stderr)
    if not guard.installed:  # this process has inherited a blocked SIGTERM
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, TERM)
    return guard


def restore_path() -> None:
    """Make sys.path as after ipykernel_launcher."""
    agent = os.path.abspath(sys.argv[0])
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != agent or not entry]
    if sys.path and sys.path[0] in ("", os.getcwd()):
        del sys.path[0]


def restore_sys(argv: List[str]) -> None:
    """Make sys.argv and sys.modules as after ipykernel_launcher, and `gpu_kernel` importable.

    Our package is removed from sys.modules: users who have installed it import theirs, and not the agent's.
    """
    launcher = importlib.util.find_spec("ipykernel_launcher")
    sys.argv = [(launcher and launcher.origin) or "ipykernel_launcher.py", *argv]
    for name in [name for name in sys.modules if name == _OURS or name.startswith(_OURS + ".")]:
        del sys.modules[name]
    gpu_kernel.__name__ = "gpu_kernel"
    sys.modules["gpu_kernel"] = gpu_kernel


def disable_debugger() -> None:
    """Switch the debugger off: debugpy opens TCP ports on which any local user could run code as this user.

    Call this before ipykernel's other modules are imported, as older ones copy the name.
    """
    try:
        debugger: Any = importlib.import_module("ipykernel.debugger")
    except ImportError:
        return  # this ipykernel has none
    debugger._is_debugpy_available = False


def app_class(base: Any, guard: Guard, window: OutputWindow) -> Any:
    """Return a subclass of IPKernelApp whose kernel, of whatever configured class, reports its cells to the guard, and
    whose sockets drop nothing while the keeper does not read."""

    def init_kernel(app: Any) -> None:
        unread = UnreadMessages(keeper_identity(app.session.key))
        app.kernel_class = kernel_class(app.kernel_class, guard, window, unread)
        keep_messages(app.stdin_socket, unread.input)
        keep_messages(app.shell_socket, unread.shell)
        keep_messages(app.control_socket, unread.control)
        base.init_kernel(app)

    def bind_socket(app: Any, socket: Any, port: int) -> Any:
        socket.sndhwm = 0  # by default libzmq drops output that would make more than 1000 messages wait
        return base._bind_socket(app, socket, port)

    return type("GpuKernelApp", (base,), {"init_kernel": init_kernel, "_bind_socket": bind_socket})


def keep_messages(socket: Any, kept: Union[LastReplies, InputRequest]) -> None:
    """Have this ZeroMQ socket keep what it sends."""
    plain = type(socket)
    socket.__class__ = type(plain.__name__, (plain,), kept.socket_members(plain))


def kernel_class(base: Any, guard: Guard, window: OutputWindow, unread: UnreadMessages) -> Any:
    """Return a subclass of the kernel's class that reports every execution, also in subshells, to the guard, and takes
    requests of the keeper on the control channel, also while a cell runs.

    IPython's events do not serve: they are not balanced for an empty cell, and silent cells have none.
    """

    @functools.wraps(base.do_execute)  # ipykernel inspects the signature to see what it can pass
    async def do_execute(
        self: Any, code: str, silent: bool, store_history: bool = True, *rest: Any, **named: Any
    ) -> Any:
        request = self.get_parent("shell")
        parent = None if silent else request
        by_user = store_history and not silent
        with guard.cell(parent, by_user), window.passing(False):
            begin, started = time.monotonic(), time.time()
            try:
                reply = base.do_execute(self, code, silent, store_history, *rest, **named)
                content = await reply if inspect.isawaitable(reply) else reply
            except KeyboardInterrupt:  # before IPython was ready for it: ipykernel would send no reply
                content = interrupted(self)
            seconds = time.monotonic() - begin
        if by_user:
            gpu_kernel.done_functions.cell_ended(request, code, content, started, seconds)
        return content

    members = {"do_execute": do_execute, **control_members(base, guard, window, unread)}
    members.update(**kernel_members(base, window), **unread.input.kernel_members(base))
    return type(base.__name__, (base,), members)


def control_members(base: Any, guard: Guard, window: OutputWindow, unread: UnreadMessages) -> Dict[str, Any]:
    """Return the members of a kernel's class that handle requests on the control channel."""

    def notice(self: Any, stream: Any, ident: Any, parent: Any) -> None:
        content = parent["content"]
        guard.notify(str(content["text"]), bool(content["hooks"]), str(content.get("signal", "")))

    def taken_over(self: Any, stream: Any, ident: Any, parent: Any) -> None:
        window.taken_over()
        self.session.send(stream, f"{TAKEN_OVER}_reply", unread.replies(), parent, ident=ident)

    async def interrupt_request(self: Any, *request: Any) -> None:
        await base.interrupt_request(self, *request)
        for seconds in _WAKES:
            asyncio.get_running_loop().call_later(seconds, wake_main_thread)

    types = {NOTICE: notice, TAKEN_OVER: taken_over}
    control = [*base.control_msg_types, *types]
    return {"control_msg_types": control, "interrupt_request": interrupt_request, **types}


def interrupted(kernel: Any) -> Dict[str, Any]:
    """Show front ends that a cell was interrupted before its code began; return the content of its reply."""
    error = {"ename": "KeyboardInterrupt", "evalue": "", "traceback": ["KeyboardInterrupt"]}
    kernel.send_response(kernel.iopub_socket, "error", error)
    more = {"execution_count": kernel.execution_count, "user_expressions": {}, "payload": []}
    return {"status": "error", **error, **more}


def wake_main_thread() -> None:
    """End the main thread's system call, so that Python looks for signals. If SIGINT arrives at the moment in which the
    main thread begins a call, or in another thread, Python would handle it only after that call, perhaps hours later.
    """
    signal.pthread_kill(threading.main_thread().ident or 0, _WAKE_SIGNAL)


def write_to_cells(window: OutputWindow, cells: List[Any], text: str) -> None:
    """Write to stderr of the cells with these requests, also if user code has replaced sys.stderr. From any thread."""
    kernelapp: Any = importlib.import_module("ipykernel.kernelapp")
    OutStream: Any = importlib.import_module("ipykernel.iostream").OutStream
    kernel, content = kernelapp.IPKernelApp.instance().kernel, {"name": "stderr", "text": text}
    with window.passing():
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, OutStream):  # so that earlier output of the cell comes first
                stream.flush()
        for parent in cells:
            kernel.session.send(kernel.iopub_socket, "stream", content, parent=parent, ident=b"stream.stderr")


def iopub_class(base: Any, window: OutputWindow) -> Any:
    """Return a subclass of IOPubThread that keeps the window, and has no TCP port."""
    return type("GpuIOPubThread", (base,), {**private_socket_members(base), **thread_members(base, window)})


def private_socket_members(base: Any) -> Dict[str, Callable[..., Any]]:
    """Return the methods by which a subclass of this IOPubThread receives the output of forked children on a socket
    file beside that of iopub, not on a TCP port. There are none for an unknown ipykernel, and the log says so."""
    if not all(hasattr(base, name) for name in ("_setup_pipe_in", "_setup_pipe_out", "_handle_pipe_msg")):
        print(
            "unknown ipykernel; the kernel listens on a port of 127.0.0.1 for forked children",
            file=sys.stderr,
        )
        return {}
    zmq: Any = importlib.import_module("zmq")
    zmqstream: Any = importlib.import_module("zmq.eventloop.zmqstream")

    def setup_pipe_in(thread: Any) -> None:
        iopub: str = thread.socket.getsockopt(zmq.LAST_ENDPOINT).rstrip(b"\0").decode()
        thread.forked_address = iopub[:-1] + _FORKED_PORT  # as long as iopub's, so that it is not too long
        pipe = thread.socket.context.socket(zmq.PULL)
        pipe.linger = 0
        pipe.bind(thread.forked_address)
        thread._pipe_uuid = os.urandom(16)
        thread._pipe_in = zmqstream.ZMQStream(pipe, thread.io_loop)
        thread._pipe_in.on_recv(thread._handle_pipe_msg)

    def setup_pipe_out(thread: Any) -> Any:
        context = zmq.Context()  # after a fork only a new context works
        pipe = context.socket(zmq.PUSH)
        pipe.linger = 3000
        pipe.connect(thread.forked_address)
        return context, pipe

    return {"_setup_pipe_in": setup_pipe_in, "_setup_pipe_out": setup_pipe_out}


if __name__ == "__main__":
    main(sys.argv[1:])
