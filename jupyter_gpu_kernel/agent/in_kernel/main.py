"""Turns the process the keeper started into an ipykernel: guard first, then IPython, then "ready".

    python agent.pyz ipykernel <ipykernel arguments>

What users find in the kernel is what `python -m ipykernel_launcher` gives them, plus the module `gpu_kernel`,
the magic `%gpu`, no listening TCP port, and the guard. Works with ipykernel 6.20 to 7. This file must not
know how signals are handled, nor anything of the keeper but these environment variables, each gone after
reading:

    JUPYTER_GPU_KERNEL_SIGTERM    "survive" (default) or "default": no guard
    JUPYTER_GPU_KERNEL_LINGER     seconds a kernel counts as in use after its user was last active
    JUPYTER_GPU_KERNEL_STORY      path of the datagram socket that events go to
    JUPYTER_GPU_KERNEL_READY_FD   where b"1" is written when the kernel can be spoken to
    JUPYTER_GPU_KERNEL_KEEPER_FD  a pipe that ends with the keeper: see keeper_watch.py
    JUPYTER_GPU_KERNEL_ORPHAN     seconds that a cell may still run when no keeper can be had
"""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import importlib
import importlib.util
import inspect
import os
import signal
import sys
import types
from typing import Any, List, Tuple

from . import gpu_kernel, keeper_watch
from .children import TERM
from .guard import Guard
from .usage import LINGER, Usage

CONTROL_WITHIN = 2.0
"""Seconds for what follows the answer to a shutdown."""
PORT = "the kernel listens on a port of 127.0.0.1 for the output of forked children"
_OURS = __name__.partition(".")[0] if "." in __name__ else str(__package__).partition(".")[0]


def main(argv: List[str]) -> None:
    """Run the kernel until it ends. `argv` is what ipykernel_launcher would get after its name."""
    faulthandler.enable(os.fdopen(os.dup(2), "w"))  # the keeper's file, whatever is captured later
    story = os.environ.get("JUPYTER_GPU_KERNEL_STORY", "")
    guard = guard_from_environment()
    keeper = os.environ.pop("JUPYTER_GPU_KERNEL_KEEPER_FD", "")
    limit = float(os.environ.pop("JUPYTER_GPU_KERNEL_ORPHAN", keeper_watch.LIMIT))
    if keeper:
        born = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        keeper_watch.watch(int(keeper), guard, story, functools.partial(gpu_kernel.given, born), limit)
    ready = os.environ.pop("JUPYTER_GPU_KERNEL_READY_FD", "")
    leave_no_trace(argv)
    gpu_kernel.bind(guard)
    without_debugger()
    kernelapp: Any = importlib.import_module("ipykernel.kernelapp")
    kernelapp.IOPubThread = private_iopub(kernelapp.IOPubThread)
    app = app_class(kernelapp.IPKernelApp, guard).instance()
    app.initialize(argv)
    if app.shell is not None:
        app.shell.register_magic_function(gpu_kernel.magic, "line", "gpu")
    if ready:
        with contextlib.suppress(BrokenPipeError):  # its keeper was killed; the next one sees for itself
            os.write(int(ready), b"1")
        os.close(int(ready))
    app.start()
    end_control(app)


def end_control(app: Any) -> None:
    """After a shutdown its thread still flushes; if iopub's thread ends first, which exit handlers see to, it waits
    for that for ever, and the process for it."""
    thread = getattr(app, "control_thread", None)
    if thread is not None and thread.is_alive():
        thread.stop()
        thread.join(CONTROL_WITHIN)


def guard_from_environment() -> Guard:
    """The guard, installed unless the settings or the system say no. Before any thread exists."""
    mode = os.environ.pop("JUPYTER_GPU_KERNEL_SIGTERM", "survive")
    linger = float(os.environ.pop("JUPYTER_GPU_KERNEL_LINGER", LINGER))
    guard = Guard(Usage(linger), os.environ.pop("JUPYTER_GPU_KERNEL_STORY", ""), write_to_cells)
    if mode == "default":
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, TERM)
    elif hasattr(signal, "sigtimedwait"):
        guard.install()
    else:
        print("no guard against SIGTERM: this system has no sigtimedwait", file=sys.stderr)
    return guard


def leave_no_trace(argv: List[str]) -> None:
    """sys.path, sys.argv and sys.modules as ipykernel_launcher would leave them, and `gpu_kernel` importable.

    Our package goes from sys.modules: a user who has it installed imports that one and not the agent's.
    """
    archive = os.path.abspath(sys.argv[0])
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != archive or not entry]
    if sys.path and sys.path[0] in ("", os.getcwd()):
        del sys.path[0]
    launcher = importlib.util.find_spec("ipykernel_launcher")
    sys.argv = [(launcher and launcher.origin) or "ipykernel_launcher.py", *argv]
    for name in [name for name in sys.modules if name == _OURS or name.startswith(_OURS + ".")]:
        del sys.modules[name]
    gpu_kernel.__name__ = "gpu_kernel"
    sys.modules["gpu_kernel"] = gpu_kernel


def without_debugger() -> None:
    """debugpy opens TCP ports on which any local user can run code as this one: the kernel has no debugger.

    Before ipykernel's other modules: older ones take the name over when they are imported.
    """
    try:
        debugger: Any = importlib.import_module("ipykernel.debugger")
    except ImportError:
        return  # an ipykernel without one
    debugger._is_debugpy_available = False


def app_class(base: Any, guard: Guard) -> Any:
    """IPKernelApp whose kernel, whichever class is configured, tells the guard about its cells."""

    def init_kernel(app: Any) -> None:
        app.kernel_class = kernel_class(app.kernel_class, guard)
        base.init_kernel(app)

    return subclass("GpuKernelApp", base, init_kernel=init_kernel)


def subclass(name: str, base: Any, **methods: Any) -> Any:
    """A subclass of a class that is known only at run time."""
    return types.new_class(name, (base,), exec_body=lambda body: body.update(methods))


def kernel_class(base: Any, guard: Guard) -> Any:
    """`base`, with every execution, of subshells too, as a cell of the guard's.

    IPython's events would not do: they are not balanced (an empty cell), and silent cells have none.
    """

    @functools.wraps(base.do_execute)  # ipykernel looks at the signature to see what it may pass
    async def do_execute(
        self: Any, code: str, silent: bool, store_history: bool = True, *rest: Any, **named: Any
    ) -> Any:
        request = self.get_parent("shell")
        gpu_kernel.begin(request)
        parent = None if silent else request
        with guard.cell(parent, by_user=store_history and not silent):
            reply = base.do_execute(self, code, silent, store_history, *rest, **named)
            return await reply if inspect.isawaitable(reply) else reply

    return subclass(base.__name__, base, do_execute=do_execute)


def write_to_cells(cells: List[Any], text: str) -> None:
    """Write to stderr of the cells with these requests, also if user code has replaced sys.stderr. From any thread."""
    kernelapp: Any = importlib.import_module("ipykernel.kernelapp")
    kernel = kernelapp.IPKernelApp.instance().kernel
    OutStream: Any = importlib.import_module("ipykernel.iostream").OutStream
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, OutStream):  # what the cell printed before comes before
            stream.flush()
    for parent in cells:
        content = {"name": "stderr", "text": text}
        kernel.session.send(kernel.iopub_socket, "stream", content, parent=parent, ident=b"stream.stderr")


def private_iopub(base: Any) -> Any:
    """IOPubThread that takes forked children's output on a socket file beside its own, not on a TCP port.

    Where that cannot be, it stays as it was, and a line in the log says so.
    """
    if not all(hasattr(base, name) for name in ("_setup_pipe_in", "_setup_pipe_out", "_handle_pipe_msg")):
        print(f"unknown ipykernel; {PORT}", file=sys.stderr)
        return base
    zmq: Any = importlib.import_module("zmq")
    zmqstream: Any = importlib.import_module("zmq.eventloop.zmqstream")

    def setup_pipe_in(thread: Any) -> None:
        pipe, thread._forked = bound_beside(thread.socket, zmq)
        if pipe is None:
            base._setup_pipe_in(thread)
            return
        thread._pipe_uuid = os.urandom(16)
        thread._pipe_in = zmqstream.ZMQStream(pipe, thread.io_loop)
        thread._pipe_in.on_recv(thread._handle_pipe_msg)

    def setup_pipe_out(thread: Any) -> Any:
        if not thread._forked:
            return base._setup_pipe_out(thread)
        context = zmq.Context()  # after a fork nothing but a new one works
        pipe = context.socket(zmq.PUSH)
        pipe.linger = 3000
        pipe.connect(thread._forked)
        return context, pipe

    return subclass("PrivateIOPubThread", base, _setup_pipe_in=setup_pipe_in, _setup_pipe_out=setup_pipe_out)


def bound_beside(iopub: Any, zmq: Any) -> Tuple[Any, str]:
    """A PULL socket bound to a file beside iopub's, and its address; (None, "") where that cannot be."""
    address = iopub.getsockopt(zmq.LAST_ENDPOINT).rstrip(b"\0").decode() + "-forked"
    if not address.startswith("ipc://"):  # a kernel on TCP has five ports already
        return None, ""
    pipe = iopub.context.socket(zmq.PULL)
    pipe.linger = 0
    try:
        pipe.bind(address)
    except zmq.ZMQError as error:  # above all a path that is too long
        print(f"{address}: {error}; {PORT}", file=sys.stderr)
        pipe.close()
        return None, ""
    return pipe, address


if __name__ == "__main__":
    main(sys.argv[1:])
