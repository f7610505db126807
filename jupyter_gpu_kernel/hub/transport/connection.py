"""What the rest of the hub knows of a connection to a node, however it is made."""

from __future__ import annotations

import contextlib
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator

from ...errors import GpuKernelError
from .short_command import SHELL, Completed, run_to_end
from .stream import CommandStream

Steps = list[tuple[str, str, float]]
"""(hop, step, seconds) of each step of connecting, in order."""


@contextlib.contextmanager
def timed_step(steps: Steps, hop: str, step: str, progress: Callable[[str, str], None]) -> Iterator[None]:
    """Report the beginning of a step, and append it to `steps` when the block ends. An error gets all steps so far."""
    progress(hop, step)
    since = time.monotonic()
    try:
        yield
    except GpuKernelError as error:
        error.steps = [*steps, (hop, step, time.monotonic() - since)]
        raise
    steps.append((hop, step, time.monotonic() - since))


class Connection(ABC):
    """A connection to a node. All methods block, and may be called from any thread.

    What is not overridden is as on this machine: nobody has to sign in, and the connection cannot break."""

    def __init__(self, label: str, transport: str = "") -> None:
        self.label = label
        """What messages call the node."""
        self.transport = transport
        """What speaks SSH for the connection, and why, in words; "" for this machine."""
        self.closed = False
        """Whether `close` was called."""
        self.steps: Steps = []
        self.host_keys: list[tuple[str, str]] = []
        """(hop, fingerprint) of the verified host key of each hop over SSH; "" if only ssh knows the fingerprint."""
        self._streams: set[CommandStream] = set()
        self._streams_lock = threading.Lock()

    @property
    def interactive(self) -> bool:
        """Whether the user typed a secret for the connection, so that it cannot be opened again without the user."""
        return False

    @abstractmethod
    def open(self, command: str) -> CommandStream:
        """Run a command, its words quoted as for a shell; return its stdin and stdout as a stream.

        Raises ConnectError if the connection is broken, or the host refuses or does not answer in time."""

    def run(self, command: str, *, stdin: bytes = b"", timeout: float = 30.0) -> Completed:
        """Run a short command. Raises ConnectError if the command does not end within `timeout` (s), or the connection
        breaks."""
        with contextlib.closing(self.open(SHELL)) as shell:
            return run_to_end(shell, stdin, timeout, self.label, command)

    def alive(self) -> bool:
        """Whether the connection is open, as far as this end can tell. `responds` asks the other end."""
        return not self.closed

    def responds(self, within: float) -> bool:
        """Whether the node answers within so many seconds."""
        return self.alive()

    def close(self) -> None:
        """Close the connection, and end what runs over it."""
        self.closed = True
        self._close_streams()

    def _kept(self, stream: CommandStream) -> CommandStream:
        """Return the stream, which ends with the connection from now on."""
        with self._streams_lock:
            self._streams = {one for one in self._streams if not one.closed} | {stream}
        if self.closed:  # meanwhile
            stream.close()
        return stream

    def _close_streams(self) -> None:
        with self._streams_lock:
            streams, self._streams = self._streams, set()
        for stream in streams:
            stream.close()
