"""This machine as a node, or as the place where a command runs that leads to one."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

from ...errors import ConnectError
from ..transport.connection import Connection
from ..transport.process import ProcessEnds
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


class LocalConnection(Connection):
    """Runs commands on this machine, in the home folder."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        """`environment`: this process's, of which commands get what a login has."""
        super().__init__(NAME)
        # The hub has the environment of the front end that happened to start it, secrets included.
        self._environment = {
            name: value
            for name, value in environment.items()
            if name in _VARIABLES or name.startswith(_PREFIXES)
        }

    def open(self, command: str) -> CommandStream:
        """Run a command. Raises ConnectError if it cannot be run."""
        words = shlex.split(command)
        try:
            return self._kept(CommandStream(ProcessEnds(words, self._environment, Path.home())))
        except OSError as error:
            cause = f"“{words[0]}” cannot be run: {error.strerror or error}"
            remedy = "Check that it is installed, and on your PATH."
            raise ConnectError(cause, hop=NAME, remedy=remedy) from error
