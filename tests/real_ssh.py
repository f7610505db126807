"""The system's own ssh, run with a configuration file as a user would: what our connections are compared with."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from waiting import DEADLINE

SSH = shutil.which("ssh") or "ssh"
_ASKPASS = """#!/bin/sh
printf '%s\\n' "$1" >> "$0.asked"
answer=$(head -n 1 "$0.answers")
sed -i 1d "$0.answers"
[ -n "$answer" ] && printf '%s\\n' "$answer"
"""


@dataclass(frozen=True)
class Run:
    """How `ssh host true` ended. `asked`: the prompts that its user saw."""

    connected: bool
    stderr: str
    asked: tuple[str, ...] = ()


def run_ssh(
    config: Path | str,
    host: str,
    *options: str,
    environment: Mapping[str, str] | None = None,
    answers: Sequence[str] | None = None,
    folder: Path | None = None,
) -> Run:
    """Run `ssh -F config host true`. Without `answers` there is nobody to ask (BatchMode); else each answers one
    prompt, and `folder` takes the files that this needs."""
    command = [SSH, "-F", str(config), "-n", "-T", *options]
    environment = {**os.environ, **(environment or {})}
    askpass = (folder or Path()) / "askpass"
    if answers is None:
        command += ["-o", "BatchMode=yes"]
    else:
        askpass.write_text(_ASKPASS)
        askpass.chmod(0o700)
        Path(f"{askpass}.answers").write_text("".join(f"{one}\n" for one in answers))
        Path(f"{askpass}.asked").write_text("")
        environment |= {"SSH_ASKPASS": str(askpass), "SSH_ASKPASS_REQUIRE": "force", "DISPLAY": ":0"}
    process = subprocess.Popen(
        [*command, host, "true"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=environment,
    )
    try:
        _, stderr = process.communicate(timeout=DEADLINE)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # and what it has started: jump hosts in a loop have no end
        raise
    asked = () if answers is None else tuple(Path(f"{askpass}.asked").read_text().splitlines())
    return Run(process.returncode == 0, stderr, asked)
