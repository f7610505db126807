"""Runs the user's set-up lines (`module load cuda`) in a login shell, which then becomes the keeper.

The lines may hold secrets: they are in a file that only the user can read, and in no command line. Their output goes
into the story. The processes that they leave running belong to the kernel and end with it; a variable in their
environment marks them.
"""

from __future__ import annotations

import contextlib
import os
import shlex
from functools import partial
from pathlib import Path
from typing import List

from ...wire.files import private, replace_file
from ..exit.descendants import ROOT, SETUP, end_all, find_descendants
from ..paths import Root, agent_command, read_tail
from ..story import Story
from ..system.agent_runtime import AgentRuntime, ChildProcess, Streams
from .client import LOG_TAIL, StartError, StartRequest, start_keeper

TIMEOUT = 60.0
"""Seconds that the lines and the start of the keeper may take, together."""
_MAX_LINES = 20
_MAX_WIDTH = 300
_MAX_LOG = 1 << 20


def run_setup(runtime: AgentRuntime, root: Root, kernel_id: str, request: StartRequest) -> None:
    """Run the set-up lines and then the keeper; report the result to the starter."""
    folder, story = root.kernel(kernel_id), Story(root.story(kernel_id), runtime.time)
    script = folder / "setup.sh"
    command = [*agent_command(request.settings.python), "serve", kernel_id]
    replace_file(script, shell_script(list(request.settings.setup), command).encode())
    reported = False

    def tell() -> None:
        nonlocal reported
        reported = True
        _tell(story, read_tail(folder / "log", LOG_TAIL))

    try:
        launch = partial(_launch, runtime, root, script)
        start_keeper(runtime, folder, launch, request.settings, request.lock, TIMEOUT, tell)
    except StartError as error:
        if not reported:
            tell()
        end_all(runtime, find_descendants(kernel_id, SETUP, str(root.path)))
        text = _error(error, read_tail(folder / "log", LOG_TAIL))
        story.tell("end", text)
        request.failed(text)
    else:
        request.succeeded()
    finally:
        with contextlib.suppress(OSError):  # the folder was removed by the keeper
            script.unlink()


def shell_script(lines: List[str], command: List[str]) -> str:
    """Return the script that runs the set-up lines, and then executes this command in place of the shell."""
    return "\n".join([*lines, f"unset {SETUP}", f"exec {shlex.join(command)}", ""])


def trim(log: Path) -> None:
    """Empty the log when it is large: processes that the set-up lines left running may print indefinitely."""
    with contextlib.suppress(OSError):
        if log.stat().st_size > _MAX_LOG:
            os.truncate(str(log), 0)  # it is written to with O_APPEND


def _error(error: StartError, output: str) -> str:
    """The error message for the user."""
    text = f"the keeper did not start after the set-up lines: {error}"
    if error.status is not None:
        text = f"the set-up lines, or the keeper started after them, exited with status {error.status}"
    return f"{text}; they printed:\n{output}" if output else text


def _launch(runtime: AgentRuntime, root: Root, script: Path) -> ChildProcess:
    environ = dict(os.environ, **{SETUP: script.parent.name, ROOT: str(root.path)})
    with open(str(script.parent / "log"), "ab", opener=private) as log:
        return runtime.start(["bash", "--login", str(script)], Streams(log), env=environ)


def _tell(story: Story, output: str) -> None:
    """Add the last lines to the story, one entry a line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    if len(lines) > _MAX_LINES:
        story.tell("setup", f"the first {len(lines) - _MAX_LINES} lines are left out")
    for line in lines[-_MAX_LINES:]:
        story.tell("setup", line[:_MAX_WIDTH])
