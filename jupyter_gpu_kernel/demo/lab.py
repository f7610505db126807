"""`demo --lab`: JupyterLab on the practice cluster, in the foreground, until Ctrl-C."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from .notebook import make
from .stage import KERNEL, end, stage, stop_kernels, walk

_QUESTIONS = {"@jupyterlab/apputils-extension:announcements": True}  # it asks whether news may be fetched


def show_lab() -> int:
    """0 once it is over and nothing is left, else 1."""
    with stage() as at:
        if not walk(at):
            return 1
        at.terminal.say("JupyterLab", "opens. Ctrl-C ends it, and the cluster with it.")
        status = _foreground(_command(at.cluster.folder))
        stop_kernels(at)
        return 0 if end(at) and status == 0 else 1


def _command(folder: Path) -> list[str]:
    file = folder / "notebooks" / "demo.ipynb"
    file.parent.mkdir()
    file.write_text(json.dumps(make(KERNEL)))
    page = Path(os.environ["JUPYTER_CONFIG_DIR"]) / "labconfig" / "page_config.json"
    page.parent.mkdir()
    page.write_text(json.dumps({"disabledExtensions": _QUESTIONS}))
    command = [sys.executable, "-m", "jupyterlab", "-y", f"--ServerApp.root_dir={file.parent}", str(file)]
    return [*command, "--allow-root"] if os.geteuid() == 0 else command


def _foreground(command: list[str]) -> int:
    """Run it to its end. Ctrl-C is for it: it gets it from the terminal as we do."""
    process = subprocess.Popen(command)
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            continue
        except BaseException:
            process.terminate()
            process.wait(10)
            raise
