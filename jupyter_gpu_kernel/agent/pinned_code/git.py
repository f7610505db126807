"""Runs git in a folder: without the repository's hooks, without questions to the user, within a time limit.

Works with git from 1.8 on. What git prints is bounded. Calls block.
"""

from __future__ import annotations

import os
import shutil
import sys
from typing import Callable, Dict

from ...wire.texts import one_line
from ..refused import Refused
from ..system.agent_runtime import AgentRuntime, Limit, run_programs

MAX_OUTPUT = 1 << 20
"""Bytes that are read of what a command prints."""
_OPTIONS = ("core.hooksPath=/dev/null", "core.fsmonitor=false", "advice.detachedHead=false", "gc.auto=0")
_KEPT = ("GIT_EXEC_PATH",)
_ASKING = ("SSH_ASKPASS", "DISPLAY")


class PinError(Refused):
    """Why code cannot be pinned, in words for the user."""

    def __init__(self, text: str) -> None:
        super().__init__("code", text)


class Git:
    """git, run in `folder`. All commands together have `seconds`; they end when `cancelled()`."""

    def __init__(
        self,
        runtime: AgentRuntime,
        folder: str,
        seconds: float,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> None:
        """Raises PinError if there is no git."""
        self._runtime = runtime
        self._folder = folder
        self._seconds = seconds
        self._cancelled = cancelled
        self._deadline = runtime.monotonic() + seconds
        self._env = _environment()
        path = self._env["PATH"]
        program = shutil.which("git", path=path)
        if program is None:
            raise PinError(
                f"there is no git on {os.uname().nodename} (PATH: {path}): install it, for example into the "
                "kernel's Python environment (conda install git), or ask the administrators"
            )
        self._program = program

    def line(self, *arguments: str, problem: str = "") -> str:
        """Run a command; return the first line that it prints. `problem`: what its failure means."""
        try:
            return self.run(*arguments).split("\n", 1)[0]
        except PinError as error:
            raise PinError(f"{problem}: {error}" if problem else str(error)) from None

    def run(self, *arguments: str, folder: str = "") -> str:
        """Run a command; return what it prints. Raises PinError, with git's own words, if it fails or takes too long.

        folder: Where it runs, if that is not the folder of this object.
        """
        command = [self._program]
        for option in _OPTIONS:
            command += ["-c", option]
        command += arguments
        where = folder or self._folder
        limit = Limit(self._deadline, self._cancelled, MAX_OUTPUT)
        try:
            (ended,) = run_programs(self._runtime, [command], limit, cwd=where, env=self._env)
        except OSError as error:
            raise PinError(f"git cannot be run: {error}") from None
        if ended.status is None and self._cancelled():
            raise PinError("it was cancelled")
        if ended.status is None:
            raise PinError(
                f"git took longer than {self._seconds:.0f} s in {where}: the file system may be slow"
            )
        if ended.status:
            words = one_line(os.fsdecode(ended.errors), 500) or "nothing"
            raise PinError(f"git {arguments[0]} failed (status {ended.status}); git says: {words}")
        return os.fsdecode(ended.output)


def _environment() -> Dict[str, str]:
    """Our environment without what points git to another repository, or has it ask the user."""
    env = {
        name: value
        for name, value in os.environ.items()
        if name in _KEPT or not (name.startswith("GIT_") or name in _ASKING)
    }
    env["PATH"] = os.pathsep.join([env.get("PATH") or os.defpath, os.path.dirname(sys.executable)])
    return dict(env, LC_ALL="C", GIT_TERMINAL_PROMPT="0", GIT_OPTIONAL_LOCKS="0")
