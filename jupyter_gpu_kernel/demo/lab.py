"""`demo --lab`: JupyterLab on the practice cluster, in the foreground, until Ctrl-C."""

from __future__ import annotations

import contextlib
import json
import os
import site
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from . import tour
from .actions import Actions
from .control import Control
from .stage import KERNEL, Stage, end, stage, stop_kernels, walk

_QUESTIONS = {"@jupyterlab/apputils-extension:announcements": True}  # it asks whether news may be fetched
_EXTENSION = "jupyter-gpu-kernel"
_NOT_BUILT = """our extension is not built: npm was not found, or the build failed. JupyterLab opens
without an item in the status bar, and without filling cells after a reload of the page.
Install Node.js (20.19 or newer), end this with Ctrl-C, and run it again."""


def show_lab() -> int:
    """0 once it is over and nothing is left, else 1."""
    with stage() as at:
        if not walk(at):
            return 1
        lab = _Lab(_prepared(at))
        at.terminal.say("JupyterLab", "opens. Ctrl-C ends it, and the cluster with it.")
        actions = Actions(at, lab.restart)
        with contextlib.closing(Control(at.cluster.folder, actions.handle)):
            status = lab.run()
        actions.end()
        stop_kernels(at)
        return 0 if end(at) and status == 0 else 1


def _prepared(at: Stage) -> list[str]:
    """Write the notebooks and JupyterLab's settings; the command that opens it."""
    built = _link_extension()
    if not built:
        at.terminal.say("JupyterLab", _NOT_BUILT)
    folder = at.cluster.folder / "notebooks"
    folder.mkdir()
    for name, notebook in tour.notebooks(KERNEL, simulated=at.cluster.simulated, extension=built).items():
        (folder / name).write_text(json.dumps(notebook))
    page = Path(os.environ["JUPYTER_CONFIG_DIR"]) / "labconfig" / "page_config.json"
    page.parent.mkdir()
    page.write_text(json.dumps({"disabledExtensions": _QUESTIONS}))
    command = [sys.executable, "-m", "jupyterlab", "-y", f"--ServerApp.root_dir={folder}"]
    # Looking for language servers runs npm, which writes into the home folder.
    command += ["--LanguageServerManager.autodetect=False"]
    command += ["--allow-root"] if os.geteuid() == 0 else []
    return [*command, str(folder / tour.STORY)]


def _link_extension() -> bool:
    """Let JupyterLab find our extension, which a checkout does not install; whether it is built at all."""
    shared = Path("share", "jupyter", "labextensions", _EXTENSION)
    in_package = Path(__file__).parents[1] / "labextension"
    for folder in (in_package, sys.prefix / shared, site.getuserbase() / shared):
        if (folder / "package.json").exists():
            link = Path(os.environ["JUPYTER_PATH"], "labextensions", _EXTENSION)
            link.parent.mkdir()
            link.symlink_to(folder.resolve())
            return True
    return False


class _Lab:
    """JupyterLab as a child process. Another thread may `restart` it while it runs."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = list(command)
        self._process: subprocess.Popen[bytes] | None = None
        self._again_in: float | None = None  # seconds after its end

    def run(self) -> int:
        """To its end; its exit status. Ctrl-C is for it: it gets it from the terminal as we do."""
        while True:
            self._process = subprocess.Popen(self._command)
            status = self._wait(self._process)
            if self._again_in is None or not _slept(self._again_in):
                return status
            self._again_in = None

    def restart(self, seconds: float) -> None:
        """End it, and start it again after so long: on its port, so that an open page finds it."""
        if self._process is not None and self._again_in is None:
            file = Path(os.environ["JUPYTER_RUNTIME_DIR"], f"jpserver-{self._process.pid}.json")
            port = json.loads(file.read_text())["port"]
            self._command += ["--no-browser", f"--ServerApp.port={port}"]
            self._again_in = seconds
            self._process.terminate()

    def _wait(self, process: subprocess.Popen[bytes]) -> int:
        while True:
            try:
                return process.wait()
            except KeyboardInterrupt:
                self._again_in = None
            except BaseException:
                process.terminate()
                process.wait(10)
                raise


def _slept(seconds: float) -> bool:
    """Whether that was without a Ctrl-C."""
    try:
        time.sleep(seconds)
    except KeyboardInterrupt:
        return False
    return True
