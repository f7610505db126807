"""Runs programs to their end, within a limit of time and output."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence

from .agent_runtime import AgentRuntime, ChildProcess, Streams, TimeoutExpired

_POLL_INTERVAL = 0.01
_KILL_TIMEOUT = 0.5
"""Seconds for a killed program to end: one that waits for a driver or a file system that hangs does not."""
_MOST_READS = 16
"""Pieces of 64 KiB that are read of a pipe at a time: as much as a pipe holds, or a little more."""


class Limit(NamedTuple):
    """When programs are killed: after `deadline`, a moment of the monotonic clock, or when `cancelled()` returns true.
    `most`: the bytes that are read of what each of them prints."""

    deadline: float
    cancelled: Callable[[], bool] = lambda: False
    most: int = 1 << 20


class Ended(NamedTuple):
    """How a program has ended. `status`: its return code (negative: a signal), None if it was killed. `output` and
    `errors`: what it has written to stdout and stderr."""

    process: ChildProcess
    status: Optional[int]
    output: bytes
    errors: bytes

    @property
    def text(self) -> str:
        """What the program has written to stdout."""
        return self.output.decode("utf-8", "replace")


def run_programs(
    runtime: AgentRuntime,
    commands: Sequence[Sequence[str]],
    limit: Limit,
    *,
    cwd: Optional[str] = None,
    env: Optional[Dict[str, str]] = None,
) -> List[Ended]:
    """Run these programs at once, and return how each has ended. Blocks until all have, or the limit is reached; those
    that still run are killed with their process groups. Raises OSError if one cannot be started.

    Nothing is written to a disk, which may be full, and nothing waits for a process that not even SIGKILL ends (state
    D).
    """
    started: List[ChildProcess] = []
    with contextlib.ExitStack() as stack:
        pipes = [stack.enter_context(contextlib.closing(_Pipe(limit.most))) for _ in range(2 * len(commands))]
        outputs, errors = pipes[::2], pipes[1::2]
        try:
            for command, output, error in zip(commands, outputs, errors):
                streams = Streams(output=output.write_end, errors=error.write_end)
                started.append(runtime.start(command, streams, cwd=cwd, env=env))
            while _running(started) and runtime.monotonic() <= limit.deadline and not limit.cancelled():
                runtime.sleep(_POLL_INTERVAL)
                for pipe in pipes:
                    pipe.read()
            statuses = [process.poll() for process in started]
        finally:
            _kill(runtime, _running(started))
        for pipe in pipes:
            pipe.read()
        printed = [bytes(pipe.data) for pipe in pipes]
        return [Ended(*one) for one in zip(started, statuses, printed[::2], printed[1::2])]


class _Pipe:
    """The first bytes that a program writes. Both ends stay open here, so `read` meets no end, and never blocks."""

    def __init__(self, most: int) -> None:
        self.data = bytearray()
        self._most = most
        self._read_end, self.write_end = os.pipe()
        os.set_blocking(self._read_end, False)

    def read(self) -> None:
        """Read what was written, but only a part of it if the program goes on to write."""
        with contextlib.suppress(BlockingIOError):
            for _ in range(_MOST_READS):
                self.data += os.read(self._read_end, 1 << 16)[: self._most - len(self.data)]

    def close(self) -> None:
        """Close both ends."""
        os.close(self._read_end)
        os.close(self.write_end)


def _running(started: Sequence[ChildProcess]) -> List[ChildProcess]:
    """Return those of these processes that have not ended."""
    return [process for process in started if process.poll() is None]


def _kill(runtime: AgentRuntime, running: Sequence[ChildProcess]) -> None:
    """Kill these processes with their groups, as each of them may be a script that has started another program."""
    for process in running:
        runtime.signal_group(process.pid, signal.SIGKILL)
    for process in running:
        with contextlib.suppress(TimeoutExpired):
            process.wait(timeout=_KILL_TIMEOUT)
