"""Runs one process of a check until it ends, a time limit passes, or nobody wants its answer any more."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from typing import Dict, NamedTuple, Optional, Sequence, Tuple

from ...wire.runtime import Runtime
from ..gpus.sharing.lease import Lease
from ..process_control import ChildProcess, ProcessControl, TimeoutExpired

MAX_ANSWER = 1 << 20
MAX_OUTPUT = 16 * 1024
"""Bytes that are kept of what a process prints: the last ones."""
_POLL_INTERVAL = 0.05
_KILL_TIMEOUT = 2.0


class Result(NamedTuple):
    """`answer`: its stdout; `output`: its stderr; `status`: the return code (negative: a signal), None if the process
    was killed; `late`: by the time limit."""

    answer: bytes
    output: str
    status: Optional[int]
    late: bool = False


class Supervisor:
    """Runs processes, one at a time. Meanwhile it answers those who ask for the holder of a lease."""

    def __init__(self, runtime: Runtime, processes: ProcessControl, stop: int) -> None:
        """`stop`: a descriptor that is readable when nobody wants the answer any more."""
        self._runtime = runtime
        self._processes = processes
        self._stop = stop

    def run(
        self,
        command: Sequence[str],
        timeout: float,
        *,
        env: Optional[Dict[str, str]] = None,
        pass_fds: Sequence[int] = (),
        leases: Sequence[Lease] = (),
    ) -> Result:
        """Run a command in a session of its own; no process of its process group is left. Raises OSError if it cannot
        be started."""
        with contextlib.closing(_Pipe(MAX_ANSWER)) as answer, contextlib.closing(_Pipe(MAX_OUTPUT)) as output:
            process = self._processes.start(
                command, output=answer.write_end, errors=output.write_end, env=env, pass_fds=pass_fds
            )
            try:
                status, late = self._watch(process, timeout, (answer, output), leases)
            finally:
                self._end(process)
            answer.read()
            output.read()
            return Result(answer.data, output.data.decode("utf-8", "replace"), status, late)

    def _watch(
        self, process: ChildProcess, timeout: float, pipes: Sequence[_Pipe], leases: Sequence[Lease]
    ) -> Tuple[Optional[int], bool]:
        """Return the process's status, None if it must be killed, and whether that is because it is late."""
        actions = {lease.fileno(): lease.answer for lease in leases}
        actions.update({pipe.fileno(): pipe.read for pipe in pipes})
        deadline = self._runtime.monotonic() + timeout
        while True:
            ready = select.select([*actions, self._stop], [], [], _POLL_INTERVAL)[0]
            for descriptor in actions.keys() & ready:
                actions[descriptor]()
            status = process.poll()
            late = status is None and self._runtime.monotonic() > deadline
            if status is not None or late or self._stop in ready:
                return status, late

    def _end(self, process: ChildProcess) -> None:
        """End its process group. A process that not even SIGKILL ends (state D) is left to the system."""
        self._processes.signal_group(process.pid, signal.SIGKILL)
        with contextlib.suppress(TimeoutExpired):
            process.wait(timeout=_KILL_TIMEOUT)


class _Pipe:
    """The last bytes that a process writes. Both ends stay open here, so `read` meets no end, and never blocks."""

    def __init__(self, limit: int) -> None:
        self.data = b""
        self._limit = limit
        self._read_end, self.write_end = os.pipe()
        os.set_blocking(self._read_end, False)

    def fileno(self) -> int:
        return self._read_end

    def read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self.data = (self.data + os.read(self._read_end, 1 << 16))[-self._limit :]

    def close(self) -> None:
        os.close(self._read_end)
        os.close(self.write_end)
