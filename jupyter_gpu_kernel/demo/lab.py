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
from .control import Actions, Control
from .setup import KERNEL, Demo, check_connection, end, running_demo, stop_kernels

_DISABLED = {"@jupyterlab/apputils-extension:announcements": True}  # it asks whether to fetch news
_EXTENSION = "jupyter-gpu-kernel"
_NOT_BUILT = """the JupyterLab extension is not built: npm was not found, or the build failed. Without it, JupyterLab
has no item in the status bar, and does not restore outputs after a reload of the page.
Install Node.js (20.19 or newer), end this with Ctrl-C, and run it again."""


def run_in_lab() -> int:
    """Run JupyterLab. Return 0 if it ends normally and leaves nothing behind, else 1."""
    with running_demo() as demo:
        if not check_connection(demo):
            return 1
        lab = _Lab(_prepared(demo))
        demo.terminal.say("JupyterLab", "starts. Ctrl-C stops it, and the cluster.")
        actions = Actions(demo, lab.restart)
        with contextlib.closing(Control(demo.cluster.folder, actions.handle)):
            status = lab.run()
        actions.end()
        stop_kernels(demo)
        return 0 if end(demo) and status == 0 else 1


def _prepared(demo: Demo) -> list[str]:
    """Write the notebooks and JupyterLab's settings. Return the command that starts it."""
    built = _link_extension()
    if not built:
        demo.terminal.say("JupyterLab", _NOT_BUILT)
    folder = demo.cluster.folder / "notebooks"
    folder.mkdir()
    for name, notebook in tour.notebooks(KERNEL, simulated=demo.cluster.simulated, extension=built).items():
        (folder / name).write_text(json.dumps(notebook))
    page = Path(os.environ["JUPYTER_CONFIG_DIR"]) / "labconfig" / "page_config.json"
    page.parent.mkdir()
    page.write_text(json.dumps({"disabledExtensions": _DISABLED}))
    command = [sys.executable, "-m", "jupyterlab", "-y", f"--ServerApp.root_dir={folder}"]
    # Looking for language servers runs npm, which writes into the home folder.
    command += ["--LanguageServerManager.autodetect=False"]
    command += ["--allow-root"] if os.geteuid() == 0 else []
    return [*command, str(folder / tour.STORY)]


def _link_extension() -> bool:
    """Let JupyterLab find our extension, which a checkout does not install. Return whether it is built."""
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
        self._restart_in: float | None = None  # seconds

    def run(self) -> int:
        """Run it to its end, and return its exit status. Ctrl-C reaches it from the terminal as it reaches us."""
        while True:
            self._process = subprocess.Popen(self._command)
            status = self._wait(self._process)
            if self._restart_in is None or not _slept(self._restart_in):
                return status
            self._restart_in = None

    def restart(self, seconds: float) -> None:
        """Stop it, and start it again later on the same port, so that an open page finds it."""
        if self._process is not None and self._restart_in is None:
            file = Path(os.environ["JUPYTER_RUNTIME_DIR"], f"jpserver-{self._process.pid}.json")
            port = json.loads(file.read_text())["port"]
            self._command += ["--no-browser", f"--ServerApp.port={port}"]
            self._restart_in = seconds
            self._process.terminate()

    def _wait(self, process: subprocess.Popen[bytes]) -> int:
        while True:
            try:
                return process.wait()
            except KeyboardInterrupt:
                self._restart_in = None
            except BaseException:
                process.terminate()
                process.wait(10)
                raise


def _slept(seconds: float) -> bool:
    """Sleep; False if Ctrl-C interrupts it."""
    try:
        time.sleep(seconds)
    except KeyboardInterrupt:
        return False
    return True
