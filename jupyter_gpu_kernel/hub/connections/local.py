"""This machine as a node, or as the place where a command runs that leads to one."""

from __future__ import annotations

import shlex
import threading
import weakref
from collections.abc import Mapping
from pathlib import Path
from subprocess import CompletedProcess

from ...errors import ConnectError
from ..transport.process import ProcessEnds
from ..transport.short_command import run_to_end
from ..transport.stream import CommandStream

NAME = "localhost"
_VARIABLES = (
    *("HOME", "USER", "LOGNAME", "SHELL", "PATH", "LANG", "LANGUAGE", "TZ", "TMPDIR", "XDG_RUNTIME_DIR"),
    *("SSH_AUTH_SOCK", "KRB5CCNAME", "DOCKER_HOST", "CONTAINER_HOST", "JUPYTER_GPU_KERNEL_BASE"),
    # which GPUs a scheduler, or the user, has given to this process
    *("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"),
    # without which programs of Windows do not start
    *("SYSTEMROOT", "SYSTEMDRIVE", "COMSPEC", "PATHEXT", "USERPROFILE", "USERNAME", "TEMP", "TMP"),
    *("APPDATA", "LOCALAPPDATA", "PROGRAMDATA"),
)
_PREFIXES = ("LC_", "SLURM_")


class LocalConnection:
    """Runs commands on this machine, in the home folder. It needs no sign-in and cannot break."""

    interactive = False
    """Whether the user typed a secret for it."""
    transport = ""
    """Nothing speaks SSH."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        """`environment`: this process's, of which commands get what a login has."""
        self.steps: list[tuple[str, str, float]] = []
        """There are none."""
        self.closed = False
        """Whether `close` was called."""
        self.host_keys: list[tuple[str, str]] = []
        """There are none."""
        # The hub has the environment of the front end that happened to start it, secrets included.
        self._environment = {
            name: value
            for name, value in environment.items()
            if name in _VARIABLES or name.startswith(_PREFIXES)
        }
        self._streams = weakref.WeakSet[CommandStream]()
        self._lock = threading.Lock()

    def open(self, command: str) -> CommandStream:
        """Run a command, its words quoted as for a shell; return its stdin and stdout as a stream."""
        words = shlex.split(command)
        try:
            stream = CommandStream(ProcessEnds(words, self._environment, Path.home()))
        except OSError as error:
            cause = f"“{words[0]}” cannot be run: {error.strerror or error}"
            raise ConnectError(
                cause, hop=NAME, remedy="Check that it is installed, and on your PATH."
            ) from error
        with self._lock:
            self._streams.add(stream)
        if self.closed:  # meanwhile
            stream.close()
        return stream

    def run(self, command: str, *, stdin: bytes = b"", timeout: float = 30.0) -> CompletedProcess[bytes]:
        """Run a short command. Raises ConnectError if it does not end within `timeout` (s)."""
        return run_to_end(self.open(command), stdin, timeout, NAME, command)

    def alive(self) -> bool:
        """Whether it was not closed."""
        return not self.closed

    def responds(self, within: float) -> bool:
        """Always true."""
        return True

    def close(self) -> None:
        """End all commands."""
        self.closed = True
        with self._lock:
            streams = list(self._streams)
        for stream in streams:
            stream.close()
