"""Runs one process of a check until it ends, a time limit passes, or the process that wanted its answer is gone.

A process of a check receives its request and sends its answer over two pipes of its own, because libraries that are
imported, and set-up lines, print to stdout. The request's pipe stays open for as long as the answer is wanted: a
process that reads its end knows that it must stop, also after SIGKILL at the other end. What a process prints is read
without end, and only the first and last part is kept.
"""

from __future__ import annotations

import contextlib
import functools
import os
import selectors
import signal
from typing import Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ...wire.runtime import Runtime
from ..process_control import ChildProcess, ProcessControl, TimeoutExpired

PIPES = "JUPYTER_GPU_KERNEL_CHECK"
"""The variable with the descriptors of the two pipes: "5,7"."""
MAX_REQUEST = 1 << 20
MAX_ANSWER = 256 * 1024
OUTPUT_PART = 8000
"""Bytes of the output's beginning, and of its end, that are kept."""
_POLL_INTERVAL = 0.05
_KILL_TIMEOUT = 2.0


class Result(NamedTuple):
    """`status`: the return code (negative: a signal), None if the process was killed; `late`: by the time limit."""

    answer: bytes
    output: str
    status: Optional[int]
    late: bool = False


class Bounded:
    """The first and the last bytes of a stream."""

    def __init__(self, part: int = OUTPUT_PART) -> None:
        self._part = part
        self._head = b""
        self._tail = b""
        self._cut = False

    def add(self, data: bytes) -> None:
        """Add what was read."""
        room = self._part - len(self._head)
        self._head += data[:room]
        tail = self._tail + data[room:] if room < len(data) else self._tail
        self._cut = self._cut or len(tail) > self._part
        self._tail = tail[-self._part :]

    def text(self) -> str:
        """The text, with a mark where something was left out."""
        between = b"\n[...]\n" if self._cut else b""
        return (self._head + between + self._tail).decode("utf-8", "replace")


def inherited_pipes() -> Tuple[int, int]:
    """Return the descriptors of this process: to read its request from, and to write its answer to. Its own children
    do not inherit them. Raises KeyError or ValueError if there are none."""
    request, answer = map(int, os.environ.pop(PIPES).split(","))
    for descriptor in (request, answer):
        os.set_inheritable(descriptor, False)
    return request, answer


def read_request(descriptor: int) -> bytes:
    """Read the request, which is one line. Its pipe stays open."""
    data = b""
    while not data.endswith(b"\n") and len(data) < MAX_REQUEST:
        more = os.read(descriptor, 65536)
        if not more:
            break
        data += more
    return data


def write_answer(descriptor: int, data: bytes) -> None:
    """Write the answer, unless nobody reads it any more."""
    with contextlib.suppress(OSError):
        while data:
            data = data[os.write(descriptor, data) :]


class Supervisor:
    """Runs processes, one at a time. `stop`: a descriptor that is readable when they must end (-1: none)."""

    def __init__(self, runtime: Runtime, processes: ProcessControl, stop: int = -1) -> None:
        self.stopped = False
        self._runtime = runtime
        self._processes = processes
        self._stop = stop

    def run(
        self,
        command: Sequence[str],
        request: bytes,
        timeout: float,
        *,
        env: Optional[Mapping[str, str]] = None,
        cwd: Optional[str] = None,
        pass_fds: Sequence[int] = (),
        watch: Optional[Mapping[int, Callable[[], None]]] = None,
    ) -> Result:
        """Run a command in a session of its own; no process of its process group is left. Raises OSError if it cannot
        be started.

        watch: Called while it runs, when one of these descriptors is readable.
        """
        if self.stopped:
            return Result(b"", "", None)
        (request_read, request_write), (answer_read, answer_write) = os.pipe(), os.pipe()
        output_read, output_write = os.pipe()
        try:
            environ = dict(env if env is not None else os.environ)
            environ[PIPES] = f"{request_read},{answer_write}"
            inherited = [request_read, answer_write, *pass_fds]
            try:
                process = self._processes.start(
                    command, output=output_write, cwd=cwd, env=environ, pass_fds=inherited
                )
            finally:
                _close(request_read, answer_write, output_write)
            sinks = {answer_read: Bounded(MAX_ANSWER), output_read: Bounded()}
            status, late = self._supervise(
                process, _Request(request_write, request), sinks, timeout, watch or {}
            )
            answer, output = (sink.text() for sink in sinks.values())
            return Result(answer.encode(), output, status, late)
        finally:
            _close(request_write, answer_read, output_read)

    def _supervise(
        self,
        process: ChildProcess,
        request: _Request,
        sinks: Mapping[int, Bounded],
        timeout: float,
        watch: Mapping[int, Callable[[], None]],
    ) -> Tuple[Optional[int], bool]:
        """Return the process's status, and whether it was late. Its output is in the sinks then."""
        actions: Dict[int, Callable[[], object]] = {**watch}
        deadline, late = self._runtime.monotonic() + timeout, False
        with selectors.DefaultSelector() as selector:
            selector.register(request.descriptor, selectors.EVENT_WRITE, lambda: request.write(selector))
            for descriptor, sink in sinks.items():
                actions[descriptor] = functools.partial(_read, selector, descriptor, sink)
            if self._stop >= 0:
                actions[self._stop] = self._must_stop
            for descriptor, action in actions.items():
                selector.register(descriptor, selectors.EVENT_READ, action)
            try:
                status = process.poll()
                while status is None and not late and not self.stopped:
                    for key, _ in selector.select(_POLL_INTERVAL):
                        key.data()
                    status = process.poll()
                    late = status is None and self._runtime.monotonic() > deadline
            finally:
                self._end(process)
        for descriptor, sink in sinks.items():
            sink.add(_remaining(descriptor))
        return status, late

    def _must_stop(self) -> None:
        self.stopped = True

    def _end(self, process: ChildProcess) -> None:
        """End its process group. A process that not even SIGKILL ends (state D) is left to the system."""
        self._processes.signal_group(process.pid, signal.SIGKILL)
        with contextlib.suppress(TimeoutExpired):
            process.wait(timeout=_KILL_TIMEOUT)


class _Request:
    """The request, as far as it is not written yet. Its process may read it late, or never."""

    def __init__(self, descriptor: int, data: bytes) -> None:
        os.set_blocking(descriptor, False)
        self.descriptor = descriptor
        self._data = data

    def write(self, selector: selectors.BaseSelector) -> None:
        """Write what the pipe takes. It stays open afterwards."""
        try:
            self._data = self._data[os.write(self.descriptor, self._data) :]
        except BlockingIOError:
            return
        except OSError:  # the process has closed its end
            self._data = b""
        if not self._data:
            selector.unregister(self.descriptor)


def _read(selector: selectors.BaseSelector, descriptor: int, sink: Bounded) -> None:
    data = os.read(descriptor, 1 << 20)
    sink.add(data)
    if not data:
        selector.unregister(descriptor)


def _remaining(descriptor: int) -> bytes:
    """What is in the pipe already: a process that has left the group may hold its other end for ever."""
    os.set_blocking(descriptor, False)
    parts: List[bytes] = []
    with contextlib.suppress(BlockingIOError):
        for _ in range(64):
            parts.append(os.read(descriptor, 65536))
            if not parts[-1]:
                break
    return b"".join(parts)


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            os.close(descriptor)
