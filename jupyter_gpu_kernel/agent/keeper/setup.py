"""The user's set-up lines (`module load cuda`): run in a login shell, which then becomes the keeper.

The lines are in a file that only the user can read and in no command line, as they may hold secrets. What they print
goes into the story. What they leave running belongs to the kernel and ends with it: it is known by a variable in its
environment.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
from pathlib import Path
from typing import Any, Dict, List

from ..exit.processes import ROOT, SETUP, end_all, tagged
from ..paths import Root, agent_command
from ..story import Story
from .handover import Handed, StartError, hand_over, printed

WITHIN = 60.0
"""Seconds that the lines and the start of the keeper may take, together."""
_LINES = 20
_WIDTH = 300
_LOG = 1 << 20


def set_up(root: Root, kernel_id: str, handed: Handed) -> None:
    """Starts the keeper behind the set-up lines, and tells the giver how that went."""
    folder, story = root.kernel(kernel_id), Story(root.story(kernel_id))
    python = str(handed.settings["python"])
    script = folder / "setup.sh"
    _write(script, _lines(handed.settings), [*agent_command(python), "serve", kernel_id])
    told = False

    def tell() -> None:
        nonlocal told
        told = True
        _tell(story, printed(folder / "log"))

    try:
        hand_over(folder, lambda: _launch(root, script), handed.settings, handed.lock, WITHIN, tell)
    except StartError as error:
        if not told:
            tell()
        end_all(tagged(kernel_id, SETUP, str(root.path)))
        text = _problem(error, printed(folder / "log"))
        story.tell("end", text)
        handed.failed(text)
    else:
        handed.begun()
    finally:
        with contextlib.suppress(OSError):  # the folder is gone with the keeper
            script.unlink()


def trim(log: Path) -> None:
    """What the set-up lines left running may print for ever: the file with that is emptied when it is large."""
    with contextlib.suppress(OSError):
        if log.stat().st_size > _LOG:
            os.truncate(str(log), 0)  # it is written to with O_APPEND


def _problem(error: StartError, said: str) -> str:
    """The error for the user."""
    text = f"the keeper did not start behind the set-up lines: {error}"
    if error.status is not None:
        text = f"the set-up lines, or the keeper behind them, ended with status {error.status}"
    return f"{text}; they printed:\n{said}" if said else text


def _lines(settings: Dict[str, Any]) -> List[str]:
    return [str(line) for line in settings["setup"]]


def _write(script: Path, lines: List[str], command: List[str]) -> None:
    fd = os.open(str(script), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "w") as file:
        file.write("\n".join([*lines, f"unset {SETUP}", f"exec {shlex.join(command)}", ""]))


def _launch(root: Root, script: Path) -> subprocess.Popen[bytes]:
    environ = dict(os.environ, **{SETUP: script.parent.name, ROOT: str(root.path)})
    with open(str(script.parent / "log"), "ab") as log:
        return subprocess.Popen(
            ["bash", "--login", str(script)],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environ, start_new_session=True,
        )  # fmt: skip


def _tell(story: Story, text: str) -> None:
    """The last lines, each as one of the story."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if len(lines) > _LINES:
        story.tell("setup", f"the first {len(lines) - _LINES} lines are left out")
    for line in lines[-_LINES:]:
        story.tell("setup", line[:_WIDTH])
